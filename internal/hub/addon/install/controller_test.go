package install

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// hub is a fake API with the add-on a, which the placement p installs.
type hub struct {
	client.WithWatch
	*Controller
	clock *clocktesting.FakeClock
	// created is called with each add-on, before whoever has created it gets the event.
	created func(c client.Client, addOn *addonv1beta1.ManagedClusterAddOn)
}

func newHub(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, workv1.AddToScheme, addonv1beta1.AddToScheme,
		clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "entry"}}
	entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements,
		Placements: []addonv1beta1.PlacementStrategy{
			{PlacementRef: addonv1beta1.PlacementRef{Namespace: "ns", Name: "p"}},
		}}
	h := &hub{clock: clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))}
	builder := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(entry, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}).WithObjects(objects...).
		WithStatusSubresource(&addonv1beta1.ManagedClusterAddOn{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.CreateOption) error {
			err := c.Create(ctx, o, opts...)
			if addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn); ok && err == nil && h.created != nil {
				h.created(c, addOn.DeepCopy())
			}
			return err
		}})
	for _, index := range lookup.Indexes() {
		builder.WithIndex(index.Object, index.Name, index.Values)
	}
	h.WithWatch = builder.Build()
	h.Controller = New(h.WithWatch, events.NewFakeRecorder(100), Options{TrustDecisions: true, Clock: h.clock})
	return h
}

func cluster(name string, edits ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// decide has the placement select these clusters.
func (h *hub) decide(t *testing.T, clusters ...string) {
	t.Helper()
	status := clusterv1beta1.PlacementDecisionStatus{Decisions: []clusterv1beta1.ClusterDecision{}}
	for _, cluster := range clusters {
		status.Decisions = append(status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	h.replaceDecision(t, status)
}

// replaceDecision deletes the decision of the placement and creates it again.
func (h *hub) replaceDecision(t *testing.T, status clusterv1beta1.PlacementDecisionStatus) {
	t.Helper()
	decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-decision-1",
		Labels: map[string]string{fleet.LabelPlacement: "p"}}, Status: status}
	if err := client.IgnoreNotFound(h.Delete(t.Context(), decision.DeepCopy())); err != nil {
		t.Fatal(err)
	}
	if err := h.Create(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) reconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
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

func (h *hub) wantInstalled(t *testing.T, when, clusters string) {
	t.Helper()
	list := &addonv1beta1.ManagedClusterAddOnList{}
	if err := h.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, addOn := range list.Items {
		have = append(have, addOn.Namespace)
	}
	slices.Sort(have)
	if got := strings.Join(have, " "); got != clusters {
		t.Errorf("%s: installed on %q, want %q", when, got, clusters)
	}
}

// AM-03: what is selected gets the add-on; what is deselected loses it after a moment, if it is the hub's own.
func TestInstall(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1"), cluster("c2"),
		&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "manual", Name: "a"}})
	h.reconcile(t)
	h.wantInstalled(t, "nothing has been decided", "manual")
	h.decide(t, "c1", "c2", "manual")
	h.reconcile(t)
	h.wantInstalled(t, "selected", "c1 c2 manual")
	h.replaceDecision(t, clusterv1beta1.PlacementDecisionStatus{})
	h.reconcile(t)
	h.clock.Step(time.Minute)
	h.reconcile(t)
	h.wantInstalled(t, "the decision is not written yet", "c1 c2 manual")
	h.decide(t, "c1")
	if wait := h.reconcile(t); wait != time.Second {
		t.Errorf("again in %s", wait)
	}
	h.wantInstalled(t, "for a moment", "c1 c2 manual")
	h.clock.Step(time.Second)
	h.failToRead(t) // does not start the wait again
	h.reconcile(t)
	h.wantInstalled(t, "deselected", "c1 manual")
	if err := h.Delete(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	h.clock.Step(time.Minute)
	h.reconcile(t)
	h.clock.Step(time.Minute)
	h.reconcile(t)
	h.wantInstalled(t, "the placement is gone", "c1 manual")
	if err := h.Create(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	h.decide(t)
	h.reconcile(t)
	h.clock.Step(time.Second)
	h.reconcile(t)
	h.wantInstalled(t, "nothing is selected", "manual")
}

// AM-07: what is installed says at once which configurations it is to have, those of the last placement that selects the cluster; and
// so it does when another writer writes its status first.
func TestInstalledIsAnnounced(t *testing.T) {
	t.Parallel()
	config := func(resource, name string) addonv1beta1.AddOnConfig {
		return addonv1beta1.AddOnConfig{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "g", Resource: resource},
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: "ns", Name: name},
		}
	}
	none := config("none", addonv1beta1.ReservedNoDefaultConfigName)
	for name, test := range map[string]struct {
		defaults, placement []addonv1beta1.AddOnConfig
		faster              func(*addonv1beta1.ManagedClusterAddOnStatus)
		want                string
	}{
		"nothing":    {},
		"no default": {defaults: []addonv1beta1.AddOnConfig{none}},
		"defaults": {defaults: []addonv1beta1.AddOnConfig{config("y", "default"), config("x", "default"), none},
			want: "x/ns/default@ y/ns/default@ "},
		"those of the placement": {defaults: []addonv1beta1.AddOnConfig{config("x", "default")},
			placement: []addonv1beta1.AddOnConfig{config("x", "one"), config("x", "two")},
			want:      "x/ns/one@ x/ns/two@ "},
		"another writer is faster": {defaults: []addonv1beta1.AddOnConfig{config("x", "default")}, want: "x/ns/default@ ",
			faster: func(status *addonv1beta1.ManagedClusterAddOnStatus) {
				status.Conditions = []metav1.Condition{{Type: "RegistrationApplied", Status: metav1.ConditionTrue}}
			}},
		"another writer is faster and knows": {defaults: []addonv1beta1.AddOnConfig{config("x", "default")}, want: "x/ns/default@hash ",
			faster: func(status *addonv1beta1.ManagedClusterAddOnStatus) {
				status.ConfigReferences = []addonv1beta1.ConfigReference{{ConfigGroupResource: config("x", "").ConfigGroupResource,
					DesiredConfig: &addonv1beta1.ConfigSpecHash{ConfigReferent: config("x", "default").ConfigReferent, SpecHash: "hash"}}}
			}},
	} {
		h := newHub(t, cluster("c1"))
		entry := &addonv1beta1.ClusterManagementAddOn{}
		if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
			t.Fatal(err)
		}
		entry.Spec.DefaultConfigs = test.defaults
		entry.Spec.InstallStrategy.Placements[0].Configs = test.placement
		if err := h.Update(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		h.created = func(c client.Client, addOn *addonv1beta1.ManagedClusterAddOn) {
			if test.faster == nil {
				return
			}
			test.faster(&addOn.Status)
			if err := c.Status().Update(t.Context(), addOn); err != nil {
				t.Error(err)
			}
		}
		h.decide(t, "c1")
		h.reconcile(t)
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		if err := h.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "a"}, addOn); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range addOn.Status.ConfigReferences {
			got += r.Resource + "/" + r.DesiredConfig.Namespace + "/" + r.DesiredConfig.Name + "@" + r.DesiredConfig.SpecHash + " "
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// AM-03, AM-04: where and when nothing is installed.
func TestNotInstalled(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	h := newHub(t, cluster("c1"),
		cluster("denied", func(c *clusterv1.ManagedCluster) { c.Status.Conditions[0].Status = metav1.ConditionFalse }),
		cluster("disabled", func(c *clusterv1.ManagedCluster) {
			c.Annotations[fleet.AnnotationDisableAutomaticInstallation] = "true"
		}),
		cluster("going", func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp, c.Finalizers = &now, []string{"x/y"} }))
	h.decide(t, "c1", "denied", "disabled", "going", "unheard-of")
	entry := &addonv1beta1.ClusterManagementAddOn{}
	edit := func(edit func()) {
		t.Helper()
		if err := h.Get(t.Context(), client.ObjectKey{Name: "a"}, entry); err != nil {
			t.Fatal(err)
		}
		edit()
		if err := h.Update(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		h.reconcile(t)
	}
	edit(func() { entry.Annotations = map[string]string{fleet.AnnotationLifecycle: "self"} })
	h.wantInstalled(t, "self", "")
	edit(func() {
		entry.Annotations = map[string]string{fleet.AnnotationLifecycle: "addon-manager"}
		entry.Spec.InstallStrategy.Type = addonv1beta1.InstallStrategyManual
	})
	h.wantInstalled(t, "manual", "")
	edit(func() { entry.Spec.InstallStrategy.Type = addonv1beta1.InstallStrategyPlacements })
	h.wantInstalled(t, "placements", "c1")
	edit(func() { entry.Spec.InstallStrategy.Type = addonv1beta1.InstallStrategyManual })
	h.clock.Step(time.Minute)
	h.reconcile(t)
	h.wantInstalled(t, "manual again", "c1")
	edit(func() {
		entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements}
	})
	h.clock.Step(time.Second)
	h.reconcile(t)
	h.wantInstalled(t, "no placements", "")
}

