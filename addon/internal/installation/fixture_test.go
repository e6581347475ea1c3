package installation

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// now is the time of all tests.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// hub has one cluster, c1, and one add-on, hello.
type hub struct {
	client.WithWatch
	controller *Controller
	agent      *hello
	writes     int
	// refuse is what the next writes of a status fail with.
	refuse error
	// refuseWorks is what it fails with to create works in the namespace of a cluster.
	refuseWorks map[string]error
	// refuseBindings is what it fails with to create bindings of roles in the namespaces of clusters.
	refuseBindings error
	// refuseDelete is what deletions fail with.
	refuseDelete error
	// awaited are the names of what was deleted in such a way that reads of its kind wait until the cache has seen it.
	awaited []string
}

// hello is an add-on of one ConfigMap.
type hello struct {
	options      addon.Options
	rendered     int
	requestedFor addon.Installation
	workload     *addon.Workload
	err          error
}

func (a *hello) Options() addon.Options { return a.options }

func (a *hello) Manifests(_ context.Context, requestedFor addon.Installation) (*addon.Workload, error) {
	a.rendered++
	a.requestedFor = requestedFor
	return a.workload, a.err
}

// indexer lets a fake client have the indexes of a manager.
type indexer struct{ builder *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, name string, extract client.IndexerFunc) error {
	i.builder.WithIndex(o, name, extract)
	return nil
}

func newHub(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, clusterv1.AddToScheme, workv1.AddToScheme,
		addonv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &hub{agent: &hello{options: addon.Options{Name: "hello"}, workload: &addon.Workload{Objects: []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}}}}}}
	fixed, err := catalogue.Of(h.agent)
	if err != nil {
		t.Fatal(err)
	}
	h.controller = New(nil, nil, Options{Manager: "test", Catalogue: changing{fixed, h.agent}, Clock: clocktesting.NewFakePassiveClock(now)})
	builder := fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&addonv1beta1.ManagedClusterAddOn{}, &workv1.ManifestWork{}).
		WithInterceptorFuncs(h.count())
	for _, object := range objects { // the client writes to those that it is given, and tests in parallel share theirs
		builder.WithObjects(object.DeepCopyObject().(client.Object))
	}
	if err := h.controller.index(indexer{builder}); err != nil {
		t.Fatal(err)
	}
	h.WithWatch = builder.Build()
	h.controller.client, h.controller.live = h, h
	return h
}

// changing has the options of a test as they are now.
type changing struct {
	catalogue.Fixed
	agent *hello
}

func (c changing) Agent(_ context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error) {
	if addOn.Name != c.agent.options.Name {
		return nil, nil
	}
	return c.agent, nil
}

func (h *hub) count() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			h.writes++
			if err := h.refuseWorks[o.GetNamespace()]; err != nil {
				return err
			}
			if _, binds := o.(*rbacv1.RoleBinding); binds && h.refuseBindings != nil {
				return h.refuseBindings
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			h.writes++
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			h.writes++
			if h.refuseDelete != nil {
				return h.refuseDelete
			}
			if !(&client.DeleteOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
				h.awaited = append(h.awaited, o.GetName())
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			h.writes++
			if h.refuse != nil {
				return h.refuse
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

var key = types.NamespacedName{Namespace: "c1", Name: "hello"}

func cluster(name string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
	return c
}

func installed(change ...func(*addonv1beta1.ManagedClusterAddOn)) *addonv1beta1.ManagedClusterAddOn {
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1"}}
	for _, c := range change {
		c(addOn)
	}
	return addOn
}

// reconcile reconciles until nothing is written any more.
func (h *hub) reconcile(t *testing.T) ctrl.Result {
	t.Helper()
	for range 10 {
		h.writes = 0
		result, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil {
			t.Fatal(err)
		}
		if h.writes == 0 {
			return result
		}
	}
	t.Fatal("it does not come to rest")
	return ctrl.Result{}
}

func (h *hub) addOn(t *testing.T) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := h.Get(t.Context(), key, addOn); err != nil {
		t.Fatal(err)
	}
	return addOn
}

func (h *hub) change(t *testing.T, change func(*addonv1beta1.ManagedClusterAddOn)) {
	t.Helper()
	addOn := h.addOn(t)
	before := addOn.DeepCopy()
	change(addOn)
	if err := h.Patch(t.Context(), addOn.DeepCopy(), client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := h.Status().Patch(t.Context(), addOn, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) works(t *testing.T, namespace string) []workv1.ManifestWork {
	t.Helper()
	works := &workv1.ManifestWorkList{}
	if err := h.List(t.Context(), works, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return works.Items
}

func (h *hub) exists(t *testing.T, o client.Object) bool {
	t.Helper()
	err := h.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return !apierrors.IsNotFound(err)
}

func (h *hub) condition(t *testing.T, kind string) metav1.Condition {
	t.Helper()
	if c := meta.FindStatusCondition(h.addOn(t).Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
