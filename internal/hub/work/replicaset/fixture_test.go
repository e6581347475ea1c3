package replicaset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// hub is a fake API with one set, ns/web, and the controller on it.
type hub struct {
	client.WithWatch
	*Controller
	clock *clocktesting.FakeClock
	// writes counts all writes; refuse makes those in some namespaces fail, and denied has admission refuse them.
	writes atomic.Int32
	refuse map[string]bool
	denied map[string]bool
	// Why Secrets cannot be read or written.
	unreadable, unwritable error
}

func newHub(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, workv1.AddToScheme, workv1alpha1.AddToScheme,
		clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &hub{clock: clocktesting.NewFakeClock(noon), refuse: map[string]bool{}, denied: map[string]bool{}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(copies(objects)...).
		WithStatusSubresource(&workv1.ManifestWork{}, &workv1alpha1.ManifestWorkReplicaSet{}).
		WithInterceptorFuncs(h.counted())
	for _, index := range Indexes() {
		builder.WithIndex(index.Object, index.Name, index.Values)
	}
	h.WithWatch = builder.Build()
	h.Controller = New(h.WithWatch, h.WithWatch, events.NewFakeRecorder(100), Options{TrustDecisions: true, Clock: h.clock})
	return h
}

// copies are for one fake client alone, which sets their resource versions: tests that run at a time may share objects.
func copies(objects []client.Object) (all []client.Object) {
	for _, o := range objects {
		all = append(all, o.DeepCopyObject().(client.Object))
	}
	return all
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
	if _, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web"}}); err == nil {
		t.Error("there is no error to try again for")
	}
}

// counted counts writes, and does for works what the API server does: a new spec is a new generation.
func (h *hub) counted() interceptor.Funcs {
	write := func(o client.Object) error {
		h.writes.Add(1)
		_, secret := o.(*corev1.Secret)
		if secret && h.unwritable != nil {
			return h.unwritable
		}
		if h.refuse[o.GetNamespace()] {
			return fmt.Errorf("%s does not want it", o.GetNamespace())
		}
		if h.denied[o.GetNamespace()] {
			err := apierrors.NewForbidden(workv1.GroupVersion.WithResource("manifestworks").GroupResource(), o.GetName(),
				errors.New("the cluster is denied"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "ClusterTakesNoWorks"}}
			return err
		}
		return nil
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, secret := o.(*corev1.Secret); secret && h.unreadable != nil {
				return h.unreadable
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(o); err != nil {
				return err
			}
			o.SetGeneration(1)
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := write(o); err != nil {
				return err
			}
			w, isWork := o.(*workv1.ManifestWork)
			if !isWork {
				return c.Patch(ctx, o, p, opts...)
			}
			before := &workv1.ManifestWork{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), before); err != nil {
				return err
			}
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			if manifest.SameSpec(&before.Spec, &w.Spec) {
				return nil
			}
			w.Generation = before.Generation + 1
			return c.Update(ctx, w)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := write(o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			h.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

var request = ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web"}}

func (h *hub) reconcile(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := h.Reconcile(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (h *hub) set(t *testing.T) *workv1alpha1.ManifestWorkReplicaSet {
	t.Helper()
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "web"}, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// change edits the set, as a user does.
func (h *hub) change(t *testing.T, edit func(*workv1alpha1.ManifestWorkReplicaSet)) {
	t.Helper()
	set := h.set(t)
	edit(set)
	set.Generation++
	if err := h.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// setTemplate edits the template to that of a version, as a user does.
func (h *hub) setTemplate(t *testing.T, version string) {
	t.Helper()
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template(version) })
}

// succeed has the agents of clusters report success after each of the steps of a rollout.
func (h *hub) succeed(t *testing.T, clusters ...string) {
	t.Helper()
	for range 4 {
		h.reconcile(t)
		h.report(t, clusters, "Applied", "True", "Progressing", "False")
	}
}

// works are all works, by cluster.
func (h *hub) works(t *testing.T) map[string][]workv1.ManifestWork {
	t.Helper()
	list := &workv1.ManifestWorkList{}
	if err := h.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	works := map[string][]workv1.ManifestWork{}
	for _, w := range list.Items {
		works[w.Namespace] = append(works[w.Namespace], w)
	}
	return works
}

// expectClusters checks which clusters have a work, one each.
func (h *hub) expectClusters(t *testing.T, want ...string) {
	t.Helper()
	works := h.works(t)
	if have := slices.Sorted(maps.Keys(works)); !slices.Equal(have, want) {
		t.Fatalf("works on %v, want %v", have, want)
	}
	for cluster, list := range works {
		if len(list) != 1 {
			t.Fatalf("%d works on %s", len(list), cluster)
		}
	}
}

// versions is which version of the template each cluster has.
func (h *hub) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for cluster, list := range h.works(t) {
		for _, version := range []string{"1", "2", "3"} {
			if manifest.SameSpec(&list[0].Spec, &workv1.ManifestWorkSpec{Workload: template(version).Workload}) {
				versions[cluster] = version
			}
		}
	}
	return versions
}

// report is what the agents of clusters report of the present generation of their works: pairs of a condition and its
// status.
func (h *hub) report(t *testing.T, clusters []string, conditions ...string) {
	t.Helper()
	for _, cluster := range clusters {
		for _, w := range h.works(t)[cluster] {
			for i := 0; i < len(conditions); i += 2 {
				meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
					Type: conditions[i], Status: metav1.ConditionStatus(conditions[i+1]), Reason: "R",
					ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(h.clock.Now()),
				})
			}
			if err := h.Status().Update(t.Context(), &w); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (h *hub) expectCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	cond := meta.FindStatusCondition(h.set(t).Status.Conditions, kind)
	if cond == nil || cond.Status != status || cond.Reason != reason {
		t.Fatalf("condition %s: %+v, want %s with reason %s", kind, cond, status, reason)
	}
	return cond.Message
}

// webSet is the set ns/web with version 1 of the template.
func webSet(refs ...workv1alpha1.LocalPlacementReference) *workv1alpha1.ManifestWorkReplicaSet {
	return &workv1alpha1.ManifestWorkReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Generation: 1, Labels: map[string]string{"team": "a"}},
		Spec:       workv1alpha1.ManifestWorkReplicaSetSpec{ManifestWorkTemplate: template("1"), PlacementRefs: refs},
	}
}

func template(version string) workv1.ManifestWorkSpec {
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default"},"data":{"version":%q}}`, version)
	return workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}}}
}

func ref(placement string) workv1alpha1.LocalPlacementReference {
	return workv1alpha1.LocalPlacementReference{Name: placement, RolloutStrategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}}
}

// decidedPlacement is a placement with one decision.
func decidedPlacement(name string, clusters ...string) []client.Object {
	return []client.Object{
		&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}},
		decision(name, 1, 0, clusters...),
	}
}

func decision(placement string, n, group int, clusters ...string) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: fmt.Sprintf("%s-decision-%d", placement, n),
		Labels: map[string]string{fleet.LabelPlacement: fleet.LabelValue(placement), fleet.LabelDecisionGroupIndex: fmt.Sprint(group),
			fleet.LabelDecisionGroupName: ""},
	}}
	d.Status.Decisions = []clusterv1beta1.ClusterDecision{}
	for _, cluster := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	return d
}

// decide replaces a decision.
func (h *hub) decide(t *testing.T, d *clusterv1beta1.PlacementDecision) {
	t.Helper()
	now := &clusterv1beta1.PlacementDecision{}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(d), now); err != nil {
		t.Fatal(err)
	}
	d.ResourceVersion = now.ResourceVersion
	if err := h.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}
