package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

// TestCLIHubInExistingCluster runs commands of hubs that are not standalone.
func TestCLIHubInExistingCluster(t *testing.T) {
	t.Parallel()
	existing, _ := framework.HubInExistingCluster(t)
	t.Run("charts", func(t *testing.T) { t.Parallel(); testHubAddOnCharts(t, existing) })
	t.Run("placement", func(t *testing.T) { t.Parallel(); testExplainExisting(t, existing) })
}

// chartRepository serves the versions of one chart, which makes a ConfigMap that names its version.
type chartRepository struct {
	chart    string
	mu       sync.Mutex
	versions []string
}

func (r *chartRepository) add(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions = append(r.versions, version)
}

func (r *chartRepository) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if request.URL.Path == "/index.yaml" {
		fmt.Fprintf(w, "apiVersion: v1\nentries:\n  %s:\n", r.chart)
		for _, version := range r.versions {
			fmt.Fprintf(w, "  - {apiVersion: v2, name: %s, version: %s, urls: [%s.tgz]}\n", r.chart, version, version)
		}
		return
	}
	version := strings.TrimSuffix(strings.TrimPrefix(request.URL.Path, "/"), ".tgz")
	archive := gzip.NewWriter(w)
	defer archive.Close()
	files := tar.NewWriter(archive)
	defer files.Close()
	for name, content := range map[string]string{
		"Chart.yaml":                "apiVersion: v2\nname: " + r.chart + "\nversion: " + version + "\n",
		"values.yaml":               "greeting: hello\n",
		"templates/configmap.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-chart\ndata:\n  version: {{ .Chart.Version | quote }}\n  greeting: {{ .Values.greeting }}\n",
		"templates/deployment.yaml": "{{- if .Capabilities.APIVersions.Has \"apps/v1\" }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: knows-the-hub\n{{- end }}\n",
	} {
		_ = files.WriteHeader(&tar.Header{Name: r.chart + "/" + name, Mode: 0o600, Size: int64(len(content))})
		_, _ = files.Write([]byte(content))
	}
}

// CA-39 CA-40: the hub's side of an add-on comes from a chart repository, as a release that Helm knows, is upgraded, and goes.
func testHubAddOnCharts(t *testing.T, existing *env.Server) {
	const namespace, release = "chart-of-argocd", "argocd-pull-integration"
	c := existing.Client(t)
	repository := &chartRepository{chart: release}
	repository.add("1.0.0")
	repository.add("1.1.0")
	server := httptest.NewServer(repository)
	defer server.Close()
	install := []string{"install", "hub-addon", "--names", "argocd", "-n", namespace, "--repository", server.URL}
	existing.Capstan(t, "", install...).Ends(t, 1, "no namespace "+namespace, "--create-namespace")
	install = append(install, "--create-namespace")

	existing.Capstan(t, "", append(install, "--dry-run")...).Succeeds(t, "name: from-chart", `version: "1.1.0"`, "name: knows-the-hub")
	if err := c.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run made the namespace: %v", err)
	}
	expect := func(version string, revision int) {
		t.Helper()
		made := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "from-chart"}, made); err != nil {
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
	repository.add("1.2.0")
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
	if strings.Contains(fmt.Sprint(left.Items), "from-chart") || len(releases.Items) != 0 {
		t.Errorf("left are %v and %d Secrets", left.Items, len(releases.Items))
	}
	existing.Capstan(t, "", uninstall...).Ends(t, 1, "release "+release+" is not installed in namespace "+namespace)
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
