package signingrequest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AF-05 A2: requests are approved and signed for one subject, and for nothing that is added to it.
func TestIsFor(t *testing.T) {
	t.Parallel()
	subject := addonv1beta1.Subject{User: "agent", Groups: []string{"a", "b"}, OrganizationUnits: []string{"unit"}}
	uid := []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "of another"}}
	for name, c := range map[string]struct {
		requested pkix.Name
		want      bool
	}{
		"the subject": {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"}}, true},
		"and everybody": {pkix.Name{CommonName: "agent", Organization: []string{"b", "a", "system:authenticated"},
			OrganizationalUnit: []string{"unit"}}, true},
		"another user": {pkix.Name{CommonName: "admin", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"}}, false},
		"one group more": {pkix.Name{CommonName: "agent", Organization: []string{"b", "a", "system:masters"},
			OrganizationalUnit: []string{"unit"}}, false},
		"one group less": {pkix.Name{CommonName: "agent", Organization: []string{"b"}, OrganizationalUnit: []string{"unit"}}, false},
		"no unit":        {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}}, false},
		"one attribute more": {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"},
			ExtraNames: uid}, false},
		"a serial number": {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"},
			SerialNumber: "1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parsed pkix.Name
			sequence := c.requested.ToRDNSequence()
			parsed.FillFromRDNSequence(&sequence)
			if got := IsFor(&x509.CertificateRequest{Subject: parsed}, subject); got != c.want {
				t.Errorf("%t for %s", got, parsed)
			}
		})
	}
}

// RG-14: a request to join counts for the cluster that its agent creates up to five minutes later, and for no former one of the name.
// Admission says from when on certificates of a cluster hold a little before the API server says when it was created.
func TestOutdatedToJoin(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		requested time.Duration // after the creation of the cluster
		notBefore string
		want      bool
	}{
		"since the creation":                   {time.Second, "2026-05-01T12:00:00Z", false},
		"a little before":                      {-5 * time.Minute, "2026-05-01T12:00:00Z", false},
		"for a former cluster":                 {-5*time.Minute - time.Second, "2026-05-01T12:00:00Z", true},
		"a little before, by a slow admission": {-5 * time.Minute, "2026-05-01T11:59:50Z", false},
		"a little before, without a time":      {-5 * time.Minute, "", false},
		"for a former cluster, without a time": {-5*time.Minute - time.Second, "", true},
		"before the cut":                       {time.Second, "2026-05-01T12:00:02Z", true},
		"since the cut":                        {2 * time.Second, "2026-05-01T12:00:02Z", false},
		"before the restoration":               {-time.Minute, "2026-04-01T12:00:00Z", false},
		"long before the restoration":          {-time.Hour, "2026-04-01T12:00:00Z", true},
		"before the cut, and a restoration":    {-2 * time.Minute, "2026-05-01T11:59:00Z", true},
		"since the cut, before a restoration":  {-time.Minute, "2026-05-01T11:59:00Z", false},
		"whenever, by a time that is none":     {time.Second, "never", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", CreationTimestamp: metav1.NewTime(created)}}
			if test.notBefore != "" {
				cluster.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: test.notBefore}
			}
			csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(created.Add(test.requested))}}
			if got := OutdatedToJoin(csr, cluster); got != test.want {
				t.Errorf("outdated: %t", got)
			}
		})
	}
}

