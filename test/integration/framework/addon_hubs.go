package framework

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RegisteredOn makes an add-on on a hub, as one that has come back from a backup: its status says that all is well.
func RegisteredOn(t *testing.T, admin client.Client, cluster, name string,
	registrations ...addonv1beta1.RegistrationConfig) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	Create(t, admin, addOn)
	addOn.Status = addonv1beta1.ManagedClusterAddOnStatus{Namespace: name, Registrations: registrations, Conditions: []metav1.Condition{{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionTrue, Reason: fleet.ReasonClientCertificateUpdated,
		Message: "from before", LastTransitionTime: metav1.Now(),
	}}}
	if err := admin.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	return addOn
}
