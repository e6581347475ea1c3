package configuration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// states are configurations by their names. One that is not in it does not exist.
type states map[string]string

func (s states) Require(string, map[addonv1beta1.AddOnConfig]bool) {}

func (s states) Of(config addonv1beta1.AddOnConfig) (hashes.State, error) {
	hash, found := s[config.Name]
	if !found {
		return hashes.State{}, errors.New(config.Name + " does not exist")
	}
	return hashes.State{Hash: hash, Generation: 1}, nil
}

func configs(names ...string) (all []addonv1beta1.AddOnConfig) {
	for _, name := range names {
		all = append(all, addonv1beta1.AddOnConfig{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "example.com", Resource: "things"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: "ns", Name: name},
		})
	}
	return all
}

// hub is a fake API with the add-on a, which the placement p installs with the configuration one.
type hub struct {
	client.WithWatch
	*Controller
	states
	clock  *clocktesting.FakeClock
	writes atomic.Int32
	// notYet has the configurations still be listed.
	notYet bool
}

// Of hides that of states.
func (h *hub) Of(config addonv1beta1.AddOnConfig) (hashes.State, error) {
	if h.notYet {
		return hashes.State{}, hashes.ErrNotYet
	}
	return h.states.Of(config)
}

func newHub(t *testing.T, strategy clusterv1alpha1.RolloutStrategy, clusters ...string) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, workv1.AddToScheme, addonv1beta1.AddToScheme,
		clusterv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	entry.Spec.DefaultConfigs = configs("default")
	entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements,
		Placements: []addonv1beta1.PlacementStrategy{
			{PlacementRef: addonv1beta1.PlacementRef{Namespace: "ns", Name: "p"}, Configs: configs("one"), RolloutStrategy: strategy},
		}}
	objects := []client.Object{
		entry, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}},
		&clusterv1beta1.PlacementDecision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-decision-1", Labels: map[string]string{fleet.LabelPlacement: "p"}},
			Status:     decided(clusters...),
		},
	}
	for _, name := range clusters {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cluster.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
		objects = append(objects, cluster, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "a"}})
	}
	h := &hub{states: states{"default": "d1", "one": "o1"}, clock: clocktesting.NewFakeClock(noon)}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&addonv1beta1.ClusterManagementAddOn{}, &addonv1beta1.ManagedClusterAddOn{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				h.writes.Add(1)
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	for _, index := range lookup.Indexes() {
		builder.WithIndex(index.Object, index.Name, index.Values)
	}
	h.WithWatch = builder.Build()
	h.Controller = New(h.WithWatch, h, events.NewFakeRecorder(100), Options{TrustDecisions: true, Clock: h.clock})
	return h
}

func decided(clusters ...string) (status clusterv1beta1.PlacementDecisionStatus) {
	status.Decisions = []clusterv1beta1.ClusterDecision{}
	for _, cluster := range clusters {
		status.Decisions = append(status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	return status
}

// reconcile also returns how many writes it took.
func (h *hub) reconcile(t *testing.T) (writes int32, wait time.Duration) {
	t.Helper()
	before := h.writes.Load()
	result, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return h.writes.Load() - before, result.RequeueAfter
}

// failToRead reconciles while the API server does not answer.
func (h *hub) failToRead(t *testing.T) {
	t.Helper()
	h.client = interceptor.NewClient(h.WithWatch, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewTimeoutError("try again", 1)
		},
	})
	defer func() { h.client = h.WithWatch }()
	if _, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}}); err == nil {
		t.Error("there is no error to try again for")
	}
}

func (h *hub) addOn(t *testing.T, cluster string) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: cluster, Name: "a"}, addOn); err != nil {
		t.Fatal(err)
	}
	return addOn
}

