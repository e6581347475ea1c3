package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var excerpt = regexp.MustCompile("(?s)\n`(examples/[^`]+)`:\n\n```go\n(.*?)```\n")

// TestPorting sees to it that the code on docs/porting-add-ons.md is that of the examples, which is compiled.
func TestPorting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("porting-add-ons.md")
	if err != nil {
		t.Fatal(err)
	}
	excerpts := excerpt.FindAllStringSubmatch(string(page), -1)
	if blocks := strings.Count(string(page), "\n```go\n"); len(excerpts) != blocks || blocks == 0 {
		t.Fatalf("porting-add-ons.md has %d blocks of Go, %d of them under the name of a file of the examples", blocks, len(excerpts))
	}
	for _, match := range excerpts {
		file, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(match[1])))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(file), match[2]) {
			t.Errorf("porting-add-ons.md shows code that is not in %s:\n%s", match[1], match[2])
		}
	}
}
