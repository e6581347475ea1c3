package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// CA-02: programs in PATH whose names begin with capstan- or clusteradm- are commands, unless there is one of that name.
func TestPlugins(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"clusteradm-hello":       "echo hello $*; cat; exit 3",
		"capstan-hello-big_news": "echo big news $*",
		"capstan-version":        "echo never",
		"unrelated":              "echo never",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+content+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if got := run(t.Context(), "in", "hello", "world", "--flag"); got.out != "hello world --flag\nin" || got.code != 3 {
		t.Errorf("%+v", got)
	}
	if got := run(t.Context(), "", "hello", "big-news", "today"); got.out != "big news today\n" || got.code != 0 {
		t.Errorf("%+v", got)
	}
	run(t.Context(), "", "version").succeeds(t, "capstan\tversion")
	run(t.Context(), "", "no-such-plugin").fails(t, "unknown command")
	list := run(t.Context(), "", "plugin", "list")
	list.succeeds(t, "clusteradm-hello", "capstan-hello-big_news")
	if strings.Contains(list.out, "unrelated") || !strings.Contains(list.errOut, `"capstan version" is a command of this program`) {
		t.Errorf("%+v", list)
	}
	t.Setenv("PATH", t.TempDir())
	run(t.Context(), "", "plugin", "list").fails(t, "no program in PATH")
}

// CA-02: the kubeconfig is shown without its secrets, and changed.
func TestConfig(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.run(t, "", "config", "current-context").succeeds(t, "hub\n")
	h.run(t, "", "config", "get-contexts").succeeds(t, "CURRENT", "AUTHINFO", "*")
	h.run(t, "", "config", "get-clusters").succeeds(t, "NAME\nhub\n")
	h.run(t, "", "config", "get-users").succeeds(t, "NAME\nhub\n")
	view := h.run(t, "", "config", "view", "--minify")
	view.succeeds(t, "server: "+h.URL, "REDACTED")
	if strings.Contains(view.out, "token: admin") {
		t.Errorf("it shows the secret:\n%s", view.out)
	}
	h.run(t, "", "config", "view", "--raw", "-o", "json").succeeds(t, `"token":"admin"`)
	h.run(t, "", "config", "set-context", "second", "--cluster", "hub", "--user", "hub", "--dry-run").succeeds(t, "would do this")
	h.run(t, "", "config", "set-context", "second", "--cluster", "hub", "--user", "hub", "--namespace", "n").succeeds(t, `Context "second" created.`)
	h.run(t, "", "config", "use-context", "second").succeeds(t, `Switched to context "second".`)
	h.run(t, "", "config", "rename-context", "second", "other").succeeds(t, `renamed to "other"`)
	h.run(t, "", "config", "rename-context", "other", "hub").fails(t, `context "hub" already`)
	h.run(t, "", "config", "use-context", "second").fails(t, `no context "second"`, "hub, other")
	config, err := clientcmd.LoadFromFile(h.kubeconfig)
	if err != nil || config.CurrentContext != "other" || config.Contexts["other"].Namespace != "n" {
		t.Errorf("%+v: %v", config, err)
	}
	h.run(t, "", "config", "set-context", "--current", "--namespace", "m").succeeds(t, `Context "other" modified.`)
	h.run(t, "", "config", "set-context").fails(t, "--current")
	h.run(t, "", "config", "delete-context", "other").succeeds(t, "deleted context other")
	h.run(t, "", "options").succeeds(t, "--kubeconfig", "--timeout")
}
