package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/controlplane/etcd"
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
		if err := f.run(t.Context(), io.Discard, []string{filepath.Join(f.configDir, "missing.backup")}, true); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with %q, restoring a missing file ends with %v", config, err)
		}
	}
}

// A hub on an external etcd, which is restored otherwise, is told to hold its works by the flag alone; all else is refused.
func TestHoldWorksOnAnExternalEtcd(t *testing.T) {
	t.Parallel()
	hold := restoreFlags{suspendWorks: true}
	const external = "etcd: {mode: external, servers: ['http://etcd.example.com:2379']}\n"
	for name, test := range map[string]struct {
		config  string
		args    []string
		flags   restoreFlags
		refusal string
	}{
		"the flag alone":             {config: external, flags: hold},
		"the flag and a file":        {config: external, args: []string{"hub.backup"}, flags: hold, refusal: "--hold-works without FILE"},
		"a file":                     {config: external, args: []string{"hub.backup"}, refusal: "etcdutl snapshot restore"},
		"nothing":                    {config: external, refusal: "etcdutl snapshot restore"},
		"the flag and an empty name": {config: external, args: []string{""}, flags: hold, refusal: "--hold-works without FILE"},
		"the flag and a passphrase": {
			config: external, flags: restoreFlags{suspendWorks: true, passphrase: "missing"}, refusal: "--passphrase-file missing: leave it out",
		},
		"the flag and a folder of an etcd": {
			config: external, flags: restoreFlags{suspendWorks: true, etcdDirectory: "etcd"},
			refusal: "--embedded-etcd-directory etcd: leave it out",
		},
		"the flag alone, and its own etcd": {flags: hold, refusal: "name a FILE"},
		"an empty name, and its own etcd":  {args: []string{""}, refusal: "name a FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := test.flags
			f.configDir = writeConfig(t, test.config)
			for range 2 { // who is not sure says it again
				var said strings.Builder
				err := f.run(t.Context(), &said, test.args, true)
				if test.refusal == "" && (err != nil || !strings.Contains(said.String(), "start it first")) {
					t.Errorf("it ends with %v and says %q", err, said.String())
				}
				if test.refusal != "" && (err == nil || !strings.Contains(err.Error(), test.refusal)) {
					t.Errorf("it ends with %v, want %q", err, test.refusal)
				}
			}
			_, err := os.Stat(backup.SuspendWorksFile(filepath.Join(f.configDir, "data")))
			if held := err == nil; held != (test.refusal == "") {
				t.Errorf("the hub is told to hold its works: %t, %v", held, err)
			}
		})
	}
}

// Who restores a hub that was held when it was backed up is told so, and how that ends, as is who checks the backup.
func TestRestoreOfAHeldHub(t *testing.T) {
	t.Parallel()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.Client().Put(t.Context(), "/registry/configmaps/open-cluster-management-hub/works-held", ""); err != nil {
		t.Fatal(err)
	}
	keys := t.TempDir()
	if err := os.WriteFile(filepath.Join(keys, "root-ca.key"), []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := &backup.Source{Prefix: "/registry", KeysDir: keys, Clock: clock.RealClock{},
		Snapshot: func() backup.Snapshot { return server.Snapshot() }}
	var content, checked, restored strings.Builder
	if err := source.Write(&content); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hub.backup")
	if err := os.WriteFile(file, []byte(content.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	err = checkBackup(t.Context(), &checked, file, "", "")
	if err != nil || !strings.Contains(checked.String(), "open-cluster-management-hub/works-held") {
		t.Errorf("checking it ends with %v and says %q", err, checked.String())
	}
	f := restoreFlags{configDir: writeConfig(t, "")}
	if err := f.run(t.Context(), &restored, []string{file}, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The hub of the backup held its works", "delete configmap works-held"} {
		if !strings.Contains(restored.String(), want) {
			t.Errorf("restoring it says %q, want %q", restored.String(), want)
		}
	}
	if strings.Contains(restored.String(), "agents undo") {
		t.Errorf("restoring it says %q", restored.String())
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
