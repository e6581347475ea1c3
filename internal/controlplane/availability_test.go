package controlplane

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// The server of an aggregated API sends nobody elsewhere with the identity of the aggregator.
func TestProbeFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s is asked with the groups %q", r.URL, r.Header["X-Remote-Group"])
	}))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL+"/api/v1/secrets", http.StatusFound))
	defer server.Close()
	a := &availability{
		services:  &serviceResolver{addresses: map[string]string{"default/things": server.Listener.Addr().String()}},
		proxyCert: func() (tls.Certificate, error) { return tls.Certificate{}, nil },
	}
	err := a.probe(t.Context(), &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
		Group: "things.test", Version: "v1", InsecureSkipTLSVerify: true,
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "things", Port: ptr.To[int32](443)},
	}})
	if err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("error %v, want one with the status of the redirect", err)
	}
}
