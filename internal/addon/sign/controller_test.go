package sign

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/addon/catalogue"
	"github.com/capstan-io/capstan/internal/fleet"
)

func request(name, addOn string, kinds ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		fleet.LabelClusterName: "c1", fleet.LabelAddOnName: addOn,
	}}}
	for _, kind := range kinds {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
	}
	return csr
}

// AF-06: what an add-on could not sign is looked at again with it, and nothing else.
func TestWaiting(t *testing.T) {
	t.Parallel()
	signed := request("signed", "hello", certificatesv1.CertificateApproved)
	signed.Status.Certificate = []byte("certificate")
	c := New(fake.NewClientBuilder().WithObjects(
		request("waits", "hello", certificatesv1.CertificateApproved), request("undecided", "hello"), signed,
		request("other", "other", certificatesv1.CertificateApproved),
		request("failed", "hello", certificatesv1.CertificateApproved, certificatesv1.CertificateFailed),
	).Build(), catalogue.Fixed{}, &events.FakeRecorder{})
	waiting := c.waiting(t.Context(), &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}})
	if len(waiting) != 1 || waiting[0].NamespacedName != (client.ObjectKey{Name: "waits"}) {
		t.Errorf("%v wait", waiting)
	}
}
