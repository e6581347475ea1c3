package configuration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// report has the agent of a cluster say this of the work of the add-on, "+Applied -Available", and evaluates it.
func (h *hub) report(t *testing.T, cluster string, conditions ...string) {
	t.Helper()
	addOn := h.addOn(t, cluster)
	if meta.SetStatusCondition(&addOn.Status.Conditions,
		metav1.Condition{Type: fleet.ConditionManifestApplied, Status: metav1.ConditionTrue}) {
		if err := h.Status().Update(t.Context(), addOn); err != nil {
			t.Fatal(err)
		}
	}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster, Name: "addon-a-deploy-0", Labels: map[string]string{fleet.LabelAddOnName: "a"},
		Annotations: map[string]string{fleet.AnnotationConfigSpecHash: `{"things.example.com/ns/one":"` + h.states["one"] + `"}`},
	}}
	if err := client.IgnoreNotFound(h.Delete(t.Context(), work)); err != nil {
		t.Fatal(err)
	}
	for _, text := range conditions {
		status := metav1.ConditionTrue
		if text[0] == '-' {
			status = metav1.ConditionFalse
		}
		work.Status.Conditions = append(work.Status.Conditions, metav1.Condition{Type: text[1:], Status: status})
	}
	work.ResourceVersion = ""
	if err := h.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	controller := progress.New(h.WithWatch, events.NewFakeRecorder(100), progress.Options{Clock: h.clock})
	if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
		t.Fatal(err)
	}
}

// AM-20, AM-21: whose works fall ill or fail during the soak, soaks again.
func TestSoakBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, ill := range map[string][]string{"ill": {"+Applied", "-Available"}, "failed": {"-Applied"}} {
		h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) {
			p.MinSuccessTime, p.MaxConcurrency = "5m", &intstr.IntOrString{IntVal: 1}
		}), "c1", "c2")
		h.reconcile(t)
		h.clock.Step(time.Hour)
		h.report(t, "c1", "+Applied", "+Available")
		h.reconcile(t)
		want(t, name+": c1 soaks", h.have(t, "c1", "c2"), "c1=one@o1 c2=one@")
		h.clock.Step(4 * time.Minute)
		h.report(t, "c1", ill...)
		h.clock.Step(time.Hour)
		h.reconcile(t)
		want(t, name+": c1 is ill", h.have(t, "c2"), "c2=one@")
		h.report(t, "c1", "+Applied", "+Available")
		h.clock.Step(4 * time.Minute)
		h.reconcile(t)
		want(t, name+": c1 soaks again", h.have(t, "c2"), "c2=one@")
		h.clock.Step(time.Minute)
		h.reconcile(t)
		want(t, name+": c1 is well again", h.have(t, "c2"), "c2=one@o1")
	}
}

// AM-20, AM-21: a cluster whose works fall ill or fail after they were applied has until the deadline to recover, and is a failure from
// then on. It is none if the rollout had succeeded there before.
func TestIllAfterSuccess(t *testing.T) {
	t.Parallel()
	const rolling = "selected clusters 3. configured addons "
	for name, test := range map[string]struct {
		ill      []string
		tolerate int32
		complete bool   // the rollout, before the cluster falls ill
		have     string // after the deadline
		within   string // the deadline
		after    string // the deadline
	}{
		"ill": {[]string{"+Applied", "-Available"}, 0, false, "c1=one@o1 c2=one@ c3=one@",
			rolling + "1/3 progressing..., 0 failed 0 timeout.", "0 failed 1 timeout. stopped: 1 failure"},
		"failed": {[]string{"-Applied"}, 0, false, "c1=one@o1 c2=one@ c3=one@", "1 failed 0 timeout. stopped: 1 failure",
			"0 failed 1 timeout. stopped: 1 failure"},
		"ill, tolerated": {[]string{"+Applied", "-Available"}, 1, false, "c1=one@o1 c2=one@o1 c3=one@",
			rolling + "1/3 progressing..., 0 failed 0 timeout.", rolling + "1/3 progressing..., 0 failed 1 timeout."},
		"failed, tolerated": {[]string{"-Applied"}, 1, false, "c1=one@o1 c2=one@o1 c3=one@",
			rolling + "0/3 progressing..., 1 failed 0 timeout.", rolling + "1/3 progressing..., 0 failed 1 timeout."},
		"ill, completed": {[]string{"+Applied", "-Available"}, 0, true, "c1=one@o1 c2=one@o1 c3=one@o1",
			rolling + "3/3 completed with no errors, 0 failed 0 timeout.", rolling + "3/3 completed with no errors, 0 failed 0 timeout."},
		"failed, completed": {[]string{"-Applied"}, 0, true, "c1=one@o1 c2=one@o1 c3=one@o1",
			rolling + "3/3 completed with no errors, 0 failed 0 timeout.", rolling + "3/3 completed with no errors, 0 failed 0 timeout."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) {
				p.MinSuccessTime, p.ProgressDeadline = "5m", "10m"
				p.MaxConcurrency, p.MaxFailures = &intstr.IntOrString{IntVal: 1}, &intstr.IntOrString{IntVal: test.tolerate}
			}), "c1", "c2", "c3")
			h.reconcile(t)
			h.report(t, "c1", "+Applied", "+Available")
			if test.complete {
				for _, next := range []string{"c2", "c3"} {
					h.clock.Step(5 * time.Minute)
					h.reconcile(t)
					h.report(t, next, "+Applied", "+Available")
				}
				h.clock.Step(5 * time.Minute)
				h.reconcile(t)
			}
			h.clock.Step(time.Minute)
			h.report(t, "c1", test.ill...)
			h.clock.Step(9 * time.Minute)
			h.reconcile(t)
			if message := h.message(t); !strings.Contains(message, test.within) {
				t.Errorf("within the deadline: %s, want %s", message, test.within)
			}
			h.clock.Step(time.Minute)
			h.reconcile(t)
			want(t, "after the deadline", h.have(t, "c1", "c2", "c3"), test.have)
			if message := h.message(t); !strings.Contains(message, test.after) {
				t.Errorf("after the deadline: %s, want %s", message, test.after)
			}
		})
	}
}

