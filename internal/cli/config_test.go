package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// What another command adds to the kubeconfig while one changes it stays there.
func TestConfigKeepsWhatOthersAdd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	add := func(name string) {
		config, err := clientcmd.LoadFromFile(file)
		if err != nil {
			config = clientcmdapi.NewConfig()
		}
		config.Contexts[name] = clientcmdapi.NewContext()
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Error(err)
		}
	}
	add("first")
	var out bytes.Buffer
	k := &kubeconfig{options.New(nil, &out, &out)}
	k.Kubeconfig, k.Clock = file, clocktesting.NewFakeClock(time.Now())
	attempts := 0
	err := k.change(t.Context(), func(config *clientcmdapi.Config) (string, error) {
		if attempts++; attempts == 1 {
			add("meanwhile")
		}
		config.CurrentContext = "first"
		return "done", nil
	})
	config, readErr := clientcmd.LoadFromFile(file)
	if err != nil || readErr != nil || out.String() != "done\n" {
		t.Fatalf("%v, %v: %q", err, readErr, out.String())
	}
	if config.CurrentContext != "first" || len(config.Contexts) != 2 || config.Contexts["meanwhile"] == nil {
		t.Errorf("%+v", config)
	}
}

// waiting is a clock by which something happens while a command waits.
type waiting struct {
	*clocktesting.FakeClock
	meanwhile func()
}

// Sleep implements clock.Clock.
func (w waiting) Sleep(time.Duration) { w.meanwhile() }

// A kubeconfig that another command is writing is read again: for a moment, it is empty, or half of it is there.
func TestConfigReadsAgainWhatIsHalfWritten(t *testing.T) {
	t.Parallel()
	const nothing, half = "", "apiVersion: v1\nkind: Config\ncontexts: ["
	for name, test := range map[string]struct {
		content string
		locked  bool
		written bool // before the command has seen that it has read too early
		fails   string
	}{
		"empty, and locked":          {content: nothing, locked: true},
		"half, and locked":           {content: half, locked: true},
		"empty, and written at once": {content: nothing, written: true},
		"empty, and stays so":        {content: nothing, fails: "no context"},
		"half, and stays so":         {content: half, fails: "kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "kubeconfig")
			lock := file + ".lock"
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if test.locked {
				if err := os.WriteFile(lock, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			written := func() {
				config := clientcmdapi.NewConfig()
				config.Contexts["first"] = clientcmdapi.NewContext()
				if err := clientcmd.WriteToFile(*config, file); err != nil {
					t.Error(err)
				}
				_ = os.Remove(lock) // if it is there
			}
			var out bytes.Buffer
			k := &kubeconfig{options.New(nil, &out, &out)}
			k.Kubeconfig, k.Clock = file, waiting{clocktesting.NewFakeClock(time.Now()), func() {
				if test.locked {
					written()
				}
			}}
			err := k.change(t.Context(), func(config *clientcmdapi.Config) (string, error) {
				if config.Contexts["first"] == nil {
					if test.written {
						written()
					}
					return "", errors.New("no context")
				}
				config.CurrentContext = "first"
				return "done", nil
			})
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want %q", err, test.fails)
				}
				return
			}
			if config, readErr := clientcmd.LoadFromFile(file); err != nil || readErr != nil || config.CurrentContext != "first" {
				t.Errorf("%v, %v: %+v", err, readErr, config)
			}
		})
	}
}

// Who waits for another command can be interrupted.
func TestConfigIsInterrupted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	k := &kubeconfig{options.New(nil, &out, &out)}
	k.Kubeconfig, k.Clock = file, waiting{clocktesting.NewFakeClock(time.Now()), cancel}
	err := k.change(ctx, func(*clientcmdapi.Config) (string, error) { return "", errors.New("no context") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
