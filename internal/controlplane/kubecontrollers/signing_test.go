package kubecontrollers

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/utils/ptr"
)

// putCA writes a new CA and returns its certificate.
func putCA(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "ca"}, crypto.Signer(key))
	must(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	must(t, err)
	certPEM, err := certutil.EncodeCertificates(cert)
	must(t, err)
	must(t, os.WriteFile(keyFile, keyPEM, 0o600))
	must(t, os.WriteFile(certFile, certPEM, 0o600))
	return cert
}

func requestOf(t *testing.T, subject pkix.Name, dns ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	request, err := certutil.MakeCSR(key, &subject, dns, nil)
	must(t, err)
	return request
}

// SC-16: approved requests of the signers of Kubernetes are signed, for as long as was requested within limits. One that does not
// fit its signer fails, and all others are left alone.
func TestSigning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	ca := putCA(t, certFile, keyFile)
	const longest = 24 * time.Hour
	agent, node := pkix.Name{CommonName: "agent"}, pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}
	clientAuth := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	serverAuth := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	for name, test := range map[string]struct {
		signer     string
		subject    pkix.Name
		dns        []string
		usages     []certificatesv1.KeyUsage
		expiration *int32
		conditions []certificatesv1.RequestConditionType
		lifetime   time.Duration // 0 means that it is not signed
		fails      string
	}{
		"client": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth, lifetime: longest},
		"client, an hour": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth,
			expiration: ptr.To[int32](3600), lifetime: time.Hour},
		"client, a moment": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth,
			expiration: ptr.To[int32](1), lifetime: shortestLifetime},
		"client, forever": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth,
			expiration: ptr.To[int32](1 << 30), lifetime: longest},
		"client as a server": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: serverAuth, fails: "server auth"},
		"client without auth": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth[:1],
			fails: "client auth"},
		"kubelet": {signer: certificatesv1.KubeAPIServerClientKubeletSignerName, subject: node, usages: clientAuth,
			lifetime: longest},
		"no kubelet": {signer: certificatesv1.KubeAPIServerClientKubeletSignerName, subject: agent, usages: clientAuth,
			fails: "system:nodes"},
		"node serving": {signer: certificatesv1.KubeletServingSignerName, subject: node, dns: []string{"n"}, usages: serverAuth,
			lifetime: longest},
		"no node serving": {signer: certificatesv1.KubeletServingSignerName, subject: node, usages: serverAuth,
			fails: "DNS or IP subjectAltName"},
		"another signer": {signer: "example.com/own", subject: agent, usages: clientAuth},
		"not approved": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth,
			conditions: []certificatesv1.RequestConditionType{}},
		"failed": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth,
			conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateFailed}},
		"denied": {signer: certificatesv1.KubeAPIServerClientSignerName, subject: agent, usages: clientAuth,
			conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r"},
				Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: test.signer, Usages: test.usages,
					ExpirationSeconds: test.expiration, Request: requestOf(t, test.subject, test.dns...)},
			}
			if test.conditions == nil {
				test.conditions = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}
			}
			for _, condition := range test.conditions {
				request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: condition,
					Status: corev1.ConditionTrue})
			}
			client := fake.NewClientset(request)
			s, err := newSigner(client, clustersSince(t, ""), certFile, keyFile, longest)
			must(t, err)
			must(t, s.handle(t.Context(), request.DeepCopy()))
			got, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "r", metav1.GetOptions{})
			must(t, err)
			last := certificatesv1.CertificateSigningRequestCondition{}
			if len(got.Status.Conditions) > len(test.conditions) {
				last = got.Status.Conditions[len(test.conditions)]
			}
			if failed := last.Type == certificatesv1.CertificateFailed; failed != (test.fails != "") || !strings.Contains(last.Message, test.fails) {
				t.Errorf("conditions %+v", got.Status.Conditions)
			}
			if signed := len(got.Status.Certificate) > 0; signed != (test.lifetime != 0) {
				t.Fatalf("signed: %t", signed)
			}
			if test.lifetime == 0 {
				return
			}
			certs, err := certutil.ParseCertsPEM(got.Status.Certificate)
			must(t, err)
			must(t, certs[0].CheckSignatureFrom(ca))
			// A long-lived one loses what it starts before now.
			until := time.Until(certs[0].NotAfter)
			if certs[0].Subject.CommonName != test.subject.CommonName || until > test.lifetime || until < test.lifetime-signingBackdate-time.Minute {
				t.Errorf("%s, valid for %v, want %v", certs[0].Subject, until, test.lifetime)
			}
		})
	}
}

