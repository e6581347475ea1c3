package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// mqttBroker is one that knows its clients by certificates, and lets them do what docs/mqtt.md says.
type mqttBroker struct {
	dir, address string
	authority    *x509.Certificate
	authorityKey *ecdsa.PrivateKey
	process      *exec.Cmd
}

// startMosquitto starts a broker for these sources and clusters, for as long as the test runs.
func startMosquitto(t *testing.T, sources, clusters []string) *mqttBroker {
	t.Helper()
	m := &mqttBroker{dir: t.TempDir(), address: env.FreeAddress(t)}
	m.authority, m.authorityKey = framework.WriteCertificate(t, m.dir, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "mqtt"}}, nil, nil)
	framework.WriteCertificate(t, m.dir, "broker", &x509.Certificate{Subject: pkix.Name{CommonName: "broker"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, m.authority, m.authorityKey)
	var rights strings.Builder
	for _, source := range sources {
		m.writeCertificate(t, source)
		fmt.Fprintf(&rights, `user %[1]s
topic write sources/%[1]s/clusters/+/sourceevents
topic write sources/%[1]s/sourcebroadcast
topic read sources/%[1]s/clusters/+/agentevents
topic read clusters/+/agentbroadcast
`, source)
	}
	for _, cluster := range clusters {
		m.writeCertificate(t, cluster)
		fmt.Fprintf(&rights, `user %[1]s
topic write sources/+/clusters/%[1]s/agentevents
topic write clusters/%[1]s/agentbroadcast
topic read sources/+/clusters/%[1]s/sourceevents
topic read sources/+/sourcebroadcast
`, cluster)
	}
	_, port, err := net.SplitHostPort(m.address)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(m.dir, "rights"), rights.String())
	writeFile(t, filepath.Join(m.dir, "mosquitto.conf"), fmt.Sprintf(`user root
listener %[1]s 127.0.0.1
cafile %[2]s/ca.crt
certfile %[2]s/broker.crt
keyfile %[2]s/broker.key
require_certificate true
use_identity_as_username true
allow_anonymous false
acl_file %[2]s/rights
persistence false
log_dest stderr
`, port, m.dir))
	m.start(t)
	t.Cleanup(func() { m.stop(t) })
	return m
}

// writeCertificate writes the certificate of a client.
func (m *mqttBroker) writeCertificate(t *testing.T, client string) {
	t.Helper()
	framework.WriteCertificate(t, m.dir, client, &x509.Certificate{Subject: pkix.Name{CommonName: client},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, m.authority, m.authorityKey)
}

func (m *mqttBroker) start(t *testing.T) {
	t.Helper()
	_ = os.Getenv("CAPSTAN_TEST_TOOLS") // makes the version of the package an input of the test: Makefile
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		// Not every user has the folder in PATH where Debian has it.
		path = "/usr/sbin/mosquitto"
	}
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m.process = exec.Command(path, "-c", filepath.Join(m.dir, "mosquitto.conf"))
	m.process.Env, m.process.Stdout, m.process.Stderr = env.Environ(), log, log
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.process.Start(); err != nil {
		t.Fatalf("%v; make test-interop installs Mosquitto", err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.address)
		if err != nil {
			content, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w; Mosquitto wrote: %s", err, content)
		}
		return connection.Close()
	})
}

func (m *mqttBroker) stop(t *testing.T) {
	t.Helper()
	if err := m.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = m.process.Wait() // killed
}

// config is the configuration of a client, for the topics of a source, or of all with "+". Capstan and the SDK read the same file.
func (m *mqttBroker) config(t *testing.T, client, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, path, fmt.Sprintf(`brokerHost: %[1]s
caFile: %[2]s/ca.crt
clientCertFile: %[2]s/%[3]s.crt
clientKeyFile: %[2]s/%[3]s.key
topics:
  sourceEvents: sources/%[4]s/clusters/+/sourceevents
  agentEvents: sources/%[4]s/clusters/+/agentevents
  sourceBroadcast: sources/%[4]s/sourcebroadcast
  agentBroadcast: clusters/+/agentbroadcast
`, m.address, m.dir, client, source))
	return path
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
