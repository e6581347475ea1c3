package playground

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// component writes a kubeconfig as the hub does: with names of its own, and files instead of data.
func component(t *testing.T, server string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("ca of "+server), 0o600); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["own"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: "ca.crt"}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: "token of " + server}
	config.Contexts["own"] = &clientcmdapi.Context{Cluster: "own", AuthInfo: "user", Namespace: "elsewhere"}
	config.CurrentContext = "own"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func load(t *testing.T, file string) *clientcmdapi.Config {
	t.Helper()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestPublish(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for name, server := range map[string]string{"cluster1": "https://one", "hub": "https://old"} {
		if err := home.publish(name, component(t, server), &recorder{}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(home.Kubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, error %v, want mode 0600", info, err)
	}
	config := load(t, home.Kubeconfig())
	if config.CurrentContext != "hub" {
		t.Errorf("current context %q, want hub", config.CurrentContext)
	}

	// A person adds a context and switches; the hub changes.
	config.Contexts["mine"] = &clientcmdapi.Context{Cluster: "cluster1", AuthInfo: "cluster1", Namespace: "n"}
	config.CurrentContext = "mine"
	if err := clientcmd.WriteToFile(*config, home.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := home.publish("hub", component(t, "https://new"), &recorder{}); err != nil {
		t.Fatal(err)
	}
	config = load(t, home.Kubeconfig())
	if config.CurrentContext != "mine" || config.Contexts["mine"] == nil {
		t.Errorf("what a person did is gone: current context %q", config.CurrentContext)
	}
	for context, server := range map[string]string{"hub": "https://new", "cluster1": "https://one"} {
		entry := config.Contexts[context]
		if entry == nil {
			t.Fatalf("no context %s", context)
		}
		cluster, user := config.Clusters[entry.Cluster], config.AuthInfos[entry.AuthInfo]
		if cluster.Server != server || string(cluster.CertificateAuthorityData) != "ca of "+server || user.Token != "token of "+server {
			t.Errorf("context %s leads to %+v as %+v", context, cluster, user)
		}
	}
}

// A file that is broken, as by a person who edits it, is kept under another name; one that cannot be read stays.
func TestBrokenKubeconfig(t *testing.T) {
	t.Parallel()
	const broken = "contexts: ["
	for name, change := range map[string]func(home Home, report Reporter) error{
		"publish": func(home Home, report Reporter) error {
			return home.publish("hub", component(t, "https://hub"), report)
		},
		"purge": func(home Home, report Reporter) error { return home.purge(report) },
	} {
		home, report := newHome(t), &recorder{}
		if err := WriteSecretFile(home.Kubeconfig(), []byte(broken)); err != nil {
			t.Fatal(err)
		}
		if err := change(home, report); err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(home.Kubeconfig() + ".broken"); err != nil || string(kept) != broken {
			t.Errorf("%s: it has kept %q, error %v", name, kept, err)
		}
		if len(report.warnings) != 1 || !strings.Contains(report.warnings[0], home.Kubeconfig()+".broken") {
			t.Errorf("%s: warnings %q", name, report.warnings)
		}
		if name == "publish" && load(t, home.Kubeconfig()).Clusters["hub"].Server != "https://hub" {
			t.Error("nothing is published")
		}

		home, report = newHome(t), &recorder{}
		makeFolder(t, home.Kubeconfig()) // cannot be read as a file
		if err := change(home, report); err == nil || len(report.warnings) > 0 {
			t.Errorf("%s, where it cannot be read: error %v, warnings %q", name, err, report.warnings)
		}
	}
}

// CA-17: what an agent joins with is for its owner's eyes only.
func TestWriteBootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	agent := home.Agent(Member{Name: "c"})
	if err := agent.writeBootstrapKubeconfig(hubapi.Invitation{Server: "https://hub", Token: "secret"}, hubapi.Trust{}); err != nil {
		t.Fatal(err)
	}
	file := agent.bootstrapKubeconfig()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("bootstrap kubeconfig: %v, error %v, want mode 0600", info, err)
	}
	if got := load(t, file).AuthInfos["bootstrap"].Token; got != "secret" {
		t.Errorf("token %q", got)
	}
}