// have lists what the clusters are to have: "c1=one@o1".
func (h *hub) have(t *testing.T, clusters ...string) string {
	t.Helper()
	var all []string
	for _, cluster := range clusters {
		text := cluster + "="
		for _, reference := range h.addOn(t, cluster).Status.ConfigReferences {
			text += reference.DesiredConfig.Name + "@" + reference.DesiredConfig.SpecHash
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// complete has a cluster be done with what it is to have.
func (h *hub) complete(t *testing.T, cluster string) {
	t.Helper()
	addOn := h.addOn(t, cluster)
	for i := range addOn.Status.ConfigReferences {
		addOn.Status.ConfigReferences[i].LastAppliedConfig = addOn.Status.ConfigReferences[i].DesiredConfig
	}
	meta.RemoveStatusCondition(&addOn.Status.Conditions, fleet.ConditionProgressing)
	meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionProgressing, Status: metav1.ConditionFalse, Reason: fleet.ReasonCompleted,
		LastTransitionTime: metav1.NewTime(h.clock.Now()),
	})
	if err := h.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
}

// message is what the progression of the placement says.
func (h *hub) message(t *testing.T) string {
	t.Helper()
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
		t.Fatal(err)
	}
	return entry.Status.InstallProgressions[0].Conditions[0].Message
}

// selects has the placement select these clusters.
func (h *hub) selects(t *testing.T, clusters ...string) {
	t.Helper()
	decision := &clusterv1beta1.PlacementDecision{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "p-decision-1"}, decision); err != nil {
		t.Fatal(err)
	}
	decision.Status = decided(clusters...)
	if err := h.Update(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
}

// selectsToo has the placement select more clusters, in the second decision group: those of selects are in the first one.
func (h *hub) selectsToo(t *testing.T, clusters ...string) {
	t.Helper()
	if err := h.Create(t.Context(), &clusterv1beta1.PlacementDecision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-decision-2",
			Labels: map[string]string{fleet.LabelPlacement: "p", fleet.LabelDecisionGroupIndex: "1"}},
		Status: decided(clusters...),
	}); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func progressive(edit func(*clusterv1alpha1.RolloutProgressive)) clusterv1alpha1.RolloutStrategy {
	p := &clusterv1alpha1.RolloutProgressive{}
	edit(p)
	return clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.Progressive, Progressive: p}
}

// canariesFirst has the first decision group come before all others.
func canariesFirst() clusterv1alpha1.RolloutStrategy {
	return progressive(func(p *clusterv1alpha1.RolloutProgressive) {
		p.MandatoryDecisionGroups.MandatoryDecisionGroups = []clusterv1alpha1.MandatoryDecisionGroup{{GroupIndex: 0}}
	})
}

// AM-07, AM-10: a change is one write for each cluster and one for the add-on, and then there is nothing to write.
func TestWrites(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1", "c2", "c3")
	for _, change := range []string{"o1", "o2"} {
		h.states["one"] = change
		if writes, wait := h.reconcile(t); writes != 4 || wait != longestWait {
			t.Errorf("%d writes for 3 clusters, again in %s", writes, wait)
		}
		want(t, "all at once", h.have(t, "c1", "c2", "c3"), fmt.Sprintf("c1=one@%s c2=one@%s c3=one@%s", change, change, change))
		if writes, _ := h.reconcile(t); writes != 0 {
			t.Errorf("%d writes when nothing has changed", writes)
		}
	}
	want(t, "progress", h.message(t), "selected clusters 3. configured addons 3/3 progressing..., 0 failed 0 timeout.")
	for _, cluster := range []string{"c1", "c2", "c3"} {
		h.complete(t, cluster)
	}
	h.reconcile(t)
	want(t, "progress", h.message(t), "selected clusters 3. configured addons 3/3 completed with no errors, 0 failed 0 timeout.")
}

