// Package repository writes a Helm repository with the charts: an archive of each, and index.yaml.
package repository

import (
	"fmt"
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

// Write packs the charts in the folder source, and writes the repository to the folder out. The same charts make the same bytes. A version
// such as v1.2.3 becomes that of the charts and of the images in them; if it is empty, both stay as Chart.yaml has them. The archives are
// at url, or next to the index if that is empty.
func Write(source, out, version, url string) error {
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
