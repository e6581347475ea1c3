package charts

import (
	"fmt"
	"io/fs"
	"path"

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