// AM-20: without a maxConcurrency it is that of the decision groups. Soaks and deadlines count, and are looked at in time.
func TestPace(t *testing.T) {
	t.Parallel()
	h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) {
		p.MinSuccessTime, p.ProgressDeadline, p.MaxFailures = "5m", "10m", &intstr.IntOrString{IntVal: 1}
	}), "c1", "c2", "c3", "c4")
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(placement), placement); err != nil {
		t.Fatal(err)
	}
	placement.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup = intstr.FromInt32(2)
	if err := h.Update(t.Context(), placement); err != nil {
		t.Fatal(err)
	}
	if _, wait := h.reconcile(t); wait != 10*time.Minute {
		t.Errorf("again in %s", wait)
	}
	want(t, "two begin", h.have(t, "c1", "c2", "c3", "c4"), "c1=one@o1 c2=one@o1 c3=one@ c4=one@")
	h.complete(t, "c1")
	if _, wait := h.reconcile(t); wait != 5*time.Minute {
		t.Errorf("again in %s", wait)
	}
	want(t, "c1 soaks", h.have(t, "c3"), "c3=one@")
	h.clock.Step(5 * time.Minute)
	h.reconcile(t)
	want(t, "c1 has soaked", h.have(t, "c3", "c4"), "c3=one@o1 c4=one@")
	h.clock.Step(5 * time.Minute)
	h.reconcile(t)
	want(t, "c2 is timed out", h.have(t, "c4"), "c4=one@o1")
	want(t, "c2 is timed out", h.message(t), "selected clusters 4. configured addons 3/4 progressing..., 0 failed 1 timeout.")
	h.clock.Step(5 * time.Minute)
	h.reconcile(t)
	if message := h.message(t); !strings.Contains(message, "0 failed 2 timeout. stopped: 2 failures in") {
		t.Error(message)
	}
	// Another change gives everybody time again.
	h.states["one"] = "o2"
	h.reconcile(t)
	want(t, "the next", h.have(t, "c1", "c2", "c3"), "c1=one@o2 c2=one@o2 c3=one@o1")
}

// AM-05, AM-08: what is missing holds up those who need it, and says so; the others go on.
func TestMissingConfiguration(t *testing.T) {
	t.Parallel()
	h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MaxConcurrency = &intstr.IntOrString{IntVal: 1} }), "c1", "c2")
	addOn := h.addOn(t, "c1")
	addOn.Spec.Configs = configs("own")
	if err := h.Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	if _, wait := h.reconcile(t); wait != problemWait {
		t.Errorf("again in %s", wait)
	}
	want(t, "c1 waits", h.have(t, "c1", "c2"), "c1=own@ c2=one@o1")
	configured := meta.FindStatusCondition(h.addOn(t, "c1").Status.Conditions, fleet.ConditionConfigured)
	if configured.Status != metav1.ConditionFalse || configured.Message != "own does not exist" {
		t.Errorf("%+v", configured)
	}
	if message := h.message(t); !strings.HasSuffix(message, "timeout. own does not exist") {
		t.Error(message)
	}
	h.states["own"] = "w1"
	h.complete(t, "c2")
	h.reconcile(t)
	want(t, "c1 goes on", h.have(t, "c1"), "c1=own@w1")
	delete(h.states, "own")
	h.reconcile(t)
	want(t, "c1 keeps it", h.have(t, "c1"), "c1=own@w1")
}

