package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is another one after each write, with the mode that is asked for, and nothing is left beside it.
func TestWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	var before os.FileInfo
	for _, mode := range []os.FileMode{0o644, 0o600, 0o644} {
		if err := Write(file, []byte(mode.String()), mode); err != nil {
			t.Fatal(err)
		}
		now := stat(t, file)
		if content, err := os.ReadFile(file); err != nil || string(content) != mode.String() || now.Mode() != mode || os.SameFile(before, now) {
			t.Errorf("%q with mode %s, %v; want a new file with mode %s", content, now.Mode(), err, mode)
		}
		before = now
	}
	if err := Write(filepath.Join(file, "below"), nil, 0o600); err == nil {
		t.Error("a file is written into a file")
	}
	expectAlone(t, file)
}

// What cannot become the file is removed.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(folder, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(folder, []byte("content"), 0o600); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("a folder is replaced by a file: %v", err)
	}
	expectAlone(t, folder)
}

func TestWriteSecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	var before os.FileInfo
	for _, test := range []struct {
		content string
		stays   bool
	}{{content: "one"}, {content: "one", stays: true}, {content: "two"}} {
		if err := WriteSecret(file, []byte(test.content)); err != nil {
			t.Fatal(err)
		}
		now := stat(t, file)
		content, err := os.ReadFile(file)
		if err != nil || string(content) != test.content || now.Mode() != 0o600 || os.SameFile(before, now) != test.stays {
			t.Errorf("%q with mode %s, %v; want %q, the same file: %t", content, now.Mode(), err, test.content, test.stays)
		}
		before = now
	}
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func expectAlone(t *testing.T, file string) {
	t.Helper()
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("files %v, error %v: want the one file", entries, err)
	}
}
