package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

const encryptSecrets = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: first, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
`

// SC-02, SC-10: the embedded etcd can be reached at a port by those with a certificate of its CA and nobody else, and
// with an encryption configuration it never sees a secret.
func TestEtcdPortAndEncryption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := mustPort(t)
	config := filepath.Join(dir, "encryption.yaml")
	must(t, os.WriteFile(config, []byte(encryptSecrets), 0o600))
	h := newHub(t, dir, func(o *Options) {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)
		must(t, flags.Parse([]string{"--encryption-provider-config=" + config, fmt.Sprintf("--embedded-etcd-client-port=%d", port),
			backup.EtcdDirectoryFlag + "=" + filepath.Join(dir, "disk")}))
	})
	_, err := h.client.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"password": "plain text"},
	}, create)
	must(t, err)

	address := fmt.Sprintf("127.0.0.1:%d", port)
	keys := certDir(h.options.Config.DataDirectory)
	credential := func(leaf pki.Leaf) *tls.Config {
		info := transport.TLSInfo{TrustedCAFile: filepath.Join(keys, "ca-bundle", "etcd-ca-bundle.crt")}
		info.CertFile, info.KeyFile = filepath.Join(keys, string(leaf)+".crt"), filepath.Join(keys, string(leaf)+".key")
		config, err := info.ClientConfig()
		must(t, err)
		return config
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + address}, TLS: credential(pki.EtcdClient),
		Context: t.Context(), Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	stored, err := client.Get(t.Context(), "/registry/secrets/default/hidden")
	must(t, err)
	if len(stored.Kvs) != 1 || !bytes.HasPrefix(stored.Kvs[0].Value, []byte("k8s:enc:aescbc:")) {
		t.Errorf("etcd holds %q", stored.Kvs)
	}
	description := backupOf(t, h)
	if len(description.Lacks) != 1 || description.Lacks[0] != (backup.File{Setting: backup.EncryptionFlag, Path: config}) ||
		!slices.Equal(description.Encryption, []string{"aescbc"}) || description.EtcdDirectory != filepath.Join(dir, "disk") {
		t.Errorf("a backup says %+v", description)
	}

	for who, config := range map[string]*tls.Config{
		"a client without a certificate": {InsecureSkipVerify: true},
		"the hub's admin":                credential(pki.Admin),
	} {
		if err := handshake(t.Context(), address, config); err == nil {
			t.Errorf("%s gets in", who)
		}
	}
}

// backupOf is what a backup of the hub says of itself.
func backupOf(t *testing.T, h *testHub) *backup.Description {
	t.Helper()
	client, err := rest.HTTPClientFor(h.config)
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.config.Host+backup.Path, nil)
	must(t, err)
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	description, err := backup.Read(t.Context(), response.Body, nil, nil)
	must(t, err)
	return description
}

// handshake also reads: in TLS 1.3 a server refuses a client only after the client thinks they are done.
func handshake(ctx context.Context, address string, config *tls.Config) error {
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "GET /version HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}
