package registration

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// GR-11: where the agent reaches the hub by gRPC, an add-on gets no kubeconfig, and its condition says why; certificates of other signers
// it gets.
func TestBrokered(t *testing.T) {
	t.Parallel()
	c := newController(addonv1beta1.KubeClientDriverCSR)
	c.Brokered = true
	credential := &hubkubeconfig.Credential{Kubeconfig: []byte(bootstrap)}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}
	w, err := c.desiredSecretFor(addOn, "managed", addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient}, credential)
	if err != nil || !errors.Is(w.refused, errBrokered) || w.kubeconfig != nil {
		t.Fatalf("%+v, %v", w, err)
	}
	r := newReport(start)
	r.add(w, secretState{err: w.refused})
	var conditions []metav1.Condition
	r.write(&conditions)
	if len(conditions) != 1 || conditions[0].Type != fleet.ConditionCertificateRotated || conditions[0].Status != metav1.ConditionFalse ||
		!strings.Contains(conditions[0].Message, "--registration-auth=csr") {
		t.Errorf("conditions %+v", conditions)
	}
	custom := addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner,
		CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: "example.com/a"}}
	if w, err = c.desiredSecretFor(addOn, "managed", custom, credential); err != nil || w.refused != nil || w.request == nil {
		t.Errorf("%+v, %v", w, err)
	}
}
