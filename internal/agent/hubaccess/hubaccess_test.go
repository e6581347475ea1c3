package hubaccess

import (
	"errors"
	"net"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// RG-10: an agent connects to its hub by itself, or by the proxy of the kubeconfig.
func TestDial(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	config := clientcmdapi.NewConfig()
	hub := &clientcmdapi.Cluster{Server: "https://" + listener.Addr().String()}
	config.Clusters[hubName] = hub
	config.AuthInfos[fleet.KubeconfigUser] = clientcmdapi.NewAuthInfo()
	config.Contexts[fleet.KubeconfigContext] = &clientcmdapi.Context{Cluster: hubName, AuthInfo: fleet.KubeconfigUser}
	config.CurrentContext = fleet.KubeconfigContext
	direct, err := API.Connect(t.Context(), config, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if direct.Dial == nil {
		t.Fatal("it is left to client-go, which tries the addresses of a hub one after the other")
	}
	conn, err := direct.Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	hub.ProxyURL = "https://" + listener.Addr().String()
	_ = listener.Close()
	proxied, err := API.Connect(t.Context(), config, "c1")
	if err != nil {
		t.Fatal(err)
	}
	var ofProxy *forwardproxy.Error
	if _, err := proxied.Dial(t.Context(), "tcp", "hub.invalid:6443"); !errors.As(err, &ofProxy) {
		t.Errorf("it does not go through the proxy: %v", err)
	}
}