// AM-07: what a cluster is to have is announced where nothing is in its place, whatever keeps it from being given: managers take a
// status without it for an add-on without configurations.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	kind := func(resource, name, hash string) addonv1beta1.ConfigReference {
		reference := addonv1beta1.ConfigReference{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "g", Resource: resource},
			LastObservedGeneration: 1}
		reference.DesiredConfig = &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Name: name}, SpecHash: hash}
		if hash == "" {
			reference.LastObservedGeneration = 0
		}
		return reference
	}
	type references = []addonv1beta1.ConfigReference
	x1, x2, y1 := kind("x", "one", "h1"), kind("x", "two", "h2"), kind("y", "one", "h1")
	x, other, y := kind("x", "one", ""), kind("x", "two", ""), kind("y", "one", "")
	missing := errors.New("missing")
	for name, test := range map[string]struct {
		have, desired references
		phase         rollout.ClusterPhase
		problem       error
		kept          bool
		deployed      bool
		want          references
		configured    metav1.ConditionStatus
	}{
		"its turn": {desired: references{x1, y1}, phase: rollout.Start, want: references{x1, y1},
			configured: metav1.ConditionTrue},
		"its turn, announced before": {have: references{x, y}, desired: references{x1, y1}, phase: rollout.Start,
			want: references{x1, y1}, configured: metav1.ConditionTrue},
		"nothing is wanted": {phase: rollout.InProgress, configured: metav1.ConditionTrue},
		"new, waits": {desired: references{y1, x1}, phase: rollout.Waiting, want: references{x, y},
			configured: metav1.ConditionFalse},
		"new, waits for another": {have: references{other, y}, desired: references{x1}, phase: rollout.Waiting, want: references{x},
			configured: metav1.ConditionFalse},
		"new, waits to have nothing": {have: references{x}, phase: rollout.Waiting, want: references{x},
			configured: metav1.ConditionFalse},
		"new, missing": {desired: references{x}, phase: rollout.Skipped, problem: missing, want: references{x},
			configured: metav1.ConditionFalse},
		"new, one of two is missing": {desired: references{x1, y}, phase: rollout.Skipped, problem: missing, want: references{x, y},
			configured: metav1.ConditionFalse},
		"new, not looked up": {desired: references{x}, problem: hashes.ErrNotYet, want: references{x},
			configured: metav1.ConditionFalse},
		"new, the other one is looked up": {desired: references{x1}, want: references{x}, configured: metav1.ConditionFalse},
		"new, placement unknown": {have: references{x}, desired: references{x2}, phase: rollout.Skipped, kept: true,
			want: references{x}, configured: metav1.ConditionFalse},
		"upgrade, waits": {have: references{x1}, desired: references{x2}, phase: rollout.Waiting, deployed: true,
			want: references{x1}, configured: metav1.ConditionFalse},
		"upgrade, waits, not deployed": {have: references{x1}, desired: references{x2}, phase: rollout.Waiting, want: references{x1},
			configured: metav1.ConditionFalse},
		"upgrade, waits for its first": {desired: references{x1}, phase: rollout.Waiting, deployed: true,
			configured: metav1.ConditionFalse},
		"upgrade, waits for one more": {have: references{x1}, desired: references{x1, y1}, phase: rollout.Waiting, deployed: true,
			want: references{x1}, configured: metav1.ConditionFalse},
		"upgrade, its turn": {have: references{x1}, desired: references{x2}, phase: rollout.Start, deployed: true,
			want: references{x2}, configured: metav1.ConditionTrue},
		"upgrade, the first is missing": {desired: references{x}, phase: rollout.Skipped, problem: missing, deployed: true,
			want: references{x}, configured: metav1.ConditionFalse},
		"upgrade, one more is missing": {have: references{y1}, desired: references{x, y1}, phase: rollout.Skipped, problem: missing,
			deployed: true, want: references{x, y1}, configured: metav1.ConditionFalse},
		"upgrade, the next is missing": {have: references{x1}, desired: references{other}, phase: rollout.Skipped, problem: missing,
			deployed: true, want: references{x1}, configured: metav1.ConditionFalse},
		"canary, the next is missing": {have: references{x1}, desired: references{other}, phase: rollout.Waiting, problem: missing,
			deployed: true, want: references{x1}, configured: metav1.ConditionFalse},
		"canary, placement unknown": {have: references{x1}, desired: references{x2}, phase: rollout.Waiting, kept: true, deployed: true,
			want: references{x1}, configured: metav1.ConditionTrue},
		"what it has is gone": {have: references{x1}, desired: references{x}, phase: rollout.Skipped, problem: missing,
			deployed: true, want: references{x1}, configured: metav1.ConditionFalse},
		"no longer selected, for the moment": {have: references{x1}, desired: references{x2}, phase: rollout.Skipped, kept: true, deployed: true,
			want: references{x1}, configured: metav1.ConditionTrue},
	} {
		addOn := &addonv1beta1.ManagedClusterAddOn{Status: addonv1beta1.ManagedClusterAddOnStatus{ConfigReferences: test.have}}
		if test.deployed {
			addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionManifestApplied, Status: metav1.ConditionTrue}}
		}
		cluster := &clusterState{addOn: addOn, desired: test.desired, phase: test.phase, problem: test.problem, kept: test.kept}
		after, condition := cluster.after()
		if after == nil {
			t.Errorf("%s: nothing is said of it", name)
			continue
		}
		if diff := cmp.Diff(test.want, after.Status.ConfigReferences, cmpopts.EquateEmpty()); diff != "" || condition.Status != test.configured {
			t.Errorf("%s: %+v (-want +got):\n%s", name, condition, diff)
		}
		// Another look changes nothing.
		meta.SetStatusCondition(&after.Status.Conditions, condition)
		cluster.addOn = after
		if again, condition := cluster.after(); again != nil {
			t.Errorf("%s: once more %+v, %+v", name, again.Status, condition)
		}
	}
}

