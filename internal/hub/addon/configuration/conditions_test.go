package configuration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// earlier is when conditions got the status that they had before, as a client of another time zone reads it.
var earlier = metav1.NewTime(noon.Add(-time.Hour).Local())

// oneByOne has a cluster start when the one before is done.
func oneByOne() clusterv1alpha1.RolloutStrategy {
	return progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MaxConcurrency = &intstr.IntOrString{IntVal: 1} })
}

// edit changes the add-on on a cluster, and its status.
func (h *hub) edit(t *testing.T, cluster string, change func(*addonv1beta1.ManagedClusterAddOn)) {
	t.Helper()
	addOn := h.addOn(t, cluster)
	change(addOn)
	status := addOn.Status.DeepCopy()
	if err := h.Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	addOn.Status = *status
	if err := h.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
}

// entry is the add-on in the catalogue.
func (h *hub) entry(t *testing.T) *addonv1beta1.ClusterManagementAddOn {
	t.Helper()
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
		t.Fatal(err)
	}
	return entry
}

// expectCondition checks one of those at noon, of generation 5: its time is that at which its status changed. An empty status is none.
func expectCondition(t *testing.T, conditions []metav1.Condition, kind string, before, status metav1.ConditionStatus, reason,
	message string) {
	t.Helper()
	got := meta.FindStatusCondition(conditions, kind)
	if status == "" {
		if got != nil && got.Reason != "Before" {
			t.Errorf("it says %+v", got)
		}
		return
	}
	at := noon
	if status == before {
		at = earlier.Time
	}
	if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) || got.ObservedGeneration != 5 ||
		!got.LastTransitionTime.Time.Equal(at) {
		t.Errorf("got %+v, want %s %s %q at %s", got, status, reason, message, at)
	}
}

// AM-04, AM-08: Configured of the second of two clusters, which starts when the first is done.
func TestConfigured(t *testing.T) {
	t.Parallel()
	const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse
	own := func(a *addonv1beta1.ManagedClusterAddOn) { a.Spec.Configs = configs("own") }
	given := func(name, hash string) func(*addonv1beta1.ManagedClusterAddOn) {
		return func(a *addonv1beta1.ManagedClusterAddOn) {
			a.Status.ConfigReferences = []addonv1beta1.ConfigReference{{ConfigGroupResource: configs(name)[0].ConfigGroupResource,
				LastObservedGeneration: 1,
				DesiredConfig:          &addonv1beta1.ConfigSpecHash{ConfigReferent: configs(name)[0].ConfigReferent, SpecHash: hash}}}
		}
	}
	for name, test := range map[string]struct {
		edit    func(*addonv1beta1.ManagedClusterAddOn) // nil for none
		hub     func(*testing.T, *hub)                  // nil for that the first cluster is done
		status  metav1.ConditionStatus                  // empty if nothing is said
		reason  string
		message string
		has     string
	}{
		"its turn":           {nil, nil, isTrue, "ConfigurationsConfigured", "Configurations configured", "one@o1"},
		"has it":             {given("one", "o1"), nil, isTrue, "ConfigurationsConfigured", "Configurations configured", "one@o1"},
		"waits for its turn": {nil, func(*testing.T, *hub) {}, isFalse, "ConfigurationsNotConfigured", "Waiting for the rollout", "one@"},
		"waits in an upgrade": {given("one", "o0"), func(*testing.T, *hub) {}, isFalse, "ConfigurationsNotConfigured",
			"Waiting for the rollout", "one@o0"},
		"one is missing": {own, nil, isFalse, "ConfigurationsNotConfigured", "own does not exist", "own@"},
		"the next one is missing": {func(a *addonv1beta1.ManagedClusterAddOn) { own(a); given("one", "o1")(a) }, nil, isFalse,
			"ConfigurationsNotConfigured", "own does not exist", "one@o1"},
		"they are not known yet": {nil, func(_ *testing.T, h *hub) { h.notYet = true }, isFalse, "ConfigurationsNotConfigured", "", "one@"},
		"there are none": {nil, func(t *testing.T, h *hub) {
			entry := h.entry(t)
			entry.Spec.DefaultConfigs, entry.Spec.InstallStrategy.Placements[0].Configs = nil, nil
			if err := h.Update(t.Context(), entry); err != nil {
				t.Fatal(err)
			}
			h.complete(t, "c1")
		}, isTrue, "ConfigurationsConfigured", "Configurations configured", ""},
		"it manages itself": {nil, func(t *testing.T, h *hub) {
			entry := h.entry(t)
			entry.Annotations = map[string]string{fleet.AnnotationLifecycle: fleet.LifecycleSelf}
			if err := h.Update(t.Context(), entry); err != nil {
				t.Fatal(err)
			}
		}, "", "", "", ""},
	} {
		for _, before := range []metav1.ConditionStatus{"", isTrue, isFalse} {
			if before != "" && name == "they are not known yet" {
				continue // of what has been said something, nothing is said then
			}
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				h := newHub(t, oneByOne(), "c1", "c2")
				h.edit(t, "c2", func(a *addonv1beta1.ManagedClusterAddOn) {
					a.Generation = 5
					if test.edit != nil {
						test.edit(a)
					}
					if before != "" {
						a.Status.Conditions = []metav1.Condition{{Type: "Configured", Status: before, Reason: "Before", LastTransitionTime: earlier,
							ObservedGeneration: 4}}
					}
					a.Status.Conditions = append(a.Status.Conditions, metav1.Condition{Type: "Degraded", Status: isTrue, Reason: "Before",
						LastTransitionTime: earlier})
				})
				if test.hub == nil {
					h.edit(t, "c1", given("one", "o1"))
					h.complete(t, "c1")
				} else {
					test.hub(t, h)
				}
				h.reconcile(t)
				expectCondition(t, h.addOn(t, "c2").Status.Conditions, "Configured", before, test.status, test.reason, test.message)
				want(t, "references", h.have(t, "c2"), "c2="+test.has)
				// Degraded is the add-on's own.
				if degraded := meta.FindStatusCondition(h.addOn(t, "c2").Status.Conditions, "Degraded"); degraded == nil ||
					degraded.Reason != "Before" {
					t.Errorf("%+v", degraded)
				}
				if writes, _ := h.reconcile(t); writes != 0 {
					t.Errorf("%d writes when nothing has changed", writes)
				}
			})
		}
	}
}

