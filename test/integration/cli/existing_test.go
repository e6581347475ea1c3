package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// TestCLIHubInExistingCluster runs commands of hubs that are not standalone. AR-08 CA-39 CA-40 PL-23 P8.
func TestCLIHubInExistingCluster(t *testing.T) {
	t.Parallel()
	existing, _ := framework.HubInExistingCluster(t)
	t.Run("charts", func(t *testing.T) { t.Parallel(); testHubAddOnCharts(t, existing) })
	t.Run("charts of all add-ons", func(t *testing.T) { t.Parallel(); testHubAddOnsByHTTPS(t, existing) })
	t.Run("placement", func(t *testing.T) { t.Parallel(); testExplainExisting(t, existing) })
}

// chartRepository serves versions of charts, each of which makes a ConfigMap that names its version.
type chartRepository struct {
	mu     sync.Mutex
	charts map[string][]string // with their versions
	// replaced are archives that are not those in the index.
	replaced map[string]bool
}

func (r *chartRepository) add(chart, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.charts[chart] = append(r.charts[chart], version)
}

func (r *chartRepository) replace(archive string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaced[archive] = true
}

func (r *chartRepository) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if request.URL.Path == "/index.yaml" {
		fmt.Fprintf(w, "apiVersion: v1\nentries:\n")
		for chart, versions := range r.charts {
			fmt.Fprintf(w, "  %s:\n", chart)
			for _, version := range versions {
				archive := archiveOf(chart, version)
				fmt.Fprintf(w, "  - {apiVersion: v2, name: %s, version: %s, urls: [%s-%s.tgz], digest: \"%x\"}\n", chart, version, chart, version,
					sha256.Sum256(archive))
			}
		}
		return
	}
	for chart, versions := range r.charts {
		for _, version := range versions {
			name := chart + "-" + version + ".tgz"
			if request.URL.Path != "/"+name {
				continue
			}
			archive := archiveOf(chart, version)
			if r.replaced[name] {
				archive = archiveOf(chart, "6.6.6")
			}
			_, _ = w.Write(archive)
			return
		}
	}
	http.NotFound(w, request)
}

// archiveOf packs a version of a chart, into the same bytes each time.
func archiveOf(chart, version string) []byte {
	var packed bytes.Buffer
	archive := gzip.NewWriter(&packed)
	files := tar.NewWriter(archive)
	for _, file := range []struct{ name, content string }{
		{"Chart.yaml", "apiVersion: v2\nname: " + chart + "\nversion: " + version + "\n"},
		{"values.yaml", "greeting: hello\n"},
		{"templates/configmap.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-{{ .Chart.Name }}\ndata:\n" +
			"  version: {{ .Chart.Version | quote }}\n  greeting: {{ .Values.greeting }}\n"},
		{"templates/deployment.yaml", "{{- if .Capabilities.APIVersions.Has \"apps/v1\" }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n" +
			"  name: knows-the-hub-{{ .Chart.Name }}\n{{- end }}\n"},
	} {
		_ = files.WriteHeader(&tar.Header{Name: chart + "/" + file.name, Mode: 0o600, Size: int64(len(file.content))})
		_, _ = files.Write([]byte(file.content))
	}
	_ = files.Close()
	_ = archive.Close()
	return packed.Bytes()
}

// CA-39 CA-40: the hub's side of an add-on comes from a chart repository, as a release that Helm knows, is upgraded, and goes.
func testHubAddOnCharts(t *testing.T, existing *env.Server) {
	const namespace, release = "chart-of-argocd", "argocd-pull-integration"
	c := existing.Client(t)
	repository := &chartRepository{charts: map[string][]string{release: {"1.0.0", "1.1.0"}}}
	server := httptest.NewServer(repository)
	defer server.Close()
	install := []string{"install", "hub-addon", "--names", "argocd", "-n", namespace, "--repository", server.URL}
	existing.Capstan(t, "", install...).Ends(t, 1, "no namespace "+namespace, "--create-namespace")
	install = append(install, "--create-namespace")

	existing.Capstan(t, "", append(install, "--dry-run")...).Succeeds(t, "name: from-"+release, `version: "1.1.0"`,
		"name: knows-the-hub-"+release)
	if err := c.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run made the namespace: %v", err)
	}
	expect := func(version string, revision int) {
		t.Helper()
		made := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "from-" + release}, made); err != nil {
			t.Fatal(err)
		}
		if made.Data["version"] != version || made.Data["greeting"] != "hello" || made.Labels["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("made %v with labels %v, want version %s", made.Data, made.Labels, version)
		}
		kept := &corev1.Secret{}
		key := client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("sh.helm.release.v1.%s.v%d", release, revision)}
		if err := c.Get(t.Context(), key, kept); err != nil {
			t.Fatal(err)
		}
		if kept.Type != "helm.sh/release.v1" || kept.Labels["status"] != "deployed" {
			t.Errorf("the release is a %s with labels %v", kept.Type, kept.Labels)
		}
	}
	existing.Capstan(t, "", install...).Succeeds(t, "Installing built-in argocd add-on to the Hub cluster...")
	expect("1.1.0", 1)
	repository.add(release, "1.2.0")
	existing.Capstan(t, "", install...).Succeeds(t)
	expect("1.2.0", 2)

	const unreachable = "http://127.0.0.1:1"
	existing.Capstan(t, "", append(install, "--repository", unreachable)...).Ends(t, 1, "add-on argocd", "chart "+release, unreachable,
		"refused")
	expect("1.2.0", 2)

	uninstall := []string{"uninstall", "hub-addon", "--names", "argocd", "-n", namespace}
	existing.Capstan(t, "", uninstall...).Succeeds(t, "Uninstalling built-in argocd add-on from the Hub cluster...")
	left := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), left, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	releases := &corev1.SecretList{}
	if err := c.List(t.Context(), releases, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(left.Items), "from-"+release) || len(releases.Items) != 0 {
		t.Errorf("left are %v and %d Secrets", left.Items, len(releases.Items))
	}
	existing.Capstan(t, "", uninstall...).Ends(t, 1, "release "+release+" is not installed in namespace "+namespace)
}

