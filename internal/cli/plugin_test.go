package cli_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// CA-02: programs in PATH whose names start with capstan- or clusteradm- are commands, unless there is one of that name.
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
	if got := clitest.Run(t.Context(), "in", "hello", "world", "--flag"); got.Out != "hello world --flag\nin" || got.Code != 3 {
		t.Errorf("%+v", got)
	}
	if got := clitest.Run(t.Context(), "", "hello", "big-news", "today"); got.Out != "big news today\n" || got.Code != 0 {
		t.Errorf("%+v", got)
	}
	clitest.Run(t.Context(), "", "version").Succeeds(t, "capstan\tversion")
	clitest.Run(t.Context(), "", "no-such-plugin").Fails(t, "unknown command")
	list := clitest.Run(t.Context(), "", "plugin", "list")
	list.Succeeds(t, "clusteradm-hello", "capstan-hello-big_news")
	if strings.Contains(list.Out, "unrelated") || !strings.Contains(list.ErrOut, `"capstan version" is a command of this program`) {
		t.Errorf("%+v", list)
	}
	t.Setenv("PATH", t.TempDir())
	clitest.Run(t.Context(), "", "plugin", "list").Fails(t, "no program in PATH")
}

// CA-02: signals reach a plugin, which decides how it ends; one that they end has the exit code that shells give it.
func TestPluginsGetSignals(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for name, test := range map[string]struct {
		trap string
		sent syscall.Signal
		says string
		code int
	}{
		"interrupt, cleans up":    {`trap 'echo cleaned; exit 7' INT TERM`, syscall.SIGINT, "cleaned", 7},
		"terminated, cleans up":   {`trap 'echo cleaned; exit 7' INT TERM`, syscall.SIGTERM, "cleaned", 7},
		"terminated, has no trap": {``, syscall.SIGTERM, "", 128 + int(syscall.SIGTERM)},
	} {
		t.Run(name, func(t *testing.T) {
			script := "#!/bin/sh\n" + test.trap + "\necho ready\nwhile true; do read x || sleep 0.01; done\n"
			if err := os.WriteFile(filepath.Join(dir, "capstan-waits"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			ctx, stop := signal.NotifyContext(t.Context(), test.sent) // as the program has it
			defer stop()
			in, input := io.Pipe()
			printed, out := io.Pipe()
			code := make(chan int, 1)
			go func() {
				ended := cli.Main(ctx, []string{"waits"}, in, out, io.Discard)
				_ = out.Close()
				code <- ended
			}()
			lines := bufio.NewScanner(printed)
			if !lines.Scan() || lines.Text() != "ready" {
				t.Fatalf("it says %q", lines.Text())
			}
			if err := syscall.Kill(os.Getpid(), test.sent); err != nil {
				t.Fatal(err)
			}
			if test.says != "" && (!lines.Scan() || lines.Text() != test.says) {
				t.Errorf("it says %q, want %q", lines.Text(), test.says)
			}
			_ = input.Close()
			if got := <-code; got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
		})
	}
}

// CA-02: the kubeconfig is shown without its secrets, and changed.
func TestConfig(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Run(t, "", "config", "current-context").Succeeds(t, "hub\n")
	h.Run(t, "", "config", "get-contexts").Succeeds(t, "CURRENT", "AUTHINFO", "*")
	h.Run(t, "", "config", "get-clusters").Succeeds(t, "NAME\nhub\n")
	h.Run(t, "", "config", "get-users").Succeeds(t, "NAME\nhub\n")
	view := h.Run(t, "", "config", "view", "--minify")
	view.Succeeds(t, "server: "+h.URL, "REDACTED")
	if strings.Contains(view.Out, "token: admin") {
		t.Errorf("it shows the secret:\n%s", view.Out)
	}
	h.Run(t, "", "config", "view", "--raw", "-o", "json").Succeeds(t, `"token":"admin"`)
	flattened, err := clientcmd.Load([]byte(h.Run(t, "", "config", "view", "--flatten", "--minify").Out))
	if err != nil || flattened.AuthInfos["hub"].Token != "admin" || !bytes.Equal(flattened.Clusters["hub"].CertificateAuthorityData, h.CA()) {
		t.Errorf("what is for elsewhere does not work there: %+v: %v", flattened, err)
	}
	h.Run(t, "", "config", "set-context", "second", "--cluster", "hub", "--user", "hub", "--dry-run").Succeeds(t, "would do this")
	h.Run(t, "", "config", "set-context", "second", "--cluster", "hub", "--user", "hub", "--namespace", "n").Succeeds(t, `Context "second" created.`)
	h.Run(t, "", "config", "use-context", "second").Succeeds(t, `Switched to context "second".`)
	h.Run(t, "", "config", "rename-context", "second", "other").Succeeds(t, `renamed to "other"`)
	h.Run(t, "", "config", "rename-context", "other", "hub").Fails(t, `context "hub" already`)
	h.Run(t, "", "config", "use-context", "second").Fails(t, `no context "second"`, "hub, other")
	config, err := clientcmd.LoadFromFile(h.File)
	if err != nil || config.CurrentContext != "other" || config.Contexts["other"].Namespace != "n" {
		t.Errorf("%+v: %v", config, err)
	}
	h.Run(t, "", "config", "set-context", "--current", "--namespace", "m").Succeeds(t, `Context "other" modified.`)
	h.Run(t, "", "config", "set-context").Fails(t, "--current")
	h.Run(t, "", "config", "delete-context", "other").Succeeds(t, "deleted context other")
	config.CurrentContext = ""
	if err := clientcmd.WriteToFile(*config, h.File); err != nil {
		t.Fatal(err)
	}
	unset := h.Run(t, "", "config", "current-context")
	unset.Fails(t, "has no current context: choose one of hub, other")
	h.Follow(t, unset, "config use-context", "use-context", "use-context hub").Succeeds(t)
	h.Run(t, "", "config", "current-context").Succeeds(t, "hub\n")
	h.Run(t, "", "options").Succeeds(t, "--kubeconfig", "--timeout")
}