// clustersSince has the ManagedCluster c1, for which certificates hold from some time on.
func clustersSince(t *testing.T, notBefore string) metadata.Interface {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, metav1.AddMetaToScheme(scheme))
	cluster := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "c1", Annotations: map[string]string{"capstan.io/credentials-not-before": notBefore}},
	}
	return metadatafake.NewSimpleMetadataClient(scheme, cluster)
}

// "the hub's own signer does not backdate before the cluster's not-before": a certificate that is issued right after its cluster was
// created holds, and what an agent requested before is not signed: its requester may have the certificate of a cluster that had the
// name before.
func TestSigningForAClusterOfNow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	putCA(t, certFile, keyFile)
	const agent, addOn = "system:open-cluster-management:c1:agent1", "system:open-cluster-management:cluster:c1:addon:a:agent:x"
	now := time.Now().Truncate(time.Second)
	for name, test := range map[string]struct {
		user, requester string
		since           string
		requested       time.Time
		want            time.Time // from when on it is valid; zero if it is not signed
		fails           string
	}{
		"a cluster of now": {user: agent, since: now.Format(time.RFC3339), requested: now.Add(-time.Minute), want: now},
		"an add-on on it":  {user: addOn, requester: agent, since: now.Format(time.RFC3339), requested: now, want: now},
		"a cluster of a minute ago": {user: agent, since: now.Add(-time.Minute).Format(time.RFC3339), requested: now,
			want: now.Add(-time.Minute)},
		"a cluster of before": {user: agent, since: now.Add(-time.Hour).Format(time.RFC3339), requested: now,
			want: now.Add(-signingBackdate)},
		"a cluster that says nothing": {user: agent, requested: now, want: now.Add(-signingBackdate)},
		"a clock that is behind": {user: agent, since: now.Add(time.Minute).Format(time.RFC3339), requested: now,
			want: now.Add(time.Minute)},
		"another user": {user: "ann", since: now.Format(time.RFC3339), requested: now, want: now.Add(-signingBackdate)},
		"a renewal from before": {user: agent, requester: agent, since: now.Format(time.RFC3339), requested: now.Add(-time.Second),
			fails: "ask again"},
		"a request for an add-on from before": {user: addOn, requester: agent, since: now.Format(time.RFC3339), requested: now.Add(-time.Second),
			fails: "ask again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.NewTime(test.requested)},
				Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName, Username: test.requester,
					Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, Request: requestOf(t, pkix.Name{CommonName: test.user})},
				Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
					{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}},
			}
			client := fake.NewClientset(request)
			s, err := newSigner(client, clustersSince(t, test.since), certFile, keyFile, 24*time.Hour)
			must(t, err)
			must(t, s.handle(t.Context(), request.DeepCopy()))
			got, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "r", metav1.GetOptions{})
			must(t, err)
			if test.want.IsZero() {
				last := got.Status.Conditions[len(got.Status.Conditions)-1]
				if len(got.Status.Certificate) > 0 || last.Type != certificatesv1.CertificateFailed || !strings.Contains(last.Message, test.fails) {
					t.Errorf("signed: %t, conditions %+v", len(got.Status.Certificate) > 0, got.Status.Conditions)
				}
				return
			}
			certs, err := certutil.ParseCertsPEM(got.Status.Certificate)
			must(t, err)
			// What is signed with the usual backdate is valid from some moments later on, as the test takes these.
			if late := certs[0].NotBefore.Sub(test.want); late < 0 || late > time.Minute-time.Second {
				t.Errorf("valid from %s on, want %s", certs[0].NotBefore, test.want)
			}
		})
	}
	broken, err := newSigner(nil, clustersSince(t, "yesterday"), certFile, keyFile, time.Hour)
	must(t, err)
	parsed, err := certificates.ParseCSR(requestOf(t, pkix.Name{CommonName: agent}))
	must(t, err)
	if _, err := broken.notBefore(t.Context(), parsed); err == nil || !strings.Contains(err.Error(), "ManagedCluster c1") {
		t.Errorf("a cluster that says no time: %v", err)
	}
}