// AR-08 CA-39 CA-40: all add-ons come from a repository that has an authority of its own, and go. A chart that the index does not have,
// or has with another digest, is not installed, and neither is any other.
func testHubAddOnsByHTTPS(t *testing.T, existing *env.Server) {
	const namespace = "all-hub-add-ons"
	charts := []string{"argocd-pull-integration", "argocd-agent-addon", "governance-policy-framework"}
	repository := &chartRepository{charts: map[string][]string{charts[0]: {"1.0.0"}, charts[2]: {"0.18.0", "0.19.0"}},
		replaced: map[string]bool{}}
	server := httptest.NewTLSServer(repository)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, content, 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"hub-addon", "--names", "argocd,argocd-agent,governance-policy-framework", "-n", namespace}
	install := slices.Concat([]string{"install"}, names, []string{"--create-namespace", "--repository", server.URL})
	existing.Capstan(t, "", install...).Ends(t, 1, "add-on argocd", "unknown authority", "--repository-ca-file")
	install = append(install, "--repository-ca-file", ca)
	existing.Capstan(t, "", install...).Ends(t, 1, "add-on argocd-agent", server.URL+" has no chart argocd-agent-addon")
	repository.add(charts[1], "0.1.0")
	repository.add(charts[1], "0.2.0")
	repository.replace("argocd-agent-addon-0.2.0.tgz")
	existing.Capstan(t, "", install...).Ends(t, 1, "add-on argocd-agent", "/argocd-agent-addon-0.2.0.tgz is not version 0.2.0",
		"its SHA-256 is ")
	c := existing.Client(t)
	if err := c.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Fatalf("something is installed: %v", err)
	}
	repository.add(charts[1], "0.3.0")
	existing.Capstan(t, "", install...).Succeeds(t, "Installing built-in argocd add-on", "Installing built-in argocd-agent add-on",
		"Installing built-in governance-policy-framework add-on")
	for chart, version := range map[string]string{charts[0]: "1.0.0", charts[1]: "0.3.0", charts[2]: "0.18.0"} {
		made := &corev1.ConfigMap{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "from-" + chart}, made)
		if err != nil || made.Data["version"] != version {
			t.Errorf("chart %s: made %v, %v, want version %s", chart, made.Data, err, version)
		}
	}
	existing.Capstan(t, "", append([]string{"uninstall"}, names...)...).Succeeds(t, "Uninstalling built-in governance-policy-framework add-on")
	left := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), left, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(left.Items), "from-") {
		t.Errorf("left are %v", left.Items)
	}
}

// PL-23 P8: where the placement controllers say why, the command has to be told their address.
func testExplainExisting(t *testing.T, existing *env.Server) {
	explaining, _ := framework.StartPlacementControllers(t, existing)
	s := framework.NewSiteOn(t, existing, "existing-explain", "a", "b")
	s.Place(t, "one", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "one", "a")
	env.Eventually(t, func(ctx context.Context) error {
		_, _, err := explaining.Asker(t, existing, framework.AsItself).Ask(ctx, http.MethodGet, s.Name+"/one", nil)
		return err
	})
	explain := []string{"explain", "placement", "one", "--namespace", s.Name}
	existing.Capstan(t, "", append(explain, "--debug-server", "https://"+explaining.Address, "--debug-server-ca",
		filepath.Join(explaining.CertDir, "tls.crt"))...).Succeeds(t, "Placement existing-explain/one selects 1 cluster")
	existing.Capstan(t, "", explain...).Ends(t, 1, "--debug-server https://")
}
