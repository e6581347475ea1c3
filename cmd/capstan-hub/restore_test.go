package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// writeConfig writes a configuration with a data directory beside it, and returns the folder.
func writeConfig(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	content := "dataDirectory: " + filepath.Join(dir, "data") + "\n" + more
	if err := os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A hub is restored with the configuration that it has in a cluster, where its URLs may have no port, wherever the command runs.
func TestRestoreWithAnyPort(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"", "apiserver: {port: 0}\n", "apiserver: {port: 443}\n"} {
		f := restoreFlags{configDir: writeConfig(t, config)}
		if err := f.run(io.Discard, filepath.Join(f.configDir, "missing.backup"), true); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with %q, restoring a missing file ends with %v", config, err)
		}
	}
}
