package progress

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-04, AM-07, AM-09: Progressing, with each of its reasons, as it is written. Its time is that at which the add-on was
// done, or was not any more, whatever its status says.
func TestProgressing(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	earlier := metav1.NewTime(noon.Add(-time.Hour).Local())
	const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse
	says := func(kind string, status metav1.ConditionStatus) func(*addonv1beta1.ManagedClusterAddOn) {
		return func(a *addonv1beta1.ManagedClusterAddOn) {
			meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: kind, Status: status, LastTransitionTime: earlier})
		}
	}
	undeployed := func(a *addonv1beta1.ManagedClusterAddOn) {
		meta.RemoveStatusCondition(&a.Status.Conditions, "ManifestApplied")
	}
	hosted := func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Annotations[fleet.AnnotationHostingClusterName] = "host"
		says("HostingClusterValidity", isTrue)(a)
	}
	unsupported := func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Spec.Configs = []addonv1beta1.AddOnConfig{{ConfigGroupResource: things, ConfigReferent: referent("two")}}
		a.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{{Group: "example.com", Resource: "others"}}
	}
	unconfigured := func(a *addonv1beta1.ManagedClusterAddOn) {
		meta.RemoveStatusCondition(&a.Status.Conditions, "Configured")
	}
	leaving := func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Finalizers, a.DeletionTimestamp = []string{"example.com/stay"}, &metav1.Time{Time: noon}
	}
	nothing := func(*addonv1beta1.ManagedClusterAddOn) {}
	done := made("h", 2, "+Applied", "+Available")
	for name, test := range map[string]struct {
		edit      func(*addonv1beta1.ManagedClusterAddOn)
		lifecycle string
		works     []workv1.ManifestWork
		status    metav1.ConditionStatus // empty if nothing is said
		reason    string
		message   string
		applied   bool // the configurations are, and the add-on is done
		warns     bool
	}{
		"not deployed": {undeployed, "", nil, isFalse, "WaitingForManifestApplied", "ManifestApplied", false, false},
		"not deployed on its host": {hosted, "", []workv1.ManifestWork{done}, isFalse, "WaitingForHostingManifestApplied",
			"HostingManifestApplied", false, false},
		"without works": {nothing, "", nil, isTrue, "Progressing", "no addon works", false, false},
		"of other configurations": {nothing, "", []workv1.ManifestWork{made("g", 2, "+Applied", "+Available")}, isTrue, "Progressing",
			"mca and work configs mismatch", false, false},
		"not ready": {nothing, "", []workv1.ManifestWork{made("h", 2, "+Applied", "-Available")}, isTrue, "Progressing",
			"work is not ready", false, false},
		"ready": {nothing, "", []workv1.ManifestWork{done}, isFalse, "Completed", "completed with no errors", true, false},
		"it waits for its turn": {says("Configured", isFalse), "", []workv1.ManifestWork{done}, isFalse, "Completed",
			"completed with no errors", true, false},
		"not applied": {nothing, "", []workv1.ManifestWork{made("h", 2, "-Applied")}, isFalse, "Failed", "could not be applied",
			false, true},
		"degraded": {nothing, "", []workv1.ManifestWork{made("h", 2, "+Applied", "+Available", "+Degraded")}, isFalse, "Failed",
			"is degraded", false, true},
		"unsupported, and ready": {unsupported, "", []workv1.ManifestWork{done}, isFalse, "ConfigurationUnsupported",
			"remove two from spec.configs", true, true},
		"unsupported, without work": {unsupported, "", nil, isFalse, "ConfigurationUnsupported", "remove two from spec.configs", false, true},
		"nothing is known yet":      {unconfigured, "", []workv1.ManifestWork{done}, "", "", "", false, false},
		"it leaves":                 {leaving, "", []workv1.ManifestWork{done}, "", "", "", false, false},
		"it manages itself":         {nothing, fleet.LifecycleSelf, []workv1.ManifestWork{done}, "", "", "", false, false},
	} {
		for _, before := range []struct {
			status metav1.ConditionStatus
			reason string
		}{{"", ""}, {isTrue, "Progressing"}, {isFalse, "Completed"}, {isFalse, "WaitingForManifestApplied"}} {
			t.Run(name+"/"+before.reason, func(t *testing.T) {
				t.Parallel()
				addOn := installed(says("Configured", isTrue), test.edit)
				addOn.Generation = 5
				if before.status != "" {
					addOn.Status.Conditions = append(addOn.Status.Conditions, metav1.Condition{Type: "Progressing", Status: before.status,
						Reason: before.reason, Message: "before", LastTransitionTime: earlier})
				}
				entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{}}}
				if test.lifecycle != "" {
					entry.Annotations[fleet.AnnotationLifecycle] = test.lifecycle
				}
				objects := []client.Object{addOn, entry}
				for i := range test.works {
					work := test.works[i].DeepCopy()
					work.Labels = map[string]string{fleet.LabelAddOnName: "a"}
					objects = append(objects, work)
				}
				scheme := runtime.NewScheme()
				for _, add := range []func(*runtime.Scheme) error{workv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1beta1.AddToScheme} {
					if err := add(scheme); err != nil {
						t.Fatal(err)
					}
				}
				b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&addonv1beta1.ManagedClusterAddOn{}).WithObjects(objects...)
				for _, index := range lookup.Indexes() {
					b = b.WithIndex(index.Object, index.Name, index.Values)
				}
				c, recorder := b.Build(), events.NewFakeRecorder(10)
				if _, err := New(c, recorder, Options{Clock: clocktesting.NewFakePassiveClock(noon)}).Reconcile(t.Context(),
					ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
					t.Fatal(err)
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
					t.Fatal(err)
				}
				got := meta.FindStatusCondition(addOn.Status.Conditions, "Progressing")
				if test.status == "" {
					if got != nil && got.Message != "before" {
						t.Errorf("it says %+v", got)
					}
					return
				}
				at := noon
				if wasDone := before.reason == "Completed"; before.status != "" && wasDone == test.applied {
					at = earlier.Time
				}
				if got == nil || got.Status != test.status || got.Reason != test.reason || !strings.Contains(got.Message, test.message) ||
					got.ObservedGeneration != 5 || !got.LastTransitionTime.Time.Equal(at) {
					t.Errorf("got %+v, want %s %s %q at %s", got, test.status, test.reason, test.message, at)
				}
				reference := addOn.Status.ConfigReferences[0]
				if applied := reference.LastAppliedConfig != nil && *reference.LastAppliedConfig == *reference.DesiredConfig; applied != test.applied {
					t.Errorf("applied: %+v", reference)
				}
				if warned := len(recorder.Events) > 0; warned != test.warns {
					t.Errorf("%d events", len(recorder.Events))
				}
			})
		}
	}
}