// AM-07: while configurations are listed for the first time, they are announced to add-ons that nobody has looked at before, and the
// others are left alone.
func TestAnnouncedBeforeTheyAreKnown(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1", "c2")
	h.notYet = true
	if writes, _ := h.reconcile(t); writes != 2 {
		t.Errorf("%d writes", writes)
	}
	want(t, "announced", h.have(t, "c1", "c2"), "c1=one@ c2=one@")
	if writes, _ := h.reconcile(t); writes != 0 {
		t.Errorf("%d writes when nothing has changed", writes)
	}
	if len(h.recorder.(*events.FakeRecorder).Events) > 0 {
		t.Errorf("event %q", <-h.recorder.(*events.FakeRecorder).Events)
	}
	h.notYet = false
	h.reconcile(t)
	want(t, "known", h.have(t, "c1", "c2"), "c1=one@o1 c2=one@o1")
	h.notYet = true
	if writes, _ := h.reconcile(t); writes != 0 {
		t.Errorf("%d writes when they are listed again", writes)
	}
}

// AM-08: a cluster that waits for its turn in an upgrade is not configured, and says so until its turn comes.
func TestUpgradeIsNotConfigured(t *testing.T) {
	t.Parallel()
	h := newHub(t, progressive(func(p *clusterv1alpha1.RolloutProgressive) { p.MaxConcurrency = &intstr.IntOrString{IntVal: 1} }), "c1", "c2")
	configured := func() (all string) {
		for _, cluster := range []string{"c1", "c2"} {
			c := meta.FindStatusCondition(h.addOn(t, cluster).Status.Conditions, fleet.ConditionConfigured)
			all += fmt.Sprintf("%s=%s@%s ", c.Status, c.Reason, c.LastTransitionTime.UTC().Format(time.TimeOnly))
		}
		return all
	}
	h.reconcile(t)
	want(t, "first", configured(), "True=ConfigurationsConfigured@12:00:00 False=ConfigurationsNotConfigured@12:00:00 ")
	h.clock.Step(time.Minute)
	h.report(t, "c1", "+Applied", "+Available")
	h.reconcile(t)
	h.report(t, "c2", "+Applied", "+Available")
	h.reconcile(t)
	want(t, "both", configured(), "True=ConfigurationsConfigured@12:00:00 True=ConfigurationsConfigured@12:01:00 ")
	h.clock.Step(time.Minute)
	h.states["one"] = "o2"
	h.reconcile(t)
	want(t, "upgrade", configured(), "True=ConfigurationsConfigured@12:00:00 False=ConfigurationsNotConfigured@12:02:00 ")
	want(t, "upgrade", h.have(t, "c1", "c2"), "c1=one@o2 c2=one@o1")
	h.clock.Step(time.Minute)
	h.report(t, "c1", "+Applied", "+Available")
	h.reconcile(t)
	want(t, "upgraded", configured(), "True=ConfigurationsConfigured@12:00:00 True=ConfigurationsConfigured@12:03:00 ")
}

