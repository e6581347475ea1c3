package charts

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// Values are what a chart is rendered with: those that it does not name are the chart's own.
type Values = map[string]any

// LoadFrom reads the chart in the folder of its name, such as one that this program was built with.
func LoadFrom(files fs.FS, name string) (*chart.Chart, error) {
	var buffered []*archive.BufferedFile
	err := fs.WalkDir(files, name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		buffered = append(buffered, &archive.BufferedFile{Name: file[len(path.Clean(name))+1:], Data: content})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find chart %s: %w", name, err)
	}
	loaded, err := loader.LoadFiles(buffered)
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", name, err)
	}
	return loaded, nil
}

// Offline says for which cluster a chart is rendered that nothing is asked of.
type Offline struct {
	// Release is the name of the release, Namespace the namespace that its objects are for.
	Release, Namespace string
	// KubeVersion is the version of the cluster, such as v1.30.0; empty for the newest that Helm knows.
	KubeVersion string
}

// RenderOffline returns the objects of a chart, its CustomResourceDefinitions first, without a cluster.
func RenderOffline(ctx context.Context, of *chart.Chart, values Values, target Offline) (string, error) {
	install := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	install.ReleaseName, install.Namespace, install.DryRunStrategy = target.Release, target.Namespace, action.DryRunClient
	if target.KubeVersion != "" {
		version, err := common.ParseKubeVersion(target.KubeVersion)
		if err != nil {
			return "", fmt.Errorf("version %q of the cluster: %w", target.KubeVersion, err)
		}
		install.KubeVersion = version
	}
	rendered, err := install.RunWithContext(ctx, of, values)
	return manifestsOf(of, rendered, err)
}
