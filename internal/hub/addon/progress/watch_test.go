package progress

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// AM-09: every condition that the judgement depends on brings the add-on back, and how its agent is doing does not.
func TestAddOnMatters(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{
		"ManifestApplied": true, "HostingManifestApplied": true, "HostingClusterValidity": true, "RegistrationApplied": true,
		"Progressing": true, "Configured": true, "Available": false,
	} {
		before := &addonv1beta1.ManagedClusterAddOn{}
		after := before.DeepCopy()
		meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		if got := addOnMatters(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != want {
			t.Errorf("%s: %t", kind, got)
		}
	}
}