// AM-20, AM-21: a rollout that leaves out a cluster, or tolerates that one fails, is over like others. Clusters that fall ill after that do
// not hold up one that is selected later.
func TestIllAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tolerate int32
		c2       func(*testing.T, *hub)
	}{
		"one is skipped": {0, func(t *testing.T, h *hub) {
			h.edit(t, "c2", func(a *addonv1beta1.ManagedClusterAddOn) { a.Spec.Configs = configs("own") })
		}},
		"one fails, as tolerated": {1, func(t *testing.T, h *hub) { h.report(t, "c2", "-Applied") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) {
				p.ProgressDeadline = "10m"
				p.MaxConcurrency, p.MaxFailures = &intstr.IntOrString{IntVal: 1}, &intstr.IntOrString{IntVal: test.tolerate}
			}), "c1", "c2", "c3")
			h.selects(t, "c1", "c2")
			h.reconcile(t)
			h.report(t, "c1", "+Applied", "+Available")
			h.reconcile(t)
			test.c2(t, h)
			h.reconcile(t)
			h.clock.Step(10 * time.Minute)
			h.reconcile(t)
			h.report(t, "c1", "-Applied")
			h.clock.Step(time.Hour)
			h.selects(t, "c1", "c2", "c3")
			h.reconcile(t)
			want(t, "c3 is selected", h.have(t, "c1", "c3"), "c1=one@o1 c3=one@o1")
		})
	}
}

// AM-20, AM-21: what a rollout has succeeded with on a cluster is all configurations, in their order and states, of one add-on. Nothing
// else that is applied there has been tried.
func TestSuccessIsOfAllConfigurations(t *testing.T) {
	t.Parallel()
	type references = []addonv1beta1.ConfigReference
	reference := func(name, hash string) addonv1beta1.ConfigReference {
		config := &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Name: name}, SpecHash: hash}
		return addonv1beta1.ConfigReference{DesiredConfig: config, LastAppliedConfig: config}
	}
	success := func(addOn types.UID, of ...addonv1beta1.ConfigReference) map[string]string {
		return map[string]string{fleet.AnnotationRolledOut: digest(addOn, of)}
	}
	x, y, changed := reference("x", "x1"), reference("y", "y1"), reference("x", "x2")
	for name, test := range map[string]struct {
		annotations map[string]string
		desired     references
		reason      string
		want        rollout.State
	}{
		"the same":              {success("this", x, y), references{x, y}, fleet.ReasonFailed, rollout.Succeeded},
		"one less":              {success("this", x, y), references{x}, fleet.ReasonFailed, rollout.Failed},
		"one more":              {success("this", x), references{x, y}, fleet.ReasonFailed, rollout.Failed},
		"in another order":      {success("this", x, y), references{y, x}, fleet.ReasonProgressing, rollout.Progressing},
		"changed":               {success("this", x), references{changed}, fleet.ReasonFailed, rollout.Failed},
		"of another add-on":     {success("another", x), references{x}, fleet.ReasonFailed, rollout.Failed},
		"none any more":         {success("this", x), nil, fleet.ReasonFailed, rollout.Failed},
		"none, as before":       {success("this"), nil, fleet.ReasonFailed, rollout.Succeeded},
		"none, and no manager":  {nil, nil, fleet.ReasonWaitingForManifestApplied, rollout.Succeeded},
		"none, not applied yet": {nil, nil, fleet.ReasonProgressing, rollout.Progressing},
		"none before":           {nil, references{x}, fleet.ReasonFailed, rollout.Failed},
	} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{UID: "this", Annotations: test.annotations}}
		addOn.Status.ConfigReferences = test.desired
		addOn.Status.Conditions = []metav1.Condition{{
			Type: fleet.ConditionProgressing, Reason: test.reason, LastTransitionTime: metav1.NewTime(noon),
		}}
		state, since := stateOf(addOn, test.desired)
		if state != test.want || since.IsZero() != (state == rollout.Succeeded) {
			t.Errorf("%s: %s since %s, want %s", name, state, since, test.want)
		}
	}
}

