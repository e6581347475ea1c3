package restart

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// volume is a folder as kubelet makes it of a Secret: its files are links into a folder that is exchanged as a whole.
func volume(t *testing.T, contents map[string]string) (dir string, exchange func(map[string]string)) {
	t.Helper()
	dir = t.TempDir()
	versions := 0
	exchange = func(contents map[string]string) {
		t.Helper()
		versions++
		version := filepath.Join(dir, "..version-"+string(rune('0'+versions)))
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range contents {
			write(t, filepath.Join(version, name), content)
		}
		next := filepath.Join(dir, "..next")
		if err := errors.Join(os.Symlink(filepath.Base(version), next), os.Rename(next, filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	exchange(contents)
	for name := range contents {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, exchange
}

func await(t *testing.T, ended chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return nil
	}
}

// AF-22: a new address of the hub reaches the agent, and a new certificate does not disturb it.
func TestVolume(t *testing.T) {
	t.Parallel()
	dir, exchange := volume(t, map[string]string{"kubeconfig": "one", "tls.crt": "one"})
	kubeconfig := filepath.Join(dir, "kubeconfig")
	w, err := OnChange(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Start(t.Context()) }()
	exchange(map[string]string{"kubeconfig": "one", "tls.crt": "two"})
	if file := w.changed(); file != "" {
		t.Errorf("with another certificate, %s has changed", file)
	}
	exchange(map[string]string{"kubeconfig": "two", "tls.crt": "two"})
	if err := await(t, ended); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), kubeconfig) {
		t.Error(err)
	}
}

// What happens before it is started counts, too, and a file may be written in steps.
func TestFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, "one")
	w, err := OnChange(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, "two")
	ended := make(chan error, 1)
	go func() { ended <- w.Start(t.Context()) }()
	if err := await(t, ended); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	for _, file := range []string{filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "no", "kubeconfig")} {
		if _, err := OnChange(file); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, "one")
	w, err := OnChange(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Start(ctx); err != nil {
		t.Error(err)
	}
}
