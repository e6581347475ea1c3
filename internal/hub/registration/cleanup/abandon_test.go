package cleanup_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/cleanup"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fixture is a hub with a namespace c1.
type fixture struct {
	client     client.Client
	objects    *fake.FakeMetadataClient
	controller *cleanup.Controller
}

func newFixture(t *testing.T, hub []client.Object, inNamespace ...runtime.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := crfake.NewClientBuilder().WithScheme(scheme).WithObjects(hub...).WithStatusSubresource(&clusterv1.ManagedCluster{}).Build()
	partial := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(partial); err != nil {
		t.Fatal(err)
	}
	objects := fake.NewSimpleMetadataClient(partial, inNamespace...)
	changes := make(chan event.GenericEvent, 100)
	options := cleanup.Options{Resources: cleanup.DefaultResources(), Clock: clocktesting.NewFakeClock(now)}
	return &fixture{c, objects, cleanup.New(c, c, objects, events.NewFakeRecorder(100), changes, options)}
}

func (f *fixture) reconcile(t *testing.T) (ctrl.Result, error) {
	t.Helper()
	return f.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "c1"}})
}

// did are the writes to the namespace.
func (f *fixture) did() (writes []string) {
	for _, action := range f.objects.Actions() {
		switch a := action.(type) {
		case clienttesting.DeleteAction:
			writes = append(writes, "delete "+a.GetName())
		case clienttesting.PatchAction:
			writes = append(writes, "patch "+a.GetName()+" "+string(a.GetPatch()))
		}
	}
	return writes
}

func object(gvr schema.GroupVersionKind, name string, deleted time.Duration, finalizers ...string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: "1", Finalizers: finalizers}}
	o.SetGroupVersionKind(gvr)
	if deleted > 0 {
		o.DeletionTimestamp = &metav1.Time{Time: now.Add(-deleted)}
	}
	return o
}

var (
	kindOfAddOns = schema.GroupVersionKind{Group: "addon.open-cluster-management.io", Version: "v1beta1", Kind: "ManagedClusterAddOn"}
	kindOfWorks  = schema.GroupVersionKind{Group: "work.open-cluster-management.io", Version: "v1", Kind: "ManifestWork"}
)

// RG-44: the namespace of a cluster that is gone without its cleanup is emptied, with a moment for an agent that may still be there. One
// that has no rights of an agent in it is another's.
func TestAbandonedNamespace(t *testing.T) {
	t.Parallel()
	const ofAgent, ofOthers = "cluster.open-cluster-management.io/manifest-work-cleanup", "example.com/stay"
	addOn, work := object(kindOfAddOns, "addon", 0), object(kindOfWorks, "work", 0, ofAgent)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "open-cluster-management:managedcluster:c1:work"}}
	for name, test := range map[string]struct {
		hub     []client.Object
		content []runtime.Object
		want    []string
	}{
		"nothing of a cluster":   {nil, []runtime.Object{addOn, work}, nil},
		"add-ons first":          {[]client.Object{binding}, []runtime.Object{addOn, work}, []string{"delete addon"}},
		"then works":             {[]client.Object{binding}, []runtime.Object{work}, []string{"delete work"}},
		"a moment for the agent": {[]client.Object{binding}, []runtime.Object{object(kindOfWorks, "work", 4*time.Second, ofAgent)}, nil},
		"which it has not made use of": {[]client.Object{binding},
			[]runtime.Object{object(kindOfWorks, "work", 5*time.Second, ofAgent, ofOthers)},
			[]string{`patch work {"metadata":{"finalizers":["example.com/stay"],"uid":"1"}}`}},
		"the cluster is there": {[]client.Object{binding, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}},
			[]runtime.Object{addOn, work}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.hub, test.content...)
			if _, err := f.reconcile(t); err != nil {
				t.Fatal(err)
			}
			if got := f.did(); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// RG-44: Deleting, with the time at which its status changed.
