// Command pack writes a Helm repository with the charts: an archive of each, and index.yaml. The same charts make the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	repo "helm.sh/helm/v4/pkg/repo/v1"
)

// names are the charts, each in a folder of its name.
var names = []string{"capstan-hub", "cluster-gateway-addon-manager", "cluster-manager", "cluster-proxy", "klusterlet",
	"managed-serviceaccount", "resource-usage-collect-addon"}

// changed is when everything was changed last, as far as the archives and the index tell.
var changed = time.Unix(0, 0).UTC()

func main() {
	source := flag.String("charts", "deploy/charts", "folder with the charts")
	out := flag.String("out", "dist/charts", "folder of the repository")
	version := flag.String("version", "", "version of the charts and of the images in them, such as v1.2.3; without it, that of Chart.yaml")
	url := flag.String("url", "", "URL of the repository, if its index is going to be somewhere else")
	flag.Parse()
	if err := pack(*source, *out, *version, *url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pack(source, out, version, url string) error {
	for _, name := range names {
		loaded, err := loader.Load(filepath.Join(source, name))
		if err != nil {
			return fmt.Errorf("read chart %s: %w", name, err)
		}
		if version != "" {
			// Versions of charts are semantic versions, which begin with a number; images have the tag of the release.
			loaded.Metadata.Version, loaded.Metadata.AppVersion = strings.TrimPrefix(version, "v"), version
		}
		setTimes(loaded)
		if _, err := chartutil.Save(loaded, out); err != nil {
			return fmt.Errorf("pack chart %s: %w", name, err)
		}
	}
	return writeIndex(out, url)
}

func setTimes(of *chart.Chart) {
	of.ModTime, of.SchemaModTime = changed, changed
	for _, files := range [][]*common.File{of.Raw, of.Templates, of.Files} {
		for _, file := range files {
			file.ModTime = changed
		}
	}
}

func writeIndex(dir, url string) error {
	index, err := repo.IndexDirectory(dir, url)
	if err != nil {
		return fmt.Errorf("index the charts: %w", err)
	}
	index.SortEntries()
	index.Generated = changed
	for _, versions := range index.Entries {
		for _, version := range versions {
			version.Created = changed
		}
	}
	const readable = 0o644
	return index.WriteFile(filepath.Join(dir, "index.yaml"), readable)
}
