package install

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// Webhooks with the authority of the API server answer it alone, but for conversions, for which it shows no certificate.
func TestWebhooksAnswerTheAPIServer(t *testing.T) {
	t.Parallel()
	at := framework.Serving{Address: env.FreeAddress(t), CertDir: t.TempDir()}
	at.MakeCertificate(t)
	authority, shown := clientOf(t, framework.Hub)
	health := env.FreeAddress(t)
	webhooks := env.NewWebhooks(t, framework.Hub.Kubeconfig, at.Address, at.CertDir, "--health-probe-bind-address", health,
		"--client-ca-file", authority)
	if err := webhooks.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAnswer(t, "http://"+health+"/readyz", 200)
	const admits, converts = "/validate-cluster-open-cluster-management-io-v1-managedcluster", "/convert"
	for _, test := range []struct {
		path    string
		shown   []tls.Certificate
		refused bool
	}{
		{admits, nil, true},
		{admits, []tls.Certificate{shown}, false},
		{converts, nil, false},
	} {
		if code := post(t, "https://"+at.Address+test.path, test.shown); (code == http.StatusUnauthorized) != test.refused {
			t.Errorf("%s with %d certificates: %d", test.path, len(test.shown), code)
		}
	}
}

// clientOf is a client certificate, and a file with the authority that has signed it.
func clientOf(t *testing.T, server *env.Server) (authority string, certificate tls.Certificate) {
	t.Helper()
	admin, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	certificate, err = tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	authorities := &corev1.ConfigMap{}
	if err := server.Client(t).Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		authorities); err != nil {
		t.Fatal(err)
	}
	authority = filepath.Join(t.TempDir(), "ca.crt")
	env.ReplaceFile(t, authority, []byte(authorities.Data["client-ca-file"]))
	return authority, certificate
}

// post is the status that an empty review is answered with.
func post(t *testing.T, url string, shown []tls.Certificate) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: shown, InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}
