package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// HC-13: the bundles in the repository are those of the charts, and a release gets bundles of its version, to which older ones
// are upgraded.
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
		for _, want := range []string{"name: capstan-" + o.chart + ".v1.2.3\n", ":v1.2.3\n", "\n  version: 1.2.3\n",
			"\n    olm.skipRange: '>=0.0.0 <1.2.3'\n"} {
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

// HC-13: what the console proposes to create names no images, so it is upgraded with the operator; a copy of the catalog has the images of
// all that runs, and the operator is installed where everything looks for it.
func TestServiceVersions(t *testing.T) {
	t.Parallel()
	for _, o := range operators {
		objects, err := o.build("")
		if err != nil {
			t.Fatal(err)
		}
		csv, err := o.serviceVersion(metadata{}, objects)
		if err != nil {
			t.Fatal(err)
		}
		annotations := csv["metadata"].(object)["annotations"].(object)
		if example := annotations["alm-examples"].(string); strings.Contains(strings.ToLower(example), "imagepullspec") ||
			!strings.Contains(example, `"kind": "`+o.kind+`"`) {
			t.Errorf("the example of %s is %s", o.kind, example)
		}
		if got := annotations["operatorframework.io/suggested-namespace"]; got != "open-cluster-management" {
			t.Errorf("the namespace that is proposed for %s is %v", o.chart, got)
		}
		want := []any{object{"name": "operator", "image": annotations["containerImage"]}}
		if o.chart == "cluster-manager" {
			want = append(want, object{"name": "agent", "image": "ghcr.io/capstan-io/capstan-agent:latest"})
		}
		if got := csv["spec"].(object)["relatedImages"]; !reflect.DeepEqual(got, want) {
			t.Errorf("the images of %s are %v, want %v", o.chart, got, want)
		}
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
