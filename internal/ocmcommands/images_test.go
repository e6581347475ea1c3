package ocmcommands_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/ocmcommands"
)

// repository is the root of the repository, as seen from this package.
const repository = "../.."

// Every image has the names of all commands that its programs run. A name that belongs to both programs leads to the first, which becomes
// the other one where that is asked for.
func TestNamesInImages(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(repository, "tools/images/images.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var images []struct {
		Name     string
		Programs []string
		Names    map[string][]string
	}
	if err := yaml.Unmarshal(content, &images); err != nil {
		t.Fatal(err)
	}
	translated := 0
	for _, image := range images {
		want := map[string][]string{}
		taken := map[string]bool{}
		for _, program := range image.Programs {
			if !exists("cmd", program) && !exists("examples", program) {
				t.Errorf("image %s: there is no program %s", image.Name, program)
			}
			for _, name := range slices.Sorted(maps.Keys(ocmcommands.Names(program))) {
				if !taken[name] {
					want[program] = append(want[program], name)
				}
				taken[name] = true
			}
		}
		translated += len(want)
		for _, program := range image.Programs {
			if got := slices.Sorted(slices.Values(image.Names[program])); !slices.Equal(got, want[program]) {
				t.Errorf("image %s: the names of %s are %s, want %s", image.Name, program, strings.Join(got, ", "), strings.Join(want[program], ", "))
			}
		}
	}
	if translated != 4 {
		t.Errorf("%d programs with names in %d images; want those of capstan-hub, capstan-agent, and of an image with both", translated, len(images))
	}
}

func exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(append([]string{repository}, parts...)...))
	return err == nil
}
