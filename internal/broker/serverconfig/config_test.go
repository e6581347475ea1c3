package serverconfig

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"
)

func write(t *testing.T, file, content string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// GR-02: without a file there are defaults, and a file changes what it names.
func TestRead(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", filepath.Join(t.TempDir(), "none")} {
		config, err := Read(file)
		if err != nil || config != Default() || config.Validate() != nil {
			t.Errorf("%q: %+v, %v, %v", file, config, err, config.Validate())
		}
	}
	config, err := Read(write(t, filepath.Join(t.TempDir(), "config.yaml"), `
server_bind_port: "9090"
max_concurrent_streams: 5
connection_timeout: 3s
client_ca_file: /ca.crt
permit_ping_without_stream: true
`))
	want := Default()
	want.ServerBindPort, want.MaxConcurrentStreams, want.ClientCAFile, want.PermitPingWithoutStream = "9090", 5, "/ca.crt", true
	want.ConnectionTimeout.Duration = 3 * time.Second
	if err != nil || config != want || config.Address() != ":9090" || len(config.ServerOptions()) == 0 {
		t.Errorf("got %+v, %v; want %+v", config, err, want)
	}
}

// GR-02: what the file has wrong is named.
func TestRefuse(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"port: 1":                       "port",
		"server_bind_port: \"0\"":       `server_bind_port is "0"`,
		"server_bind_port: \"x\"":       `server_bind_port is "x"`,
		"max_concurrent_streams: 0":     "max_concurrent_streams is 0",
		"max_receive_message_size: -1":  "max_receive_message_size is -1",
		"read_buffer_size: -1":          "read_buffer_size is -1",
		"connection_timeout: 0s":        "connection_timeout is 0s",
		"server_ping_interval: soon":    "soon",
		"cert_watch_interval: 30s":      "cert_watch_interval is 30s, want more than 30s",
		"tls_min_version: \"1.2\"":      "tls_min_version",
		"tls_min_version: VersionTLS11": "tls_min_version is VersionTLS11 and tls_max_version VersionTLS13, want at least VersionTLS12",
		"tls_max_version: VersionTLS9":  "tls_max_version",
		"cipher_suites: FOO":            "cipher_suites",
		"client_ca_file: \"\"":          "client_ca_file",
		"tls_max_version: VersionTLS12\ntls_min_version: VersionTLS13": "tls_min_version is VersionTLS13 and tls_max_version VersionTLS12",
	} {
		config, err := Read(write(t, filepath.Join(t.TempDir(), "config.yaml"), content))
		if err == nil {
			err = config.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

// GR-02: a new serving certificate and new client CAs count without a restart, and files that make no sense leave the old ones.
func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := Default()
	config.TLSCertFile, config.TLSKeyFile, config.ClientCAFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"),
		filepath.Join(dir, "ca.crt")
	generate := func(host string) string {
		t.Helper()
		certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(t, config.TLSCertFile, string(certificate))
		write(t, config.TLSKeyFile, string(key))
		return string(certificate)
	}
	first := generate("one")
	if _, err := config.Certificates(); err == nil || !strings.Contains(err.Error(), "client_ca_file") {
		t.Errorf("without client CAs: %v", err)
	}
	write(t, config.ClientCAFile, first)
	certificates, err := config.Certificates()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		_ = certificates.Start(t.Context())
	}()
	serving := certificates.TLS()
	if serving.ClientAuth != tls.VerifyClientCertIfGiven || serving.MinVersion != tls.VersionTLS12 {
		t.Errorf("client auth %v, TLS %x", serving.ClientAuth, serving.MinVersion)
	}
	before := certificates.ClientCAs()
	write(t, config.ClientCAFile, "nonsense")
	if now := certificates.ClientCAs(); !now.Equal(before) {
		t.Error("nonsense counts")
	}
	write(t, config.ClientCAFile, generate("two"))
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		now, err := serving.GetConfigForClient(nil)
		if err != nil {
			return false, err
		}
		certificate, err := now.GetCertificate(nil)
		return err == nil && certificate.Leaf.DNSNames[0] == "two" && !now.ClientCAs.Equal(before), err
	}); err != nil {
		t.Error("the new files do not count")
	}
}
