package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// HC-13: the bundles in the repository are those of the charts, and a release gets bundles of its version.
func TestBundles(t *testing.T) {
	t.Parallel()
	unreleased, released := t.TempDir(), t.TempDir()
	for _, o := range operators {
		if err := o.bundle(filepath.Join(unreleased, o.chart), ""); err != nil {
			t.Fatal(err)
		}
		if err := o.bundle(filepath.Join(released, o.chart), "v1.2.3"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(released, o.chart, "manifests", prefix+o.chart+".clusterserviceversion.yaml")
		for _, want := range []string{"name: capstan-" + o.chart + ".v1.2.3\n", ":v1.2.3\n", "\n  version: 1.2.3\n"} {
			if !strings.Contains(read(t, file), want) {
				t.Errorf("the bundle of %s 1.2.3 has no %q", o.chart, want)
			}
		}
	}
	const kept = "../../olm"
	files := 0
	err := fs.WalkDir(os.DirFS(unreleased), ".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files++
			if read(t, filepath.Join(unreleased, file)) != read(t, filepath.Join(kept, file)) {
				t.Errorf("deploy/olm/%s is not what its chart says: run make generate", file)
			}
		}
		return err
	})
	if err != nil || files != 6 {
		t.Errorf("compared %d files: %v", files, err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
