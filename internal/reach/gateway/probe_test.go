package gateway_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/gateway"
)

// Certificates that have nothing to do with the cluster.
var otherCA, clientCert, clientKey = func() (ca, certificate, key []byte) {
	ca, key, err := cert.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		panic(err)
	}
	return ca, ca, key
}()

func TestProbe(t *testing.T) { // CG-03
	t.Parallel()
	var code atomic.Int32
	code.Store(http.StatusInternalServerError)
	f := setUp(t, gateway.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(int(code.Load()))
			_, _ = w.Write([]byte("etcd is slow\n"))
		}
	}))
	f.create(nil)
	f.awaitHealth("false", "answers GET /healthz with 500 Internal Server Error: etcd is slow")
	code.Store(http.StatusForbidden)
	f.gateway.TunnelChanged("c1")
	f.awaitHealth("true", "")
	code.Store(http.StatusUnauthorized)
	f.gateway.TunnelChanged("c1")
	f.awaitHealth("false", "does not accept the credential of the Secret")
	code.Store(http.StatusOK)
	f.update(func(s *corev1.Secret) { s.ResourceVersion = "9"; delete(s.Data, "ca.crt") })
	f.awaitHealth("true", "not verified: the Secret has no key ca.crt")
	f.update(func(s *corev1.Secret) { s.ResourceVersion = "10"; delete(s.Data, "token") })
	f.awaitHealth("false", "Secret credentials/c1: key token is missing; set it to")
}

// What is written of a cluster that is not reached is the same at each probe: without addresses and ports of connections.
func TestProbeReasonIsStable(t *testing.T) { // CG-03
	t.Parallel()
	f := setUp(t, gateway.Options{}, http.NotFoundHandler())
	f.cluster.Close()
	f.create(nil)
	f.awaitHealth("false", "cannot be reached: dial tcp: connect: connection refused;")
}

func (f *fixture) awaitHealth(healthy, reason string) {
	f.Helper()
	var last map[string]string
	f.eventually(reason, func() bool {
		secret, err := f.client.CoreV1().Secrets(namespace).Get(f.Context(), "c1", metav1.GetOptions{})
		if err != nil {
			f.Fatal(err)
		}
		last = secret.Annotations
		got := last[gatewayv1alpha1.AnnotationHealthyReason]
		return last[gatewayv1alpha1.AnnotationHealthy] == healthy && strings.Contains(got, reason) && (reason != "" || got == "")
	})
}
