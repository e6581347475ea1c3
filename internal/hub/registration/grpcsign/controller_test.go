package grpcsign_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/grpcsign"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

const server = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"

var now = time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC)

// writeAuthority makes what signs, of a name.
func writeAuthority(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(10000 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"ca.crt": {Type: "CERTIFICATE", Bytes: der}, "ca.key": {Type: "PRIVATE KEY",
		Bytes: encoded}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// request is that of the agent of c1, for a subject, approved.
func request(t *testing.T, subject pkix.Name) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := certutil.MakeCSR(key, &subject, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "c1-x", CreationTimestamp: metav1.NewTime(now),
			Labels:      map[string]string{fleet.LabelClusterName: "c1"},
			Annotations: map[string]string{fleet.AnnotationCSRUser: "bootstrap"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Username: server, SignerName: fleet.SignerGRPC,
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			Request: encoded},
		Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}},
	}
}

func agent() pkix.Name {
	return pkix.Name{CommonName: fleet.ClusterUser("c1", "a1"), Organization: fleet.ClusterGroups("c1")}
}

// RG-51: the hub signs what is approved for the identity of an agent, as long as it may, and nothing else.
func TestSign(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	authority := writeAuthority(t, dir, "one")
	cluster := func(change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
		if change != nil {
			change(c)
		}
		return c
	}
	createdNow := func(c *clusterv1.ManagedCluster) {
		c.CreationTimestamp = metav1.NewTime(now)
		c.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: now.Format(time.RFC3339)}
	}
	for name, test := range map[string]struct {
		subject  pkix.Name
		change   func(*certificatesv1.CertificateSigningRequest)
		cluster  *clusterv1.ManagedCluster
		lifetime time.Duration // 0 stands for no certificate
		failed   bool
	}{
		"an agent":          {agent(), nil, cluster(nil), 720 * time.Hour, false},
		"without a cluster": {agent(), nil, nil, 720 * time.Hour, false},
		"for a shorter time": {agent(), func(c *certificatesv1.CertificateSigningRequest) { c.Spec.ExpirationSeconds = ptr.To[int32](3600) },
			cluster(nil), time.Hour, false},
		"for a longer time": {agent(), func(c *certificatesv1.CertificateSigningRequest) { c.Spec.ExpirationSeconds = ptr.To[int32](1e8) },
			cluster(nil), 720 * time.Hour, false},
		"not approved": {agent(), func(c *certificatesv1.CertificateSigningRequest) { c.Status.Conditions = nil }, cluster(nil), 0, false},
		"for another signer": {agent(), func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "example.com/x" },
			cluster(nil), 0, false},
		"for administrators": {pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, nil, cluster(nil), 0, true},
		"for another cluster": {pkix.Name{CommonName: fleet.ClusterUser("c2", "a1"), Organization: fleet.ClusterGroups("c2")}, nil,
			cluster(nil), 0, true},
		"of a denied cluster": {agent(), nil, cluster(func(c *clusterv1.ManagedCluster) {
			c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
		}), 0, false},
		"from before it was cut off": {agent(), nil, cluster(func(c *clusterv1.ManagedCluster) {
			c.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: now.Add(time.Minute).Format(time.RFC3339)}
		}), 0, true},
		"to join, from before its cluster was created": {agent(), func(c *certificatesv1.CertificateSigningRequest) {
			c.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
		}, cluster(createdNow), 720 * time.Hour, false},
		"to join a former cluster of the name": {agent(), func(c *certificatesv1.CertificateSigningRequest) {
			c.CreationTimestamp = metav1.NewTime(now.Add(-5*time.Minute - time.Second))
		}, cluster(createdNow), 0, true},
		"to join, from before its cluster was cut off and restored": {agent(), func(c *certificatesv1.CertificateSigningRequest) {
			c.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Minute))
		}, cluster(func(c *clusterv1.ManagedCluster) {
			c.CreationTimestamp = metav1.NewTime(now)
			c.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: now.Add(-time.Minute).Format(time.RFC3339)}
		}), 0, true},
		"a renewal, from before its cluster was created": {agent(), func(c *certificatesv1.CertificateSigningRequest) {
			c.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
			c.Annotations[fleet.AnnotationCSRUser] = fleet.ClusterUser("c1", "a1")
		}, cluster(createdNow), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := request(t, test.subject)
			if test.change != nil {
				test.change(csr)
			}
			objects := []client.Object{csr}
			if test.cluster != nil {
				objects = append(objects, test.cluster)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(csr).Build()
			controller := grpcsign.New(c, grpcsign.Options{GRPC: signingrequest.GRPC{Server: server}, CAFile: filepath.Join(dir, "ca.crt"),
				KeyFile: filepath.Join(dir, "ca.key"), LongestValidity: 720 * time.Hour, Clock: clocktesting.NewFakePassiveClock(now)})
			if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
				t.Fatal(err)
			}
			failed := slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type == certificatesv1.CertificateFailed
			})
			if failed != test.failed || (len(csr.Status.Certificate) > 0) != (test.lifetime > 0) {
				t.Fatalf("certificate of %d bytes, conditions %v", len(csr.Status.Certificate), csr.Status.Conditions)
			}
			if test.lifetime == 0 {
				return
			}
			checkCertificate(t, csr.Status.Certificate, authority, now.Add(test.lifetime))
		})
	}
}

func checkCertificate(t *testing.T, content []byte, authority *x509.Certificate, until time.Time) {
	t.Helper()
	block, _ := pem.Decode(content)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if certificate.Subject.CommonName != fleet.ClusterUser("c1", "a1") || !certificate.NotAfter.Equal(until) || certificate.IsCA {
		t.Errorf("certificate of %s until %s, want %s", certificate.Subject, certificate.NotAfter, until)
	}
}

// RG-51: what signs is what the files have now.
func TestReload(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		authority := writeAuthority(t, dir, name)
		csr := request(t, agent())
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(csr).WithStatusSubresource(csr).Build()
		controller := grpcsign.New(c, grpcsign.Options{GRPC: signingrequest.GRPC{Server: server}, CAFile: filepath.Join(dir, "ca.crt"),
			KeyFile: filepath.Join(dir, "ca.key"), LongestValidity: time.Hour, Clock: clocktesting.NewFakePassiveClock(now)})
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			t.Fatal(err)
		}
		checkCertificate(t, csr.Status.Certificate, authority, now.Add(time.Hour))
	}
}
