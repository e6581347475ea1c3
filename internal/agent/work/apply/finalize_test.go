package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// clientWith is a client of a cluster with the objects.
func clientWith(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(meta.NewDefaultRESTMapper(nil)).WithObjects(objects...).
		WithStatusSubresource(objects...).Build()
}

// WK-14: what the AppliedManifestWork of a work lists stays tracked when the work has gone from the hub: its deletion waits for the end of
// each object. What it does not list is forgotten.
func TestTrackedAfterTheWork(t *testing.T) {
	t.Parallel()
	configMap := func(name string) manifestResult {
		o := manifestResult{resolved: true, mapping: &meta.RESTMapping{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Scope: meta.RESTScopeNamespace}}
		o.identity = manifest.Identity{Namespace: "default", Name: name}
		return o
	}
	listed, other := configMap("listed"), configMap("other")
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work")}}
	amw.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{listed.resource()}
	for name, test := range map[string]struct {
		there []client.Object
		stays bool
	}{
		"it is being deleted": {[]client.Object{amw}, true},
		"it has gone":         {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReporter(t)
			r.hub, r.managed = clientWith(t), clientWith(t, test.there...)
			r.lastResults.put("work", &workResult{results: []manifestResult{listed, other}})
			r.Applied.Tracked.Track(amw.Name, listed.object())
			r.Applied.Tracked.Track(amw.Name, other.object())
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "work"}}); err != nil {
				t.Fatal(err)
			}
			isTracked := func(o *manifestResult) bool {
				return len(r.Applied.Tracked.Owners(o.mapping.Resource.GroupResource(), o.object().NamespacedName)) > 0
			}
			if isTracked(&listed) != test.stays || isTracked(&other) || r.lastResults.get("work") != nil {
				t.Errorf("tracked: what it lists %t, want %t; the other %t", isTracked(&listed), test.stays, isTracked(&other))
			}
		})
	}
}

// WK-12: a broker sends a work that is being deleted without its spec. To an agent that has just started, the AppliedManifestWork says
// whether to wait for dependents; else the work does.
func TestForegroundWithoutSpec(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		manifests []workv1.Manifest
		deleted   bool // the AppliedManifestWork is being deleted before
		want      metav1.DeletionPropagation
	}{
		"no spec":                 {want: metav1.DeletePropagationForeground},
		"no spec, again":          {deleted: true, want: metav1.DeletePropagationForeground},
		"another option":          {manifests: make([]workv1.Manifest, 1), want: ""},
		"another option, in time": {manifests: make([]workv1.Manifest, 1), deleted: true, want: metav1.DeletePropagationBackground},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReporter(t)
			amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work"),
				Finalizers:  []string{fleet.FinalizerAppliedManifestWorkCleanup},
				Annotations: map[string]string{fleet.AnnotationPropagationPolicy: string(metav1.DeletePropagationForeground)}}}
			r.managed = clientWith(t, amw)
			if test.deleted {
				if err := r.managed.Delete(t.Context(), amw); err != nil {
					t.Fatal(err)
				}
			}
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "work", DeletionTimestamp: new(metav1.Now()),
				Finalizers: []string{fleet.FinalizerManifestWorkCleanup}}}
			work.Spec.Workload.Manifests = test.manifests
			if _, err := r.finalize(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			if err := r.managed.Get(t.Context(), client.ObjectKeyFromObject(amw), amw); err != nil || amw.DeletionTimestamp.IsZero() {
				t.Fatalf("it is not being deleted: %v", err)
			}
			if got := amw.Annotations[fleet.AnnotationPropagationPolicy]; got != string(test.want) {
				t.Errorf("objects are deleted by %q, want %q", got, test.want)
			}
		})
	}
}

// WK-14: why a deletion cannot start is in the condition, unless that is over soon.
func TestDeletionCannotStart(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	denied := errors.New("denied by a webhook")
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work")}}
	r.managed = interceptor.NewClient(clientWith(t, amw), interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return denied },
	})
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "work", DeletionTimestamp: new(metav1.Now()),
		Finalizers: []string{fleet.FinalizerManifestWorkCleanup}}}
	r.hub = clientWith(t, work)
	deleting := func() string {
		t.Helper()
		if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil {
			t.Fatal(err)
		}
		if _, err := r.finalize(t.Context(), work); !errors.Is(err, denied) {
			t.Fatalf("got error %v, want %v", err, denied)
		}
		if cond := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDeleting); cond != nil {
			return cond.Message
		}
		return ""
	}
	if message := deleting(); message != "" {
		t.Errorf("at once: %q", message)
	}
	r.clock.Step(slow)
	want := ". There is no progress: could not delete AppliedManifestWork " + amw.Name + ": denied by a webhook"
	if message := deleting(); !strings.HasSuffix(message, want) {
		t.Errorf("%q, want %q", message, want)
	}
}
