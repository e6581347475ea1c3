package reach

import (
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// localProxy is the API of a cluster on this machine, for one kubectl: it adds to requests what kubectl has no flag for. Its port is any
// that is free; others on this machine may connect to it, and get nothing without the path, which nobody can guess.
type localProxy struct {
	server *http.Server
	url    string
}

// startLocalProxy has requests go to the address of a cluster with the token of an account there. It ends with close.
func startLocalProxy(hub *hubapi.Hub, address string, token *accountToken) (*localProxy, error) {
	transport, err := upgradableTransport(hub)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for kubectl on this machine: %w", err)
	}
	secret := "/" + rand.Text()
	proxy := &httputil.ReverseProxy{
		Transport:     accountTransport{transport, token},
		FlushInterval: -1, // watches and logs are read as they come
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the transport sends the credentials for the hub
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("the hub %s: %v", hub.Server, err), http.StatusBadGateway)
		},
	}
	const headerTimeout = 10 * time.Second
	server := &http.Server{Handler: http.StripPrefix(secret, asAccount(proxy)), ReadHeaderTimeout: headerTimeout, ErrorLog: proxy.ErrorLog}
	go func() { _ = server.Serve(listener) }()
	return &localProxy{server: server, url: "http://" + listener.Addr().String() + secret}, nil
}

// asAccount refuses requests that are to be of somebody else than the account: the hub would ask whether its user may be that, and the
// cluster would take them for requests of the account all the same.
func asAccount(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.Impersonates(r.Header) {
			http.Error(w, "--as: with --sa, requests are those of the ManagedServiceAccount, which impersonates nobody: leave out one of the two",
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *localProxy) close() { _ = p.server.Close() }

// kubeconfig leads to the proxy, without credentials.
func (p *localProxy) kubeconfig(cluster string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: p.url}
	config.AuthInfos[cluster] = clientcmdapi.NewAuthInfo()
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	return config
}

// upgradableTransport sends requests to the hub with its credentials, over HTTP/1.1, with which connections can be upgraded.
func upgradableTransport(hub *hubapi.Hub) (http.RoundTripper, error) {
	config := hub.Config()
	config.NextProtos = []string{"http/1.1"}
	return rest.TransportFor(config)
}