// "shorter by default": the certificate of an agent is valid for three months, unless the agent requests another time.
func TestAgentsDoNotGetAYear(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	putCA(t, certFile, keyFile)
	const hour, day = 3600, 24 * time.Hour
	for name, test := range map[string]struct {
		user      string
		requested *int32
		longest   time.Duration
		want      time.Duration
	}{
		"agent of a cluster": {user: "system:open-cluster-management:c1:agent1", longest: 200 * day, want: 90 * day},
		"agent of an add-on": {user: "system:open-cluster-management:cluster:c1:addon:a:agent:x", longest: 200 * day, want: 90 * day},
		"agent that asks for more": {user: "system:open-cluster-management:c1:agent1", requested: ptr.To[int32](120 * 24 * hour),
			longest: 200 * day, want: 120 * day},
		"agent that asks for less": {user: "system:open-cluster-management:c1:agent1", requested: ptr.To[int32](hour), longest: 200 * day,
			want: time.Hour},
		"agent of a hub that is strict": {user: "system:open-cluster-management:c1:agent1", longest: 7 * day, want: 7 * day},
		"another user":                  {user: "ann", longest: 200 * day, want: 200 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newSigner(nil, nil, certFile, keyFile, test.longest)
			must(t, err)
			parsed, err := certificates.ParseCSR(requestOf(t, pkix.Name{CommonName: test.user}))
			must(t, err)
			signed, err := s.sign(parsed, certificatesv1.CertificateSigningRequestSpec{ExpirationSeconds: test.requested,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}, time.Time{})
			must(t, err)
			certs, err := certutil.ParseCertsPEM(signed)
			must(t, err)
			if until := time.Until(certs[0].NotAfter); until > test.want || until < test.want-time.Hour {
				t.Errorf("valid for %v, want %v", until, test.want)
			}
		})
	}
}

// SC-06: a renewed CA signs from then on, and one whose files do not fit each other leaves the one from before.
func TestSigningFollowsTheCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	if _, err := newSigner(nil, nil, certFile, keyFile, 0); err == nil {
		t.Error("it signs with a CA that is not there")
	}
	first := putCA(t, certFile, keyFile)
	s, err := newSigner(nil, nil, certFile, keyFile, time.Hour)
	must(t, err)
	key, err := os.ReadFile(keyFile)
	must(t, err)
	second := putCA(t, certFile, keyFile)
	next, err := os.ReadFile(keyFile)
	must(t, err)
	must(t, os.WriteFile(keyFile, key, 0o600))
	if err := s.load(); err == nil || !strings.Contains(err.Error(), "is not that of the CA") || !s.authority().Certificate.Equal(first) {
		t.Errorf("with a key that does not fit: %v, %s", err, s.authority().Certificate.SerialNumber)
	}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		s.follow(t.Context())
	}()
	must(t, os.WriteFile(keyFile, next, 0o600))
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return s.authority().Certificate.Equal(second), nil
	})
	if err != nil {
		t.Errorf("the new CA does not sign: %v", err)
	}
}