// AM-03, AM-05: while it is not known what a placement selects, configurations change in their content alone.
func TestPlacementThatIsGone(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1")
	h.reconcile(t)
	if err := h.Delete(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	h.clock.Step(time.Minute)
	h.reconcile(t)
	want(t, "gone", h.have(t, "c1"), "c1=one@o1")
	if message := h.message(t); !strings.Contains(message, "Placement ns/p does not exist: create it") {
		t.Error(message)
	}
}

// AM-05, AM-08: a placement that is gone keeps others from changing the configurations of their clusters only if it would have the last
// word there. Then they say so, and stay configured if they are.
func TestPlacementBesideOneThatIsGone(t *testing.T) {
	t.Parallel()
	gone := addonv1beta1.PlacementStrategy{PlacementRef: addonv1beta1.PlacementRef{Namespace: "ns", Name: "gone"}, Configs: configs("gone")}
	for name, test := range map[string]struct {
		place int // of the placement that is gone
		kept  bool
		has   string
	}{
		"before": {0, false, "c1=two@t1 c2=two@"},
		"after":  {1, true, "c1=one@o1 c2=one@"},
	} {
		h := newHub(t, oneByOne(), "c1", "c2")
		h.states["two"] = "t1"
		h.reconcile(t)
		entry := h.entry(t)
		entry.Spec.InstallStrategy.Placements[0].Configs = configs("two")
		entry.Spec.InstallStrategy.Placements = slices.Insert(entry.Spec.InstallStrategy.Placements, test.place, gone)
		if err := h.Update(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		h.reconcile(t)
		want(t, name, h.have(t, "c1", "c2"), test.has)
		const why = "it is not known whether this placement gives others: Placement ns/gone does not exist"
		var all []string
		for _, cluster := range []string{"c1", "c2"} {
			configured := meta.FindStatusCondition(h.addOn(t, cluster).Status.Conditions, fleet.ConditionConfigured)
			all = append(all, string(configured.Status)+"="+configured.Reason)
			if strings.Contains(configured.Message, why) != test.kept {
				t.Errorf("%s: %+v", name, configured)
			}
		}
		want(t, name, strings.Join(all, " "), "True=ConfigurationsConfigured False=ConfigurationsNotConfigured")
		progression := h.entry(t).Status.InstallProgressions[1-test.place]
		if progression.Name != "p" || strings.Contains(progression.Conditions[0].Message, why) != test.kept {
			t.Errorf("%s: %+v", name, progression)
		}
		if writes, _ := h.reconcile(t); writes != 0 {
			t.Errorf("%s: %d writes when nothing has changed", name, writes)
		}
	}
}

// AM-05: a cluster that is moved from one decision to another does not change its configurations in between; one that is no
// longer selected does, unless the add-on is about to be removed there.
func TestDeselected(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1", "c2")
	addOn := h.addOn(t, "c2")
	addOn.Annotations = map[string]string{fleet.AnnotationInstalledBy: fleet.InstalledByStrategy}
	if err := h.Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.selects(t)
	if _, wait := h.reconcile(t); wait != time.Second {
		t.Errorf("again in %s", wait)
	}
	want(t, "for a moment", h.have(t, "c1", "c2"), "c1=one@o1 c2=one@o1")
	h.clock.Step(time.Second)
	h.failToRead(t) // does not start the wait again
	h.reconcile(t)
	want(t, "for good", h.have(t, "c1", "c2"), "c1=default@d1 c2=one@o1")
}

// AM-10, AM-20: a rollout waits for a ManagedClusterAddOn that is still to be created, so that the first are the first, but not for ever.
// Once it is there, its cluster counts.
func TestAddOnThatIsNotCreated(t *testing.T) {
	t.Parallel()
	h := newHub(t, oneByOne(), "c1", "c2")
	first := h.addOn(t, "c1")
	if err := h.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what    string
		after   time.Duration
		has     string
		wait    time.Duration
		message string // what it ends with
	}{
		{"c1 is to be the first", 0, "c2=one@", installWait, ""},
		{"it may still come", installWait - time.Second, "c2=one@", time.Second, ""},
		{"it does not come", time.Second, "c2=one@o1", longestWait, " left out until they have a ManagedClusterAddOn: c1."},
	} {
		h.clock.Step(step.after)
		if _, wait := h.reconcile(t); wait != step.wait {
			t.Errorf("%s: again in %s", step.what, wait)
		}
		want(t, step.what, h.have(t, "c2"), step.has)
		want(t, step.what, h.message(t), "selected clusters 2. configured addons 1/1 progressing..., 0 failed 0 timeout."+step.message)
	}
	h.complete(t, "c2")
	h.reconcile(t)
	if got := h.entry(t).Status.InstallProgressions[0].Conditions[0]; got.Reason != fleet.ReasonProgressing {
		t.Errorf("without c1: %+v", got)
	}
	first.ResourceVersion = ""
	if err := h.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	want(t, "it is there", h.have(t, "c1"), "c1=one@o1")
	h.complete(t, "c1")
	h.reconcile(t)
	want(t, "it is there", h.message(t), "selected clusters 2. configured addons 2/2 completed with no errors, 0 failed 0 timeout.")
}

// AM-20: a change does not pass a mandatory group before a cluster of it has succeeded, because the add-on is missing there.
func TestCanaryThatIsNotCreated(t *testing.T) {
	t.Parallel()
	h := newHub(t, canariesFirst(), "c1", "c2", "c3")
	h.selects(t, "c1")
	h.selectsToo(t, "c3")
	if err := h.Delete(t.Context(), h.addOn(t, "c1")); err != nil {
		t.Fatal(err)
	}
	expect := func(what, has, message string) {
		t.Helper()
		h.reconcile(t)
		want(t, what, h.have(t, "c3"), has)
		if !strings.HasSuffix(h.message(t), message) {
			t.Errorf("%s: %s, want %s", what, h.message(t), message)
		}
	}
	expect("it may still come", "c3=one@", "0 failed 0 timeout.")
	h.clock.Step(installWait)
	expect("it does not come", "c3=one@", "mandatory groups in which no cluster has succeeded wait for a ManagedClusterAddOn: c1.")
	h.selects(t, "c1", "c2")
	h.reconcile(t)
	h.complete(t, "c2")
	expect("another has succeeded", "c3=one@o1", " left out until they have a ManagedClusterAddOn: c1.")
}

// AM-05, AM-20: a change does not pass a mandatory group before a cluster of it has succeeded, because a configuration is missing there.
func TestCanaryWithoutConfiguration(t *testing.T) {
	t.Parallel()
	h := newHub(t, canariesFirst(), "c1", "c2")
	h.selects(t, "c1")
	h.selectsToo(t, "c2")
	h.edit(t, "c1", func(a *addonv1beta1.ManagedClusterAddOn) { a.Spec.Configs = configs("own") })
	h.reconcile(t)
	want(t, "it is missing", h.have(t, "c1", "c2"), "c1=own@ c2=one@")
	const why = "wait until these can be configured: c1. own does not exist"
	if message := h.message(t); !strings.HasSuffix(message, why) {
		t.Errorf("%s, want %s", message, why)
	}
	h.states["own"] = "w1"
	h.reconcile(t)
	want(t, "it is there", h.have(t, "c1", "c2"), "c1=own@w1 c2=one@")
	h.complete(t, "c1")
	h.reconcile(t)
	want(t, "it has succeeded", h.have(t, "c1", "c2"), "c1=own@w1 c2=one@o1")
}

// AM-05, AM-08, AM-20: nor because it is not known which configuration it is to have there. That cluster stays configured.
func TestCanaryWhilePlacementsAreUnknown(t *testing.T) {
	t.Parallel()
	h := newHub(t, canariesFirst(), "c1", "c2")
	h.selects(t, "c1")
	h.selectsToo(t, "c2")
	newcomer := h.addOn(t, "c2") // others keep their configurations, too
	if err := h.Delete(t.Context(), newcomer); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.states["two"] = "t1"
	entry := h.entry(t)
	placements := &entry.Spec.InstallStrategy.Placements
	(*placements)[0].Configs = configs("two")
	*placements = append(*placements, addonv1beta1.PlacementStrategy{PlacementRef: addonv1beta1.PlacementRef{Namespace: "ns", Name: "gone"}})
	newcomer.ResourceVersion = ""
	if err := errors.Join(h.Update(t.Context(), entry), h.Create(t.Context(), newcomer)); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	want(t, "the other placement is gone", h.have(t, "c1", "c2"), "c1=one@o1 c2=two@")
	if !meta.IsStatusConditionTrue(h.addOn(t, "c1").Status.Conditions, fleet.ConditionConfigured) {
		t.Errorf("%+v", h.addOn(t, "c1").Status.Conditions)
	}
	if message := h.message(t); !strings.Contains(message, "wait until these can be configured: c1.") {
		t.Error(message)
	}
}

// AM-05: the last placement that selects a cluster counts. Its clusters are not those of the others.
func TestLaterPlacementCounts(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterv1alpha1.RolloutStrategy{}, "c1", "c2")
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
		t.Fatal(err)
	}
	entry.Spec.InstallStrategy.Placements = append(entry.Spec.InstallStrategy.Placements,
		addonv1beta1.PlacementStrategy{PlacementRef: addonv1beta1.PlacementRef{Namespace: "ns", Name: "q"}, Configs: configs("two")})
	h.states["two"] = "t1"
	if err := h.Update(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}},
		&clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q-decision-1",
			Labels: map[string]string{fleet.LabelPlacement: "q"}}, Status: decided("c2", "c3")},
	} {
		if err := h.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	h.reconcile(t)
	want(t, "have", h.have(t, "c1", "c2"), "c1=one@o1 c2=two@t1")
	want(t, "progress", h.message(t), "selected clusters 2. configured addons 1/1 progressing..., 0 failed 0 timeout.")
}