// AM-20, AM-21: a success with configurations counts until the cluster gets others: when it gets them back, it soaks again.
func TestSuccessEndsWithOtherConfigurations(t *testing.T) {
	t.Parallel()
	h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MinSuccessTime = "5m" }), "c1")
	for _, step := range []struct {
		state     string
		after     time.Duration
		succeeded bool
	}{{"o1", 0, false}, {"o1", 5 * time.Minute, true}, {"o2", 0, true}, {"o1", 0, false}, {"o1", 5 * time.Minute, true}} {
		h.states["one"] = step.state
		h.clock.Step(step.after)
		h.reconcile(t)
		if _, succeeded := h.addOn(t, "c1").Annotations[fleet.AnnotationRolledOut]; succeeded != step.succeeded {
			t.Errorf("%s after %s: success is noted: %t", step.state, step.after, succeeded)
		}
		if step.state == "o1" {
			h.report(t, "c1", "+Applied", "+Available")
		}
	}
}

// AM-20, AM-21: who removes or changes what is noted of a success has it noted again.
func TestSuccessIsNotedAgain(t *testing.T) {
	t.Parallel()
	h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MinSuccessTime = "5m" }), "c1")
	h.reconcile(t)
	h.report(t, "c1", "+Applied", "+Available")
	h.clock.Step(5 * time.Minute)
	h.reconcile(t)
	noted := h.addOn(t, "c1").Annotations[fleet.AnnotationRolledOut]
	if noted == "" {
		t.Fatal("it is not noted")
	}
	for name, disturb := range map[string]func(*addonv1beta1.ManagedClusterAddOn){
		"removed": func(a *addonv1beta1.ManagedClusterAddOn) { delete(a.Annotations, fleet.AnnotationRolledOut) },
		"changed": func(a *addonv1beta1.ManagedClusterAddOn) { a.Annotations[fleet.AnnotationRolledOut] = "another" },
	} {
		h.edit(t, "c1", disturb)
		h.reconcile(t)
		want(t, name, h.addOn(t, "c1").Annotations[fleet.AnnotationRolledOut], noted)
	}
}

// AM-20: a change does not pass a mandatory group whose only cluster is losing the add-on, after it has failed with it or before.
func TestCanaryThatIsDeleted(t *testing.T) {
	t.Parallel()
	for name, conditions := range map[string][]string{"failed": {"-Applied"}, "in progress": {"+Applied", "-Available"}} {
		h := newHub(t, canariesFirst(), "c1", "c2")
		h.selects(t, "c1")
		h.selectsToo(t, "c2")
		h.reconcile(t)
		h.report(t, "c1", conditions...)
		h.edit(t, "c1", func(a *addonv1beta1.ManagedClusterAddOn) { a.Finalizers = []string{"example.com/held"} })
		if err := h.Delete(t.Context(), h.addOn(t, "c1")); err != nil {
			t.Fatal(err)
		}
		h.reconcile(t)
		want(t, name, h.have(t, "c2"), "c2=one@")
	}
}

// AM-20, AM-21, A8: a cluster whose works fail counts as failed, with a configuration that is not supported, too.
func TestUnsupportedHidesNoFailure(t *testing.T) {
	t.Parallel()
	h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MaxConcurrency = &intstr.IntOrString{IntVal: 1} }), "c1", "c2")
	addOn := h.addOn(t, "c1")
	addOn.Spec.Configs = configs("own")
	addOn.Spec.Configs[0].Resource = "others"
	if err := h.Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{configs("one")[0].ConfigGroupResource}
	if err := h.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.report(t, "c1", "+Applied", "-Available")
	if got := meta.FindStatusCondition(h.addOn(t, "c1").Status.Conditions,
		fleet.ConditionProgressing); got.Reason != fleet.ReasonConfigurationUnsupported {
		t.Errorf("%+v", got)
	}
	h.reconcile(t)
	want(t, "under way", h.message(t), "selected clusters 2. configured addons 1/2 progressing..., 0 failed 0 timeout.")
	h.report(t, "c1", "-Applied")
	h.reconcile(t)
	if message := h.message(t); !strings.Contains(message, "1 failed 0 timeout. stopped: 1 failure") {
		t.Error(message)
	}
	h.report(t, "c1", "+Applied", "+Available")
	h.reconcile(t)
	want(t, "c1 is done", h.have(t, "c1", "c2"), "c1=one@o1 c2=one@o1")
}

