package options_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// A link and a pipe stay what they are, and the content arrives where they lead.
func TestOutputFileStaysWhatItIs(t *testing.T) {
	t.Parallel()
	regular := func(path string) error { return os.WriteFile(path, []byte("what was there before"), 0o600) }
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	linkTo := func(put func(path string) error) func(path string) error {
		return func(path string) error { return errors.Join(put(path+".target"), os.Symlink(path+".target", path)) }
	}
	for name, put := range map[string]func(path string) error{
		"a regular file":   regular,
		"a link":           linkTo(regular),
		"a link to a link": linkTo(linkTo(regular)),
		"a pipe":           pipe,
		"a link to a pipe": linkTo(pipe),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "out")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			before := typesOf(t, filepath.Dir(path))
			reader, err := os.OpenFile(path, os.O_RDWR, 0) // which waits for no writer
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			file := options.OutputFile{Flag: "--output-file", Path: path, Mode: 0o700}
			if err := errors.Join(file.Check(), file.Write([]byte("content"))); err != nil {
				t.Fatal(err)
			}
			if after := typesOf(t, filepath.Dir(path)); after != before {
				t.Fatalf("files %s, want %s", after, before)
			}
			if file.InPlace() {
				content := make([]byte, len("content"))
				if _, err := io.ReadFull(reader, content); err != nil || string(content) != "content" {
					t.Errorf("%q arrived, error %v", content, err)
				}
				return
			}
			content, err := os.ReadFile(path)
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil || string(content) != "content" || info.Mode().Perm() != 0o700 {
				t.Errorf("content %q, %v, errors %v, %v", content, info, err, statErr)
			}
		})
	}
}

// typesOf are the files in a folder with their types.
func typesOf(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, entry := range entries {
		types = append(types, entry.Name()+" "+entry.Type().String())
	}
	return strings.Join(types, ", ")
}

// What cannot be written is known before anything is done, and looking leaves nothing behind.
func TestOutputFileCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "dangling")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("gone", dangling)); err != nil {
		t.Fatal(err)
	}
	before := typesOf(t, dir)
	for path, says := range map[string]string{
		"":                            "",
		filepath.Join(dir, "new"):     "",
		file:                          "",
		os.DevNull:                    "",
		filepath.Join(dir, "no", "x"): "there is no folder " + filepath.Join(dir, "no"),
		filepath.Join(file, "x"):      "there is no folder " + file,
		dir:                           "is a folder",
		dangling:                      "is a link to gone",
	} {
		err := options.CheckOutputFile(path)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), "--output-file: ") ||
			!strings.Contains(err.Error(), says)) {
			t.Errorf("%q: error %v, want %q", path, err, says)
		}
	}
	if after := typesOf(t, dir); after != before {
		t.Errorf("files %s, want %s", after, before)
	}
}