// AM-07: what is applied is kept for the same configuration, wherever it is listed, and not for another one in its place.
func TestMerge(t *testing.T) {
	t.Parallel()
	reference := func(name, applied string) addonv1beta1.ConfigReference {
		r := addonv1beta1.ConfigReference{ConfigGroupResource: configs("")[0].ConfigGroupResource,
			DesiredConfig: &addonv1beta1.ConfigSpecHash{ConfigReferent: configs(name)[0].ConfigReferent}}
		if applied != "" {
			r.LastAppliedConfig = &addonv1beta1.ConfigSpecHash{SpecHash: applied}
		}
		return r
	}
	otherKind := func(r addonv1beta1.ConfigReference) addonv1beta1.ConfigReference {
		r.Resource = "others"
		return r
	}
	before := []addonv1beta1.ConfigReference{reference("x", "1"), reference("y", "2")}
	if merged := merge(before, []addonv1beta1.ConfigReference{otherKind(reference("x", ""))}); merged[0].LastAppliedConfig != nil {
		t.Errorf("of another kind: %+v", merged[0])
	}
	for name, test := range map[string]struct{ desired, applied []string }{
		"the same":   {[]string{"x", "y"}, []string{"1", "2"}},
		"turned":     {[]string{"y", "x"}, []string{"2", "1"}},
		"changed":    {[]string{"z"}, []string{""}},
		"the second": {[]string{"x", "z"}, []string{"1", ""}},
		"the first":  {[]string{"z", "y"}, []string{"", "2"}},
		"one less":   {[]string{"y"}, []string{"2"}},
		"one more":   {[]string{"x", "y", "z"}, []string{"1", "2", ""}},
	} {
		var desired []addonv1beta1.ConfigReference
		for _, name := range test.desired {
			desired = append(desired, reference(name, ""))
		}
		var applied []string
		for _, merged := range merge(before, desired) {
			hash := ""
			if merged.LastAppliedConfig != nil {
				hash = merged.LastAppliedConfig.SpecHash
			}
			applied = append(applied, hash)
		}
		if !slices.Equal(applied, test.applied) {
			t.Errorf("%s: %q, want %q", name, applied, test.applied)
		}
	}
}
