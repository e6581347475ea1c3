package repository

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/charts"
)

// HC-12: what is packed is a repository that Helm reads, with the version of the release, and the same bytes each time.
func TestWrite(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := Write("..", dir, "v1.2.3", ""); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(first)
	if err != nil || len(files) != len(names)+1 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, file := range files {
		if read(t, first, file.Name()) != read(t, second, file.Name()) {
			t.Errorf("%s is different each time", file.Name())
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(first)))
	defer server.Close()
	for _, name := range names {
		loaded, err := charts.Load(charts.Reference{Repository: server.URL, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if loaded.Metadata.Version != "1.2.3" || loaded.Metadata.AppVersion != "v1.2.3" {
			t.Errorf("chart %s has version %s for images %s", name, loaded.Metadata.Version, loaded.Metadata.AppVersion)
		}
		packed := map[string]bool{}
		for _, file := range loaded.Raw {
			packed[file.Name] = true
		}
		for _, want := range []string{"README.md", "values.yaml", "values.schema.json", "templates/_helpers.tpl", "templates/NOTES.txt"} {
			if !packed[want] {
				t.Errorf("chart %s is packed without %s", name, want)
			}
		}
	}
}

// An index that is somewhere else than the archives names them by their URL.
func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write("..", dir, "", "https://charts.example.com/stable"); err != nil {
		t.Fatal(err)
	}
	if index := read(t, dir, "index.yaml"); !strings.Contains(index, "https://charts.example.com/stable/klusterlet-0.1.0-dev.tgz") {
		t.Error(index)
	}
	if err := Write("..", dir, "tomorrow", ""); err == nil || !strings.Contains(err.Error(), "tomorrow") {
		t.Errorf("a version that is none: %v", err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
