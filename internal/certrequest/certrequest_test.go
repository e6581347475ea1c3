package certrequest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// AF-05 A2: whoever approves or signs does so for one subject, and for nothing that is added to it.
func TestIsFor(t *testing.T) {
	t.Parallel()
	subject := addonv1beta1.Subject{User: "agent", Groups: []string{"a", "b"}, OrganizationUnits: []string{"unit"}}
	uid := []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "of somebody else"}}
	for name, c := range map[string]struct {
		asked pkix.Name
		want  bool
	}{
		"the subject":          {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"}}, true},
		"and everybody":        {pkix.Name{CommonName: "agent", Organization: []string{"b", "a", "system:authenticated"}, OrganizationalUnit: []string{"unit"}}, true},
		"another user":         {pkix.Name{CommonName: "admin", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"}}, false},
		"one group more":       {pkix.Name{CommonName: "agent", Organization: []string{"b", "a", "system:masters"}, OrganizationalUnit: []string{"unit"}}, false},
		"one group less":       {pkix.Name{CommonName: "agent", Organization: []string{"b"}, OrganizationalUnit: []string{"unit"}}, false},
		"no unit":              {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}}, false},
		"an attribute besides": {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"}, ExtraNames: uid}, false},
		"a serial number":      {pkix.Name{CommonName: "agent", Organization: []string{"b", "a"}, OrganizationalUnit: []string{"unit"}, SerialNumber: "1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parsed pkix.Name
			sequence := c.asked.ToRDNSequence()
			parsed.FillFromRDNSequence(&sequence)
			if got := IsFor(&x509.CertificateRequest{Subject: parsed}, subject); got != c.want {
				t.Errorf("%t for %s", got, parsed)
			}
		})
	}
}

// What decides on the requests of an add-on is in its status, beside much that does not.
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
			s.ConfigReferences = []addonv1beta1.ConfigReference{{}}
		}, true},
	} {
		before := &addonv1beta1.ManagedClusterAddOn{}
		after := before.DeepCopy()
		test.change(&after.Status)
		if got := AddOnChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
