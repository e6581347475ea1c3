package play

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// CA-01: the commands that "up" prints are for the hub of the playground, wherever KUBECONFIG leads.
func TestPrintedCommandsAreForThePlayground(t *testing.T) {
	dir := t.TempDir()
	home := playground.Home{Dir: filepath.Join(dir, "home of mine")}
	own, missing := filepath.Join(dir, "own"), filepath.Join(dir, "missing")
	for file, context := range map[string]string{home.Kubeconfig(): hubapi.PlaygroundContext, own: "prod"} {
		config := clientcmdapi.NewConfig()
		config.Clusters[context] = &clientcmdapi.Cluster{Server: "https://" + context}
		config.Contexts[context] = &clientcmdapi.Context{Cluster: context}
		config.CurrentContext = context
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", dir)
	for variable, named := range map[string]bool{
		"":                              false,
		home.Kubeconfig():               false,
		own:                             true,
		missing:                         true,
		home.Kubeconfig() + ":" + own:   true,
		own + ":" + home.Kubeconfig():   true,
		":" + home.Kubeconfig() + "::":  false,
		home.Dir + "/../" + "own" + ":": true,
	} {
		t.Setenv("KUBECONFIG", variable)
		var out bytes.Buffer
		c := &upCommand{Global: options.New(strings.NewReader(""), &out, &out), home: home}
		status := playground.Status{Kubeconfig: home.Kubeconfig(), Contexts: []string{hubapi.PlaygroundContext, "cluster1"}}
		if err := c.printUp(status); err != nil {
			t.Fatal(err)
		}
		flag := ""
		if named {
			flag = " --kubeconfig '" + home.Kubeconfig() + "'"
		}
		for _, command := range []string{"  capstan get works", " | capstan create work demo -f - --clusters cluster1"} {
			if !strings.Contains(out.String(), command+flag+"\n") {
				t.Errorf("KUBECONFIG=%s: %q with %q is not in:\n%s", variable, command, flag, out.String())
			}
		}
	}
}
