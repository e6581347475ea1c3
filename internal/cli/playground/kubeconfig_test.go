package playground

import (
	"os"
	"path/filepath"
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
		if err := home.publish(name, component(t, server)); err != nil {
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
	if err := home.publish("hub", component(t, "https://new")); err != nil {
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

func TestPublishReplacesBrokenFile(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if err := WriteSecretFile(home.Kubeconfig(), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := home.publish("hub", component(t, "https://hub")); err != nil {
		t.Fatal(err)
	}
	if got := load(t, home.Kubeconfig()).Clusters["hub"].Server; got != "https://hub" {
		t.Errorf("server %s", got)
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