// AF-05, AF-06: the requests of an add-on that wait are looked at again with it, and no others.
func TestOfAddOn(t *testing.T) {
	t.Parallel()
	request := func(name, cluster, addOn string, kinds ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			fleet.LabelClusterName: cluster, fleet.LabelAddOnName: addOn,
		}}}
		for _, kind := range kinds {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		}
		return csr
	}
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	signed := request("signed", "c1", "hello", approved)
	signed.Status.Certificate = []byte("certificate")
	builder := fake.NewClientBuilder().WithObjects(
		request("undecided", "c1", "hello"), request("denied", "c1", "hello", denied), signed,
		request("approved", "c1", "hello", approved), request("failed", "c1", "hello", approved, failed),
		request("of another", "c1", "other"), request("approved of another", "c1", "other", approved),
		request("elsewhere", "c2", "hello"), request("approved elsewhere", "c2", "hello", approved), request("of an agent", "c1", ""),
	)
	if err := AddAddOnIndex(t.Context(), indexer{builder}); err != nil {
		t.Fatal(err)
	}
	c := builder.Build()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	for want, which := range map[string]func(*certificatesv1.CertificateSigningRequest) bool{"undecided": Undecided, "approved": ToBeSigned} {
		if found := OfAddOn(c, which)(t.Context(), addOn); len(found) != 1 || found[0].Name != want {
			t.Errorf("%v, want %s", found, want)
		}
	}
}

// indexer lets a fake client have the index of a manager.
type indexer struct{ builder *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, name string, extract client.IndexerFunc) error {
	i.builder.WithIndex(o, name, extract)
	return nil
}

func hash(of string) *addonv1beta1.ConfigSpecHash { return &addonv1beta1.ConfigSpecHash{SpecHash: of} }

// What decides on the requests of an add-on is in its status, together with much that does not.
func TestAddOnChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*addonv1beta1.ManagedClusterAddOnStatus)
		want   bool
	}{
		"nothing":   {func(*addonv1beta1.ManagedClusterAddOnStatus) {}, false},
		"namespace": {func(s *addonv1beta1.ManagedClusterAddOnStatus) { s.Namespace = "other" }, false},
		"registrations": {func(s *addonv1beta1.ManagedClusterAddOnStatus) {
			s.Registrations = []addonv1beta1.RegistrationConfig{{}}
		}, true},
		"configurations": {func(s *addonv1beta1.ManagedClusterAddOnStatus) {
			s.ConfigReferences = append(s.ConfigReferences, addonv1beta1.ConfigReference{})
		}, true},
		"another configuration": {func(s *addonv1beta1.ManagedClusterAddOnStatus) { s.ConfigReferences[0].DesiredConfig.SpecHash = "b" },
			true},
		"another type": {func(s *addonv1beta1.ManagedClusterAddOnStatus) { s.ConfigReferences[0].Resource = "others" }, true},
		"the configuration is there": {func(s *addonv1beta1.ManagedClusterAddOnStatus) { s.ConfigReferences[0].LastAppliedConfig = hash("a") },
			false},
		"the configuration is seen": {func(s *addonv1beta1.ManagedClusterAddOnStatus) { s.ConfigReferences[0].LastObservedGeneration++ }, false},
	} {
		before := &addonv1beta1.ManagedClusterAddOn{}
		before.Status.ConfigReferences = []addonv1beta1.ConfigReference{{DesiredConfig: hash("a")}}
		after := before.DeepCopy()
		test.change(&after.Status)
		if got := AddOnChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Whatever an agent sends as a request, what is accepted is signed, and is the same when it is read again.
func FuzzParse(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: "agent", Organization: []string{"a", "b"}}, []string{"c1.example.com"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request)
	f.Add(append([]byte("text before\n"), request...))
	forged, _ := pem.Decode(request)
	forged.Bytes[len(forged.Bytes)-1] ^= 1 // of the signature
	f.Add(pem.EncodeToMemory(forged))
	parse := func(request []byte) (*x509.CertificateRequest, error) {
		return Parse(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: request}})
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		parsed, err := parse(content)
		if err != nil {
			return
		}
		if err := parsed.CheckSignature(); err != nil {
			t.Errorf("a request is accepted that its key has not signed: %v", err)
		}
		again, err := parse(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: parsed.Raw}))
		if err != nil || !bytes.Equal(again.Raw, parsed.Raw) {
			t.Errorf("what was read is read again as %+v: %v", again, err)
		}
	})
}
