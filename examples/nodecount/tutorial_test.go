package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tutorial shows the files of this folder as they are.
func TestTutorial(t *testing.T) {
	t.Parallel()
	tutorial, err := os.ReadFile("../../docs/writing-add-ons.md")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == "tutorial_test.go" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		block := "\n`" + path + "`:\n\n```" + strings.TrimPrefix(filepath.Ext(path), ".") + "\n" + string(content) + "```\n"
		if !strings.Contains(string(tutorial), block) {
			t.Errorf("docs/writing-add-ons.md does not show %s as it is", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
