package framework

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// GRPCHub is a hub with a gRPC server beside it.
type GRPCHub struct {
	*env.Server
	// Address is where the gRPC server serves, with a certificate of an authority of Roots, which CAFile has in PEM.
	Address string
	Roots   *x509.CertPool
	CAFile  string
}

// StartGRPCHub starts both, for as long as the test runs. One certification authority signs the serving certificate and those of agents.
func StartGRPCHub(t *testing.T) *GRPCHub {
	t.Helper()
	dir := t.TempDir()
	h := &GRPCHub{Address: env.FreeAddress(t), Roots: x509.NewCertPool(), CAFile: filepath.Join(dir, "ca.crt")}
	authority, key := WriteCertificate(t, dir, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "grpc"}}, nil, nil)
	WriteCertificate(t, dir, "tls", &x509.Certificate{Subject: pkix.Name{CommonName: "hub"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority, key)
	h.Roots.AddCert(authority)
	h.Server = env.StartHub(t, "registration", "--enabled-registration-drivers", "csr,grpc", "--grpc-ca-file", h.CAFile,
		"--grpc-key-file", filepath.Join(dir, "ca.key"))
	c := h.Client(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceHub}}
	if err := c.Create(t.Context(), namespace); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: fleet.ServiceAccountGRPCServer}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "grpc-server"}, Rules: grpcServerRules()}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "grpc-server"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}}
	Create(t, c, account, role, binding)

	_, port, err := net.SplitHostPort(h.Address)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	content := fmt.Sprintf("server_bind_port: %q\ntls_cert_file: %s/tls.crt\ntls_key_file: %s/tls.key\nclient_ca_file: %s\n", port, dir,
		dir, h.CAFile)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	server := env.NewGRPCServer(t, KubeconfigOf(t, h.Server, fleet.ServiceAccountGRPCServer), "--server-config", config)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.Address)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	return h
}

// grpcServerRules are the rights of the server, as its operator gives them.
func grpcServerRules() []rbacv1.PolicyRule {
	rule := func(group, resources, verbs string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
	}
	return []rbacv1.PolicyRule{
		rule("events.k8s.io", "events", "get create patch update"),
		rule("authorization.k8s.io", "subjectaccessreviews", "create"),
		rule("authentication.k8s.io", "tokenreviews", "create"),
		rule("certificates.k8s.io", "certificatesigningrequests", "get list watch create"),
		rule("coordination.k8s.io", "leases", "get list watch create update patch"),
		rule("cluster.open-cluster-management.io", "managedclusters", "get list watch create update patch"),
		rule("cluster.open-cluster-management.io", "managedclusters/status", "update patch"),
		rule("cluster.open-cluster-management.io", "managedclustersets/join", "create"),
		rule("addon.open-cluster-management.io", "managedclusteraddons", "get list watch"),
		rule("addon.open-cluster-management.io", "managedclusteraddons/status", "update patch"),
		rule("work.open-cluster-management.io", "manifestworks", "get list watch patch"),
		rule("work.open-cluster-management.io", "manifestworks/status", "update patch"),
		rule("", "serviceaccounts/token", "create"),
	}
}

// WriteCertificate writes NAME.crt and NAME.key, signed by a parent or by themselves.
func WriteCertificate(t *testing.T, dir, name string, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour),
		time.Now().Add(time.Hour)
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}
