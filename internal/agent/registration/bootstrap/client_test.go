package bootstrap

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// An attempt to register leaves no connection behind, of which a hub with many agents would have as many more.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 1)
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	hub.EnableHTTP2 = true
	hub.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	hub.StartTLS()
	t.Cleanup(hub.Close)
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})
	config := &rest.Config{Host: hub.URL, Proxy: http.ProxyURL(nil), TLSClientConfig: rest.TLSClientConfig{CAData: trusted}}
	c, closeIdle, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "c1"}, &clusterv1.ManagedCluster{}); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	closeIdle()
	<-closed
}