// AM-10: what fails on a cluster is not completed, whatever the strategy tolerates, and neither applied nor good.
func TestToleratedFailuresAreNotCompleted(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]clusterv1alpha1.RolloutStrategy{
		"All":         {Type: clusterv1alpha1.All},
		"Progressive": progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MaxFailures = &intstr.IntOrString{IntVal: 1} }),
	} {
		h := newHub(t, strategy, "c1", "c2")
		h.reconcile(t)
		expect := func(reason string, applied bool) {
			t.Helper()
			entry := &addonv1beta1.ClusterManagementAddOn{}
			if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
				t.Fatal(err)
			}
			progression := entry.Status.InstallProgressions[0]
			reference := progression.ConfigReferences[0]
			if progression.Conditions[0].Reason != reason || (reference.LastAppliedConfig != nil) != applied ||
				(reference.LastKnownGoodConfig != nil) != applied {
				t.Errorf("%s: %+v, want %s, applied %t", name, progression, reason, applied)
			}
		}
		h.report(t, "c1", "-Applied")
		h.report(t, "c2", "+Applied", "+Available")
		h.reconcile(t)
		want(t, name, h.message(t), "selected clusters 2. configured addons 1/2 progressing..., 1 failed 0 timeout.")
		expect(fleet.ReasonProgressing, false)
		h.report(t, "c1", "+Applied", "+Available")
		h.reconcile(t)
		expect(fleet.ReasonCompleted, true)
	}
}

// AM-10: nothing is known to have been applied of a configuration that takes the place of another, nor of one that is set back
// before a change of it was applied. Other changes of one keep what was.
func TestChangedReferenceIsNotApplied(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}, "c1")
	applied := func() string {
		t.Helper()
		h.reconcile(t)
		entry := &addonv1beta1.ClusterManagementAddOn{}
		if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
			t.Fatal(err)
		}
		var all []string
		installed, given := entry.Status.InstallProgressions[0].ConfigReferences[0], h.addOn(t, "c1").Status.ConfigReferences[0]
		for _, config := range []*addonv1beta1.ConfigSpecHash{
			installed.LastAppliedConfig, installed.LastKnownGoodConfig, given.LastAppliedConfig,
		} {
			if config == nil {
				all = append(all, "none")
			} else {
				all = append(all, config.Name+"@"+config.SpecHash)
			}
		}
		return strings.Join(all, " ")
	}
	h.reconcile(t)
	h.complete(t, "c1")
	want(t, "applied", applied(), "one@o1 one@o1 one@o1")
	h.states["one"] = "o2"
	want(t, "its content changes", applied(), "one@o1 one@o1 one@o1")
	h.report(t, "c1", "+Applied", "-Available")
	h.states["one"] = "o1"
	want(t, "its content is set back while the change is in flight", applied(), "one@o1 one@o1 none")
	want(t, "works are of the change", h.message(t), "selected clusters 1. configured addons 1/1 progressing..., 0 failed 0 timeout.")
	h.report(t, "c1", "+Applied", "+Available")
	want(t, "works are of what it was set back to", applied(), "one@o1 one@o1 one@o1")
	h.states["one"] = "o2"
	want(t, "its content changes again", applied(), "one@o1 one@o1 one@o1")
	h.states["two"] = "t1"
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
		t.Fatal(err)
	}
	entry.Spec.InstallStrategy.Placements[0].Configs = configs("two")
	if err := h.Update(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	want(t, "the reference changes", applied(), "none none none")
	h.complete(t, "c1")
	want(t, "the other one is applied", applied(), "two@t1 two@t1 two@t1")
}

// AM-04: of an add-on that manages itself nothing is kept but the references to its default configurations.
func TestSelfManaged(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1")
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
		t.Fatal(err)
	}
	entry.Annotations = map[string]string{fleet.AnnotationLifecycle: fleet.LifecycleSelf}
	if err := h.Update(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	own := []addonv1beta1.InstallProgression{{PlacementRef: addonv1beta1.PlacementRef{Namespace: "ns", Name: "its own"}}}
	entry.Status.InstallProgressions = own
	if err := h.Status().Update(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(own, entry.Status.InstallProgressions); diff != "" || len(entry.Status.DefaultConfigReferences) != 1 {
		t.Errorf("%+v (-want +got):\n%s", entry.Status.DefaultConfigReferences, diff)
	}
	want(t, "left alone", h.have(t, "c1"), "c1=")
}