func TestDeleting(t *testing.T) {
	t.Parallel()
	earlier := metav1.NewTime(now.Add(-time.Hour).Local())
	const finalizer = "cluster.open-cluster-management.io/resource-cleanup"
	const preDelete, ofAgent = "addon.open-cluster-management.io/addon-pre-delete", "cluster.open-cluster-management.io/manifest-work-cleanup"
	for name, test := range map[string]struct {
		before  metav1.ConditionStatus // of the condition; empty for none
		content []runtime.Object
		timeout string
		fails   bool
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"add-ons remain": {"", []runtime.Object{object(kindOfAddOns, "a", 0), object(kindOfWorks, "w", 0)}, "", false, "False",
			"ResourceRemaining", "1 managedclusteraddons remain in the namespace c1"},
		"works remain": {"False", []runtime.Object{object(kindOfWorks, "w", 0)}, "", false, "False", "ResourceRemaining",
			"1 manifestworks remain in the namespace c1"},
		"the manager of an add-on is gone": {"", []runtime.Object{object(kindOfAddOns, "a", time.Hour, preDelete)}, "", false, "False",
			"ResourceRemaining", "are being deleted, held by finalizers: a (" + preDelete + ")"},
		"the agent is gone": {"", []runtime.Object{object(kindOfWorks, "w", time.Hour, ofAgent)}, "", false, "False", "ResourceRemaining",
			"held by finalizers: w (" + ofAgent + "); the agent has to clean up, but the cluster is not available. If it never comes back, " +
				"go on without it: kubectl annotate managedcluster c1 capstan.io/deletion-timeout=0s"},
		"the agent is given up, and others hold": {"", []runtime.Object{object(kindOfWorks, "w", time.Hour, ofAgent, "example.com/stay")}, "0s",
			false, "False", "ResourceRemaining", "are being deleted, held by finalizers: w (example.com/stay)"},
		"the agent is given up": {"", []runtime.Object{object(kindOfWorks, "w", time.Hour, ofAgent)}, "0s", false, "False", "ResourceRemaining",
			"1 manifestworks remain in the namespace c1 and are being deleted"},
		"they cannot be deleted": {"", []runtime.Object{object(kindOfWorks, "w", 0)}, "", true, "False", "DeletingError",
			"delete manifestworks.work.open-cluster-management.io: no luck"},
		"a timeout that is none":  {"False", nil, "soon", false, "False", "DeletingError", `"soon" is no duration`},
		"nothing remains":         {"False", nil, "", false, "True", "NoResource", "Nothing remains"},
		"nothing was ever there":  {"", nil, "", false, "True", "NoResource", "Nothing remains"},
		"nothing remains, failed": {"True", []runtime.Object{object(kindOfWorks, "w", 0)}, "", true, "False", "DeletingError", "no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: []string{finalizer, "example.com/stay"},
				DeletionTimestamp: &earlier}}
			if test.timeout != "" {
				cluster.Annotations = map[string]string{"capstan.io/deletion-timeout": test.timeout}
			}
			if test.before != "" {
				cluster.Status.Conditions = []metav1.Condition{{Type: "Deleting", Status: test.before, Reason: "Before", LastTransitionTime: earlier}}
			}
			f := newFixture(t, []client.Object{cluster}, test.content...)
			if test.fails {
				f.objects.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil,
						errors.New("no luck")
				})
			}
			_, err := f.reconcile(t)
			if (err != nil) != (test.reason == "DeletingError") {
				t.Errorf("error %v", err)
			}
			if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			cond, at := meta.FindStatusCondition(cluster.Status.Conditions, "Deleting"), now
			if test.before == test.status {
				at = earlier.Time
			}
			if cond == nil || cond.Status != test.status || cond.Reason != test.reason || !strings.Contains(cond.Message, test.message) ||
				!cond.LastTransitionTime.Time.Equal(at) {
				t.Errorf("got %+v, want %s %s %q at %s", cond, test.status, test.reason, test.message, at)
			}
			if stays := slices.Contains(cluster.Finalizers, finalizer); stays == (test.status == "True") {
				t.Errorf("finalizers %q", cluster.Finalizers)
			}
		})
	}
}
