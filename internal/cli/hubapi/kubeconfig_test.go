package hubapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// writeKubeconfig writes a kubeconfig with contexts whose servers are https://<context>.<name of the file>.
func writeKubeconfig(t *testing.T, file, current string, contexts ...string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.CurrentContext = current
	for _, name := range contexts {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + "." + filepath.Base(file)}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "t"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// CA-01: which kubeconfig and context a command uses.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	named := writeKubeconfig(t, filepath.Join(dir, "named"), "a", "a", "b")
	env := writeKubeconfig(t, filepath.Join(dir, "env"), "a", "a")
	more := writeKubeconfig(t, filepath.Join(dir, "more"), "", "c")
	playground := writeKubeconfig(t, filepath.Join(dir, "playground"), "cluster1", "hub", "cluster1")
	standard := writeKubeconfig(t, filepath.Join(dir, ".kube", "config"), "a", "a", "prod")
	none := filepath.Join(dir, "none")
	empty := writeKubeconfig(t, filepath.Join(dir, "empty"), "")

	tests := map[string]struct {
		kubeconfig, env, playground, context string
		server                               string
		foreign                              bool // not counted as the playground's
		fails                                []string
	}{
		"the flag goes first":         {kubeconfig: named, env: env, playground: playground, server: "https://a.named"},
		"the flag with a context":     {kubeconfig: named, context: "b", server: "https://b.named"},
		"the flag is not passed over": {kubeconfig: named, context: "prod", fails: []string{named, `"prod"`, "a, b"}},
		"a missing file that was named": {kubeconfig: none, playground: playground,
			fails: []string{"--kubeconfig", none, "missing or empty"}},
		"a missing file of KUBECONFIG": {env: none, playground: playground,
			fails: []string{"KUBECONFIG: kubeconfig " + none, "capstan up"}},
		"an empty file that was named":          {kubeconfig: empty, fails: []string{empty, "missing or empty"}},
		"KUBECONFIG goes before the playground": {env: env, playground: playground, server: "https://a.env"},
		"KUBECONFIG may be a list":              {env: env + ":" + more, context: "c", server: "https://c.more"},
		"the playground, and its hub always":    {playground: playground, server: "https://hub.playground"},
		"the playground with a context":         {playground: playground, context: "cluster1", server: "https://cluster1.playground"},
		"a playground without the context":      {playground: playground, context: "prod", server: "https://prod.config"},
		"the playground by KUBECONFIG":          {env: playground, playground: playground, server: "https://hub.playground"},
		"the playground by the flag":            {kubeconfig: playground, playground: playground, server: "https://hub.playground"},
		"the playground and another by KUBECONFIG": {env: playground + ":" + more, playground: playground,
			server: "https://cluster1.playground", foreign: true},
		"no playground": {playground: none, server: "https://a.config"},
		"a context that is nowhere": {playground: playground, context: "gone",
			fails: []string{`"gone"`, playground, standard, "cluster1, hub, a, prod"}},
		"no current context in the file of the flag": {kubeconfig: more, fails: []string{more, "no current context", "c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", dir)
			t.Setenv("KUBECONFIG", test.env)
			target := hubapi.Target{Kubeconfig: test.kubeconfig, Context: test.context, Playground: test.playground}
			config, source, err := target.Resolve()
			if len(test.fails) > 0 {
				if err == nil {
					t.Fatalf("resolved to %s, want an error", config.Host)
				}
				for _, want := range test.fails {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q does not mention %q", err, want)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != test.server {
				t.Errorf("server %s by %s, want %s", config.Host, source, test.server)
			}
			if source.Playground != (strings.HasSuffix(test.server, ".playground") && !test.foreign) {
				t.Errorf("source %+v of %s", source, test.server)
			}
		})
	}
}

func TestResolveNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	_, _, err := hubapi.Target{Playground: filepath.Join(dir, "playground")}.Resolve()
	for _, want := range []string{"capstan up", "--kubeconfig", filepath.Join(dir, ".kube", "config")} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

func TestResolveBroken(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	file := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (hubapi.Target{Kubeconfig: file}).Resolve(); err == nil || !strings.Contains(err.Error(), file+" is broken") {
		t.Errorf("error %v does not say that %s is broken", err, file)
	}
}

func TestResolveUnreadable(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	folder := t.TempDir() // cannot be read as a file, whoever one is
	_, _, err := (hubapi.Target{Kubeconfig: folder}).Resolve()
	if err == nil || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("error %v", err)
	}
}

func TestContexts(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	file := writeKubeconfig(t, filepath.Join(t.TempDir(), "named"), "b", "b", "a")
	if got := strings.Join(hubapi.Target{Kubeconfig: file, Context: "typed so far"}.Contexts(), " "); got != "a b" {
		t.Errorf("contexts %q", got)
	}
}
