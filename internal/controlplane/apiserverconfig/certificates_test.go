package apiserverconfig

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a new certificate and its key, and returns them.
func put(t *testing.T, certFile, keyFile string) (cert, key []byte) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("hub", nil, nil)
	must(t, err)
	must(t, os.WriteFile(keyFile, key, 0o600))
	must(t, os.WriteFile(certFile, cert, 0o600))
	return cert, key
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// SC-06: whoever verifies or serves takes over what the files say next, and keeps what was there when they make no sense.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"serving", "client-ca", "header-ca"} {
		put(t, file(name+".crt"), file(name+".key"))
	}
	clientCA, err := NewCABundle("client-ca", file("client-ca.crt"))
	must(t, err)
	headers, err := dynamiccertificates.NewDynamicCAContentFromFile("request-header", file("header-ca.crt"))
	must(t, err)
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", file("serving.crt"), file("serving.key"))
	must(t, err)
	server := &genericapiserver.Config{SecureServing: &genericapiserver.SecureServingInfo{Cert: serving}}
	server.Authentication.RequestHeaderConfig = &authenticatorfactory.RequestHeaderConfig{CAContentProvider: headers}
	published := &clusterauthenticationtrust.ClusterAuthenticationInfo{}
	must(t, Follow(server, published, clientCA, Files{ServingCert: file("serving.crt"), ServingKey: file("serving.key"),
		RequestHeaderCA: file("header-ca.crt")}))
	for _, content := range []any{server.SecureServing.Cert, server.SecureServing.ClientCA, published.ClientCA, published.RequestHeaderCA} {
		runner, ok := content.(dynamiccertificates.ControllerRunner)
		if !ok {
			t.Fatalf("a %T does not run", content)
		}
		go runner.Run(t.Context(), 1)
	}

	cert, key := put(t, file("serving.crt"), file("serving.key"))
	eventually(t, "the serving certificate", func() bool {
		c, k := server.SecureServing.Cert.CurrentCertKeyContent()
		return bytes.Equal(c, cert) && bytes.Equal(k, key)
	})
	client, _ := put(t, file("client-ca.crt"), file("client-ca.key"))
	eventually(t, "the CA of clients", func() bool {
		return bytes.Equal(published.ClientCA.CurrentCABundleContent(), client) &&
			bytes.Contains(server.SecureServing.ClientCA.CurrentCABundleContent(), bytes.TrimSpace(client))
	})
	header, _ := put(t, file("header-ca.crt"), file("header-ca.key"))
	eventually(t, "the CA of request headers, where the authenticator has it",
		func() bool { return bytes.Equal(headers.CurrentCABundleContent(), header) })

	must(t, os.WriteFile(file("client-ca.crt"), []byte("nonsense"), 0o600))
	if err := clientCA.RunOnce(t.Context()); err == nil {
		t.Error("nonsense was taken over")
	}
	if !bytes.Equal(clientCA.CurrentCABundleContent(), client) {
		t.Error("nonsense took the place of a CA")
	}
}
