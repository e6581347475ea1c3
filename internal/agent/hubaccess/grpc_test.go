package hubaccess

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// RG-51: what a bootstrap configuration says of the hub is in the configuration of the credential, with the paths of the certificate there
// and without the token.
func TestGRPCRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	content := "url: hub.example.com:8090\ncaFile: ca.crt\ntoken: secret\nserverHealthinessTimeout: 20s\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	access := GRPC("")
	config, err := access.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	hub, user, err := current(config)
	if err != nil || hub.CertificateAuthority != filepath.Join(dir, "ca.crt") || user.Token != "secret" {
		t.Fatalf("%+v %+v: %v", hub, user, err)
	}
	hub.CertificateAuthority, hub.CertificateAuthorityData = "", []byte("ca")
	config.AuthInfos = nil
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := access.Encode(kubeconfig, "/spoke/hub-kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"url: hub.example.com:8090", "caData: Y2E=", "clientCertFile: /spoke/hub-kubeconfig/tls.crt",
		"clientKeyFile: /spoke/hub-kubeconfig/tls.key", "serverHealthinessTimeout: 20s"} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("there is no %q in\n%s", want, encoded)
		}
	}
	if strings.Contains(string(encoded), "token") {
		t.Errorf("there is a token in\n%s", encoded)
	}
	decoded, err := access.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	again, err := clientcmd.Load(decoded)
	if err != nil {
		t.Fatal(err)
	}
	hub, user, err = current(again)
	if err != nil || hub.Server != "https://hub.example.com:8090" || string(hub.CertificateAuthorityData) != "ca" || user.ClientCertificate != "tls.crt" {
		t.Errorf("%+v %+v: %v", hub, user, err)
	}
	if f, err := fileOf(again); err != nil || f.ServerHealthinessTimeout == nil {
		t.Errorf("%+v: %v", f, err)
	}
}

func TestGRPCRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("token: a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := GRPC("").Load(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "url") {
		t.Errorf("got %v", err)
	}
}
