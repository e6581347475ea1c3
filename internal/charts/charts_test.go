package charts

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// newRepository writes a Helm repository with versions of the chart argocd, as `helm package` and `helm repo index` do.
func newRepository(t *testing.T, versions ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, version := range versions {
		packed := &chart.Chart{
			Metadata:  &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "argocd", Version: version},
			Templates: []*chartcommon.File{{Name: "templates/object.yaml", Data: []byte("kind: Of" + version)}},
		}
		if _, err := chartutil.Save(packed, dir); err != nil {
			t.Fatal(err)
		}
	}
	index, err := repo.IndexDirectory(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := index.WriteFile(filepath.Join(dir, "index.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// AR-08 CA-39: charts come from a repository over HTTP, or over HTTPS with an authority of its own.
func TestLoad(t *testing.T) {
	t.Parallel()
	files := http.FileServer(http.Dir(newRepository(t, "1.0.0", "1.1.0", "2.0.0-rc.1")))
	plain, secure := httptest.NewServer(files), httptest.NewTLSServer(files)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(ca, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		of   Reference
		want string
	}{
		{"the newest", Reference{Repository: plain.URL}, "1.1.0"},
		{"a version", Reference{Repository: plain.URL, Version: "1.0.0"}, "1.0.0"},
		{"a version with a v", Reference{Repository: plain.URL + "/", Version: "v1.0.0"}, "1.0.0"},
		{"a pre-release", Reference{Repository: plain.URL, Version: "2.0.0-rc.1"}, "2.0.0-rc.1"},
		{"by HTTPS", Reference{Repository: secure.URL, CAFile: ca}, "1.1.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.of.Name = "argocd"
			loaded, err := Load(test.of)
			if err != nil {
				t.Fatal(err)
			}
			if loaded.Metadata.Version != test.want || len(loaded.Templates) != 1 || string(loaded.Templates[0].Data) != "kind: Of"+test.want {
				t.Errorf("got version %s with %v, want %s", loaded.Metadata.Version, loaded.Templates, test.want)
			}
		})
	}
}

// AR-08 CA-39: where a chart cannot be had, the error says from where it was to come and what to do.
func TestLoadFails(t *testing.T) {
	t.Parallel()
	serve := func(dir string) string {
		server := httptest.NewServer(http.FileServer(http.Dir(dir)))
		t.Cleanup(server.Close)
		return server.URL
	}
	changed := func(file string, content []byte) string {
		dir := newRepository(t, "1.0.0", "1.1.0")
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return serve(dir)
	}
	other, err := os.ReadFile(filepath.Join(newRepository(t, "1.1.0", "1.2.0"), "argocd-1.2.0.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	away := gone.URL
	gone.Close()
	whole := serve(newRepository(t, "1.0.0", "1.1.0"))
	many := serve(newRepository(t, "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0"))
	lost := newRepository(t, "1.0.0")
	if err := os.Remove(filepath.Join(lost, "argocd-1.0.0.tgz")); err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	const advice = "--repository-ca-file the certificates to verify it with), or name a copy that it reaches with --repository"
	for _, test := range []struct {
		name string
		of   Reference
		want []string
	}{
		{"the repository is away", Reference{Repository: away, Name: "argocd", Version: "1.2.3"},
			[]string{"get version 1.2.3 of chart argocd from the Helm repository " + away, "refused", "HTTPS_PROXY names a proxy", advice}},
		{"no repository", Reference{Repository: serve(t.TempDir()), Name: "argocd"},
			[]string{"get the newest version of chart argocd", "/index.yaml", "404 Not Found", advice}},
		{"no URL", Reference{Repository: "charts.example.com", Name: "argocd"}, []string{"charts.example.com", "protocol handler", advice}},
		{"an unknown authority", Reference{Repository: secure.URL, Name: "argocd"}, []string{"unknown authority", advice}},
		{"no authority", Reference{Repository: secure.URL, Name: "argocd", CAFile: "/no/such/file"}, []string{"/no/such/file", advice}},
		{"an index that is none", Reference{Repository: changed("index.yaml", []byte("<html>")), Name: "argocd"},
			[]string{"from the Helm repository", advice}},
		{"no such chart", Reference{Repository: whole, Name: "argocd-agent"},
			[]string{"the Helm repository " + whole + " has no chart argocd-agent: name the one that has it with --repository"}},
		{"no such version", Reference{Repository: whole, Name: "argocd", Version: "v9.9.9"},
			[]string{"the Helm repository " + whole + " does not have version v9.9.9 of chart argocd: it has 1.1.0, 1.0.0"}},
		{"no such version among many", Reference{Repository: many, Name: "argocd", Version: "9"},
			[]string{"it has 1.6.0, 1.5.0, 1.4.0, 1.3.0, 1.2.0, and 2 older ones"}},
		{"pre-releases alone", Reference{Repository: serve(newRepository(t, "1.0.0-rc.1")), Name: "argocd"},
			[]string{"does not have a version that is no pre-release of chart argocd: it has 1.0.0-rc.1"}},
		{"no archive", Reference{Repository: serve(lost), Name: "argocd"}, []string{"argocd-1.0.0.tgz", "404 Not Found", advice}},
		{"another archive", Reference{Repository: changed("argocd-1.1.0.tgz", other), Name: "argocd"},
			[]string{"/argocd-1.1.0.tgz is not version 1.1.0 of chart argocd in the index of the Helm repository", "its SHA-256 is ", ", and not ",
				"name another one with --repository"}},
		{"part of the archive", Reference{Repository: changed("argocd-1.1.0.tgz", other[:10]), Name: "argocd"}, []string{"its SHA-256 is "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(test.of)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s in it", err, want)
				}
			}
		})
	}
}

// What an interrupted run has left pending, in which Helm refuses everything, is gone on with, and keeps its values. Rendering changes
// nothing.
func TestInstallAfterInterruption(t *testing.T) {
	t.Parallel()
	for status, known := range map[common.Status]bool{
		common.StatusPendingInstall: false, common.StatusPendingUpgrade: true, common.StatusPendingRollback: true, common.StatusFailed: false,
		common.StatusDeployed: false,
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			memory := driver.NewMemory()
			memory.SetNamespace("argocd")
			stored := storage.Init(memory)
			releases := &Releases{config: &action.Configuration{Releases: stored, KubeClient: &kubefake.PrintingKubeClient{Out: io.Discard},
				Capabilities: chartcommon.DefaultCapabilities}, namespace: "argocd"}
			of := &chart.Chart{
				Metadata:  &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "argocd", Version: "2.0.0"},
				Templates: []*chartcommon.File{{Name: "templates/object.yaml", Data: []byte("kind: Of{{ .Values.a }}")}},
			}
			add := func(version int, status common.Status) {
				t.Helper()
				err := stored.Create(&releasev1.Release{Name: "argocd", Namespace: "argocd", Version: version, Chart: of,
					Config: map[string]any{"a": "b"}, Info: &releasev1.Info{Status: status}})
				if err != nil {
					t.Fatal(err)
				}
			}
			last := 1
			if known { // and it was upgraded or rolled back
				add(last, common.StatusDeployed)
				last++
			}
			add(last, status)
			rendered, err := releases.Render(t.Context(), "argocd", of)
			if err != nil || rendered != "---\n# Source: argocd/templates/object.yaml\nkind: Ofb\n" {
				t.Errorf("it renders %q: %v", rendered, err)
			}
			statusOf := func(version int) (common.Status, map[string]any) {
				t.Helper()
				found, err := stored.Get("argocd", version)
				if err != nil {
					t.Fatal(err)
				}
				return found.(*releasev1.Release).Info.Status, found.(*releasev1.Release).Config
			}
			if left, _ := statusOf(last); left != status {
				t.Errorf("after rendering, the revision is %s", left)
			}
			if err := releases.Install(t.Context(), "argocd", of, false); err != nil {
				t.Fatal(err)
			}
			if now, values := statusOf(last + 1); now != common.StatusDeployed || values["a"] != "b" {
				t.Errorf("the next revision is %s, with the values %v", now, values)
			}
			if left, _ := statusOf(last); left.IsPending() {
				t.Errorf("the revision stays %s", left)
			}
		})
	}
}
