package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A sandbox takes no directory that is something else's, and changes nothing in it.
func TestDirectoryOfSomethingElse(t *testing.T) {
	t.Parallel()
	for names, taken := range map[string]bool{
		"":                                true,
		"lost+found":                      true, // an empty disk
		"lock":                            true, // of starts that were killed
		"lock port log":                   true,
		"lock port pki":                   true,
		"lock port pki .kubeconfig":       true,
		"kubeconfig lock log port pki":    true,
		"etcd kubeconfig notes.txt pki":   true,
		"sandbox.log":                     true, // what the program prints
		"kubeconfig":                      false,
		"kubeconfig lock port":            false,
		"lost+found notes.txt":            false,
		"Makefile go.mod kubeconfig main": false,
	} {
		dir := t.TempDir()
		for _, name := range strings.Fields(names) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkDir(dir); (err == nil) != taken {
			t.Errorf("%q: %v", names, err)
		}
		if taken {
			continue
		}
		if _, err := Start(t.Context(), Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "choose another --data-dir") {
			t.Errorf("%q: start: %v", names, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != len(strings.Fields(names)) {
			t.Errorf("%q: left is %v, %v", names, left, err)
		}
		for _, name := range strings.Fields(names) {
			if content, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(content) != "mine" {
				t.Errorf("%q: %s holds %q, %v", names, name, content, err)
			}
		}
	}
	if err := checkDir(filepath.Join(t.TempDir(), "new")); err != nil {
		t.Errorf("a directory that is missing: %v", err)
	}
}
