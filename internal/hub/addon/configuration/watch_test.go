package configuration

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-20, AM-21: whatever the state of a cluster in a rollout depends on brings the add-on back, and how its agent is doing does not.
func TestAddOnMatters(t *testing.T) {
	t.Parallel()
	condition := func(kind string) func(*addonv1beta1.ManagedClusterAddOn) {
		return func(a *addonv1beta1.ManagedClusterAddOn) {
			meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
	}
	annotation := func(name, value string) func(*addonv1beta1.ManagedClusterAddOn) {
		return func(a *addonv1beta1.ManagedClusterAddOn) { a.Annotations[name] = value }
	}
	for name, test := range map[string]struct {
		change func(*addonv1beta1.ManagedClusterAddOn)
		want   bool
	}{
		"nothing":                     {func(*addonv1beta1.ManagedClusterAddOn) {}, false},
		"Progressing":                 {condition(fleet.ConditionProgressing), true},
		"Configured":                  {condition(fleet.ConditionConfigured), true},
		"RegistrationApplied":         {condition(fleet.ConditionRegistrationApplied), true},
		"Available":                   {condition(fleet.ConditionAvailable), false},
		"the spec":                    {func(a *addonv1beta1.ManagedClusterAddOn) { a.Generation++ }, true},
		"configurations":              {func(a *addonv1beta1.ManagedClusterAddOn) { a.Status.ConfigReferences = nil }, true},
		"supported configurations":    {func(a *addonv1beta1.ManagedClusterAddOn) { a.Status.SupportedConfigs = nil }, true},
		"it is being deleted":         {func(a *addonv1beta1.ManagedClusterAddOn) { a.DeletionTimestamp = &earlier }, true},
		"the success, changed":        {annotation(fleet.AnnotationRolledOut, "another"), true},
		"the success, withdrawn":      {annotation(fleet.AnnotationRolledOut, ""), true},
		"the success, removed":        {func(a *addonv1beta1.ManagedClusterAddOn) { a.Annotations = nil }, true},
		"another annotation":          {annotation("example.com/note", "another"), false},
		"another annotation, removed": {func(a *addonv1beta1.ManagedClusterAddOn) { delete(a.Annotations, "example.com/note") }, false},
	} {
		before := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{fleet.AnnotationRolledOut: "some", "example.com/note": "some"}}}
		before.Status.ConfigReferences = []addonv1beta1.ConfigReference{{LastObservedGeneration: 1}}
		before.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{{Resource: "things"}}
		after := before.DeepCopy()
		test.change(after)
		if got := matters(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