// A condition is of the present generation, too, where it says the same as of the one before: kubectl wait goes by
// that.
func TestConfiguredOfTheGeneration(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1")
	h.reconcile(t)
	h.edit(t, "c1", func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Generation = 5
		a.Spec.Configs = configs("one") // which it has
	})
	h.reconcile(t)
	if got := meta.FindStatusCondition(h.addOn(t, "c1").Status.Conditions, "Configured"); got.ObservedGeneration != 5 ||
		got.Status != metav1.ConditionTrue {
		t.Errorf("%+v", got)
	}
}

// That a cluster waits for its turn is for Configured to say. Progressing goes on to report on what the cluster has, and
// is never WaitingForCanary: a rollout goes by its reasons (AM-21), and by the time at which the cluster was done.
func TestWaitingIsNotProgressing(t *testing.T) {
	t.Parallel()
	h := newHub(t, oneByOne(), "c1", "c2")
	for _, cluster := range []string{"c1", "c2"} {
		h.reconcile(t)
		h.report(t, cluster, "+Applied", "+Available")
	}
	h.reconcile(t)
	before := meta.FindStatusCondition(h.addOn(t, "c2").Status.Conditions, "Progressing")
	h.clock.Step(time.Hour)
	h.states["one"] = "o2"
	h.reconcile(t)
	conditions := h.addOn(t, "c2").Status.Conditions
	if got := meta.FindStatusCondition(conditions, "Progressing"); before.Reason != "Completed" || *got != *before {
		t.Errorf("before %+v, then %+v", before, got)
	}
	if !meta.IsStatusConditionFalse(conditions, "Configured") {
		t.Errorf("%+v", conditions)
	}
}

