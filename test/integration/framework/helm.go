package framework

import (
	"context"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/charts"
	"github.com/capstan-io/capstan/test/env"
)

// Helm is Helm with the access of an administrator to a cluster.
type Helm struct {
	Cluster   *env.Server
	Namespace string
}

func (h Helm) configuration(t *testing.T) *action.Configuration {
	t.Helper()
	access := genericclioptions.NewConfigFlags(true)
	access.KubeConfig, access.Namespace = &h.Cluster.Kubeconfig, &h.Namespace
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := config.Init(access, h.Namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return config
}

// Install does it again if it was too early for a CRD: Helm does not wait until the API server lists its kind.
func (h Helm) Install(t *testing.T, release string, chart *chartv2.Chart, values string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		install := action.NewInstall(h.configuration(t))
		install.ReleaseName, install.Namespace, install.CreateNamespace = release, h.Namespace, true
		install.WaitStrategy = kube.HookOnlyStrategy
		_, err := install.RunWithContext(ctx, chart, valuesOf(t, values))
		if err != nil && !strings.Contains(err.Error(), "ensure CRDs are installed first") {
			t.Fatalf("install %s: %v", release, err)
		}
		return err
	})
}

// Upgrade upgrades a release.
func (h Helm) Upgrade(t *testing.T, release string, chart *chartv2.Chart, values string) {
	t.Helper()
	upgrade := action.NewUpgrade(h.configuration(t))
	upgrade.Namespace, upgrade.WaitStrategy = h.Namespace, kube.HookOnlyStrategy
	if _, err := upgrade.RunWithContext(t.Context(), release, chart, valuesOf(t, values)); err != nil {
		t.Fatalf("upgrade %s: %v", release, err)
	}
}

// Uninstall removes a release.
func (h Helm) Uninstall(t *testing.T, release string) {
	t.Helper()
	uninstall := action.NewUninstall(h.configuration(t))
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run(release); err != nil {
		t.Fatalf("uninstall %s: %v", release, err)
	}
}

func valuesOf(t *testing.T, values string) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(values), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// ChartOf is a chart of this repository.
func ChartOf(t *testing.T, name string) *chartv2.Chart {
	t.Helper()
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Files, name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := charts.Files.ReadFile(file)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(file, name+"/"), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// Get reads an object.
func Get(t *testing.T, c client.Client, key client.ObjectKey, into client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), key, into); err != nil {
		t.Fatal(err)
	}
}
