package main

import (
	"context"
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
		if err := f.run(t.Context(), io.Discard, filepath.Join(f.configDir, "missing.backup"), true); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with %q, restoring a missing file ends with %v", config, err)
		}
	}
}

// A check that is interrupted ends, and leaves none of the files of the backup.
func TestInterruptedCheck(t *testing.T) {
	temporary, file := t.TempDir(), filepath.Join(t.TempDir(), "hub.backup")
	t.Setenv("TMPDIR", temporary)
	if err := os.WriteFile(file, []byte("a backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := checkBackup(ctx, io.Discard, file, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if entries, err := os.ReadDir(temporary); err != nil || len(entries) != 0 {
		t.Errorf("it leaves %v, %v", entries, err)
	}
}