// AM-10: Progressing of each placement in status.installProgressions, and what is listed beside it.
func TestInstallProgressions(t *testing.T) {
	t.Parallel()
	const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse
	judged := func(t *testing.T, h *hub, cluster string, status metav1.ConditionStatus, reason string, since metav1.Time) {
		t.Helper()
		h.edit(t, cluster, func(a *addonv1beta1.ManagedClusterAddOn) {
			*meta.FindStatusCondition(a.Status.Conditions, "Progressing") = metav1.Condition{Type: "Progressing", Status: status, Reason: reason,
				LastTransitionTime: since}
		})
	}
	all := clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}
	within := progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.ProgressDeadline = "10m" })
	for name, test := range map[string]struct {
		strategy clusterv1alpha1.RolloutStrategy
		clusters []string
		happens  func(*testing.T, *hub) // after the rollout has begun
		status   metav1.ConditionStatus
		reason   string
		message  string
		done     bool // what the clusters have is applied, and good
	}{
		"it begins": {all, []string{"c1", "c2"}, nil, isTrue, "Progressing",
			"selected clusters 2. configured addons 2/2 progressing..., 0 failed 0 timeout.", false},
		"one by one": {oneByOne(), []string{"c1", "c2"}, nil, isTrue, "Progressing",
			"selected clusters 2. configured addons 1/2 progressing..., 0 failed 0 timeout.", false},
		"no clusters": {all, nil, nil, isTrue, "Progressing", "selected clusters 0. configured addons 0/0 progressing..., 0 failed 0 timeout.",
			false},
		"one is done": {all, []string{"c1", "c2"}, func(t *testing.T, h *hub) { h.complete(t, "c1") }, isTrue, "Progressing",
			"configured addons 2/2 progressing...", false},
		"all are done": {all, []string{"c1", "c2"}, func(t *testing.T, h *hub) { h.complete(t, "c1"); h.complete(t, "c2") }, isFalse, "Completed",
			"selected clusters 2. configured addons 2/2 completed with no errors, 0 failed 0 timeout.", true},
		"one has failed": {all, []string{"c1", "c2"}, func(t *testing.T, h *hub) {
			h.complete(t, "c1")
			judged(t, h, "c2", isFalse, "Failed", metav1.NewTime(noon))
		}, isTrue, "Progressing", "1 failed 0 timeout.", false},
		"one is late": {within, []string{"c1", "c2"}, func(t *testing.T, h *hub) {
			h.complete(t, "c1")
			judged(t, h, "c2", isTrue, "Progressing", earlier)
		}, isTrue, "Progressing", "0 failed 1 timeout.", false},
		"it has stopped": {oneByOne(), []string{"c1", "c2"},
			func(t *testing.T, h *hub) { judged(t, h, "c1", isFalse, "Failed", metav1.NewTime(noon)) }, isTrue, "Progressing",
			"1 failed 0 timeout. stopped:", false},
		"one is missing": {all, []string{"c1"}, func(t *testing.T, h *hub) {
			h.edit(t, "c1", func(a *addonv1beta1.ManagedClusterAddOn) { a.Spec.Configs = configs("own") })
		}, isTrue, "Progressing", "own does not exist", false},
		"the placement is gone": {all, []string{"c1"}, func(t *testing.T, h *hub) {
			if err := h.Delete(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}); err != nil {
				t.Fatal(err)
			}
		}, isTrue, "Progressing", "ns/p", false},
	} {
		for _, before := range []metav1.ConditionStatus{"", isTrue, isFalse} {
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				h := newHub(t, test.strategy, test.clusters...)
				h.reconcile(t)
				if test.happens != nil {
					test.happens(t, h)
				}
				entry := h.entry(t)
				entry.Generation = 5
				if err := h.Update(t.Context(), entry); err != nil {
					t.Fatal(err)
				}
				entry.Status.InstallProgressions[0].Conditions = nil
				if before != "" {
					entry.Status.InstallProgressions[0].Conditions = []metav1.Condition{{Type: "Progressing", Status: before, Reason: "Before",
						LastTransitionTime: earlier}}
				}
				if err := h.Status().Update(t.Context(), entry); err != nil {
					t.Fatal(err)
				}
				h.reconcile(t)
				progressions := h.entry(t).Status.InstallProgressions
				if len(progressions) != 1 || progressions[0].Namespace != "ns" || progressions[0].Name != "p" || len(progressions[0].Conditions) != 1 ||
					len(progressions[0].ConfigReferences) != 1 {
					t.Fatalf("%+v", progressions)
				}
				expectCondition(t, progressions[0].Conditions, "Progressing", before, test.status, test.reason, test.message)
				reference := progressions[0].ConfigReferences[0]
				if reference.DesiredConfig == nil || reference.DesiredConfig.Name != "one" || reference.DesiredConfig.SpecHash != "o1" ||
					(reference.LastAppliedConfig != nil) != test.done || (reference.LastKnownGoodConfig != nil) != test.done {
					t.Errorf("%+v", reference)
				}
				if defaults := h.entry(t).Status.DefaultConfigReferences; !slices.ContainsFunc(defaults,
					func(r addonv1beta1.DefaultConfigReference) bool { return r.DesiredConfig.SpecHash == "d1" }) {
					t.Errorf("%+v", defaults)
				}
			})
		}
	}
}