// "The same check wherever a cluster name in an object becomes a namespace to write to": a decision that names a cluster of others, in a
// namespace that an install strategy refers to, installs nothing there; nor does it keep what is there.
func TestForgedDecisionInstallsNothing(t *testing.T) {
	t.Parallel()
	in := func(set string) func(*clusterv1.ManagedCluster) {
		return func(c *clusterv1.ManagedCluster) {
			c.Spec.HubAcceptsClient, c.Labels = true, map[string]string{fleet.LabelClusterSet: set}
		}
	}
	h := newHub(t, cluster("mine", in("mine")), cluster("theirs", in("theirs")),
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}})
	h.Controller = New(h.WithWatch, events.NewFakeRecorder(100), Options{Clock: h.clock})
	h.decide(t, "mine", "theirs")
	h.reconcile(t)
	h.wantInstalled(t, "decided", "mine")
	if err := h.Delete(t.Context(),
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}}); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.clock.Step(2 * time.Second)
	h.reconcile(t)
	h.wantInstalled(t, "unbound", "")
}

// A cluster from a backup without status keeps its add-ons until the hub has accepted it again.
func TestRestoredClusterKeepsAddOns(t *testing.T) {
	t.Parallel()
	h := newHub(t, cluster("c1", func(c *clusterv1.ManagedCluster) {
		c.Spec.HubAcceptsClient, c.Labels = true, map[string]string{fleet.LabelClusterSet: "mine"}
	}), &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}})
	h.Controller = New(h.WithWatch, events.NewFakeRecorder(100), Options{Clock: h.clock})
	h.decide(t, "c1")
	h.reconcile(t)
	for _, test := range []struct {
		when, want string
		edit       func(*clusterv1.ManagedCluster)
	}{
		{"restored", "c1", func(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil }},
		{"denied", "", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }},
	} {
		c := &clusterv1.ManagedCluster{}
		if err := h.Get(t.Context(), client.ObjectKey{Name: "c1"}, c); err != nil {
			t.Fatal(err)
		}
		test.edit(c)
		if err := h.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		h.reconcile(t)
		h.clock.Step(2 * time.Second)
		h.reconcile(t)
		h.wantInstalled(t, test.when, test.want)
	}
}
