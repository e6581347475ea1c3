package deletion

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

const workName = "hash-work"

// bench has a controller and a managed cluster with ConfigMaps of one deleted AppliedManifestWork.
type bench struct {
	*testing.T
	*Finalizer
	objects *metadatafake.FakeMetadataClient
	client  client.Client
}

func newBench(t *testing.T, configMaps int) *bench {
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: workName, UID: "amw",
		Finalizers: []string{fleet.FinalizerAppliedManifestWorkCleanup}}}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := metadatafake.NewSimpleMetadataClient(scheme)
	for i := range configMaps {
		o := &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("cm-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1",
				OwnerReferences: []metav1.OwnerReference{appliedmanifestwork.OwnerReference(amw)}},
		}
		if err := objects.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
		amw.Status.AppliedResources = append(amw.Status.AppliedResources, workv1.AppliedManifestResourceMeta{Version: "v1", UID: string(o.UID),
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: o.Namespace, Name: o.Name}})
	}
	// A real API server sends the event of a deletion a little after it has answered; here the test says when.
	objects.PrependReactor("delete", "configmaps", func(clientgotesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	works := runtime.NewScheme()
	if err := workv1.AddToScheme(works); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(works).WithRESTMapper(meta.NewDefaultRESTMapper(nil)).WithObjects(amw).WithStatusSubresource(amw).
		Build()
	if err := c.Delete(t.Context(), amw); err != nil {
		t.Fatal(err)
	}
	cluster := &Cluster{Objects: objects, Tracked: tracker.New(t.Context(), objects)}
	return &bench{T: t, Finalizer: NewFinalizer(c, Options{Applied: cluster, Clock: clock.RealClock{}}), objects: objects, client: c}
}

func (b *bench) pass() ctrl.Result {
	b.Helper()
	result, err := b.Reconcile(b.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: workName}})
	if err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
	return result
}

func (b *bench) requests() map[string]int {
	n := map[string]int{}
	for _, a := range b.objects.Actions() {
		n[a.GetVerb()]++
	}
	return n
}

// checkRequests fails the test if requests were others, or objects were read more often.
func (b *bench) checkRequests(when string, want map[string]int, reads int) {
	b.Helper()
	got := b.requests()
	if got["get"] > reads {
		b.Errorf("objects were read %d times%s, want %d at most", got["get"], when, reads)
	}
	delete(got, "get")
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("requests%s (-want +got):\n%s", when, diff)
	}
}

// vanish makes ConfigMaps go.
func (b *bench) vanish(from, to int) {
	b.Helper()
	for i := from; i < to; i++ {
		if err := b.objects.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "default",
			fmt.Sprintf("cm-%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	synctest.Wait()
}

func (b *bench) listed() int {
	b.Helper()
	amw := &workv1.AppliedManifestWork{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
		b.Fatal(err)
	}
	return len(amw.Status.AppliedResources)
}

// track has the objects tracked, as those are that the agent has applied.
func (b *bench) track() {
	b.Helper()
	amw := &workv1.AppliedManifestWork{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
		b.Fatal(err)
	}
	for _, r := range amw.Status.AppliedResources {
		live, err := b.objects.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"), r.Namespace, r.Name)
		if err != nil {
			b.Fatal(err)
		}
		b.Applied.Tracked.Track(workName, appliedmanifestwork.Object(r))
		// The first object has the list of all start, which may be over before the others are tracked.
		b.Applied.Tracked.Saw(appliedmanifestwork.Object(r), live.(*metav1.PartialObjectMetadata))
	}
	synctest.Wait()
}

// WK-14: each object is deleted once, and read only by an agent that has not applied it itself. What does not go shows in the
// status when nothing else goes any more, and what does costs no write.
func TestManyObjectsGo(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"applied before": true, "after a restart": false} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testManyObjectsGo(t, applied) }) })
	}
}

func testManyObjectsGo(t *testing.T, applied bool) {
	const all = 100
	b := newBench(t, all)
	once := map[string]int{"delete": all, "list": 1, "watch": 1}
	atMost := 0
	if applied {
		b.track()
	} else {
		atMost = all // fewer, if the watch has events of some before their turn
	}
	b.pass()
	b.vanish(0, 60)
	if again := b.pass().RequeueAfter; again != quiet {
		t.Errorf("another look after %s, want %s", again, quiet)
	}
	b.checkRequests("", once, atMost)
	if n := b.listed(); n != all {
		t.Errorf("the status was written at once: %d are left", n)
	}
	<-time.After(quiet)
	if again := b.pass().RequeueAfter; again != reportAfter-quiet {
		t.Errorf("another look after %s, want %s", again, reportAfter-quiet)
	}
	if n := b.listed(); n != 40 {
		t.Errorf("%d are left by the status, want 40", n)
	}
	b.vanish(60, all)
	b.pass()
	if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, &workv1.AppliedManifestWork{}); !apierrors.IsNotFound(err) {
		t.Errorf("the AppliedManifestWork is still there: %v", err)
	}
	b.checkRequests(" at the end", once, atMost)
	b.pass()
	if _, begun := b.deletions.Load(workName); begun {
		t.Error("the deletion is remembered after its end")
	}
}

// change changes the first ConfigMap.
func (b *bench) change(version string, f func(*metav1.PartialObjectMetadata)) {
	b.Helper()
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	o, err := b.objects.Tracker().Get(configMaps, "default", "cm-0")
	if err != nil {
		b.Fatal(err)
	}
	changed := o.DeepCopyObject().(*metav1.PartialObjectMetadata)
	changed.ResourceVersion = version
	f(changed)
	if err := b.objects.Tracker().Update(configMaps, changed, "default"); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// WK-12 WK-14: what delays a deletion is reported after a while without progress, and not any more once there is some; a work that
// does not want to wait for dependents any more has them deleted with another policy.
func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 5)
		b.track()
		notified := 0
		b.Applied.ListenToDelays(func(string) { notified++ })
		b.propagate(metav1.DeletePropagationForeground)
		b.pass()
		setFinalizers := func(version string, finalizers ...string) {
			b.change(version, func(o *metav1.PartialObjectMetadata) {
				o.Finalizers, o.DeletionTimestamp = finalizers, new(metav1.Now())
			})
		}
		setFinalizers("2", metav1.FinalizerDeleteDependents)
		b.pass()
		b.vanish(1, 4)
		<-time.After(reportAfter - quiet)
		b.pass()
		<-time.After(reportAfter - quiet)
		b.pass()
		if notified > 0 || b.Applied.Delay(workName) != nil {
			t.Errorf("told %d times of %+v, after progress", notified, b.Applied.Delay(workName))
		}
		<-time.After(quiet)
		b.pass()
		want := &conditions.Delay{Left: 2, Dependents: true, Reasons: []string{
			"configmaps default/cm-0 waits for the garbage collector of the cluster to delete its dependents (finalizer foregroundDeletion)",
			"configmaps default/cm-4 is being deleted",
		}}
		if diff := cmp.Diff(want, b.Applied.Delay(workName)); diff != "" {
			t.Errorf("delay (-want +got):\n%s", diff)
		}
		b.pass()
		if notified != 1 {
			t.Errorf("told %d times of the same", notified)
		}
		setFinalizers("3", metav1.FinalizerDeleteDependents, "example.com/held")
		b.pass()
		if d := b.Applied.Delay(workName); notified != 2 || d.Reasons[0] != "configmaps default/cm-0 has the finalizers example.com/held" {
			t.Errorf("told %d times, at last of %+v", notified, d)
		}
		b.propagate(metav1.DeletePropagationBackground)
		b.pass()
		b.pass()
		if n := b.requests()["delete"]; n < 6 || n > 7 {
			t.Errorf("%d deletions, want one more", n)
		}
		b.vanish(0, 1)
		b.pass()
		if notified != 3 || b.Applied.Delay(workName) != nil {
			t.Errorf("told %d times, at last of %+v", notified, b.Applied.Delay(workName))
		}
	})
}

// propagate sets the policy of the AppliedManifestWork.
func (b *bench) propagate(policy metav1.DeletionPropagation) {
	b.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, fleet.AnnotationPropagationPolicy, policy)
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: workName}}
	if err := b.client.Patch(b.Context(), amw, client.RawPatch(types.MergePatchType, patch)); err != nil {
		b.Fatal(err)
	}
}

// WK-14: an object with a finalizer of another controller is looked at again when it changes.
func TestHeldObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.pass()
		b.change("2", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = nil }) // it has another owner now
		b.pass()
		if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, &workv1.AppliedManifestWork{}); !apierrors.IsNotFound(err) {
			t.Errorf("the AppliedManifestWork waits for what is not its own: %v", err)
		}
	})
}

// WK-14: an object with finalizers is reconciled again even without an event of its end, because its tracking has ended.
func TestHeldObjectGoesUnseen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.track()
		b.pass()
		b.change("2", func(o *metav1.PartialObjectMetadata) {
			o.Finalizers, o.DeletionTimestamp = []string{"example.com/held"}, new(metav1.Now())
		})
		<-time.After(reportAfter)
		b.pass()
		if again := b.pass().RequeueAfter; again <= 0 || again > watched {
			t.Fatalf("another look after %s, want one after %s at most", again, watched)
		}
		b.Applied.Tracked.Forget(workName, appliedmanifestwork.Object(workv1.AppliedManifestResourceMeta{Version: "v1",
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "default", Name: "cm-0"}}))
		b.vanish(0, 1)
		b.pass()
		if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, &workv1.AppliedManifestWork{}); !apierrors.IsNotFound(err) {
			t.Errorf("the AppliedManifestWork is still there: %v", err)
		}
	})
}

// WK-12: what is to stay is let go of, even if it was to be deleted before and something held it.
func TestReleaseOfWhatWasToGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.pass()
		amw := &workv1.AppliedManifestWork{}
		if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
			t.Fatal(err)
		}
		remaining, err := b.Applied.release(t.Context(), amw, amw.Status.AppliedResources)
		if err != nil || len(remaining) > 0 || b.requests()["patch"] != 1 {
			t.Errorf("remaining %v (%v), requests %v", remaining, err, b.requests())
		}
	})
}

// WK-12: a delete option that changes while something holds the objects of a deleted work has what it orphans let go of, and the
// AppliedManifestWork does not wait for that any more.
func TestOrphanDuringDeletion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		option *workv1.DeleteOption
		owned  int
	}{
		"no option":  {nil, 2},
		"Foreground": {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}, 2},
		"Orphan":     {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}, 0},
		"SelectivelyOrphan": {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
				{Resource: "configmaps", Namespace: "default", Name: "cm-0"}}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 2)
				b.track()
				b.pass() // the objects are requested to go, and stay
				amw := &workv1.AppliedManifestWork{}
				if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
					t.Fatal(err)
				}
				work := &workv1.ManifestWork{}
				work.Spec.DeleteOption = test.option
				fresh := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
				if err := b.Applied.DeleteApplied(t.Context(), b.client, work, amw, fresh); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				b.pass()
				if released := b.requests()["patch"]; released != 2-test.owned {
					t.Errorf("%d objects were released, want %d", released, 2-test.owned)
				}
				switch err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); {
				case test.owned == 0 && !apierrors.IsNotFound(err):
					t.Errorf("the AppliedManifestWork waits for what it does not own: %v", err)
				case test.owned > 0 && (err != nil || len(amw.Status.AppliedResources) != test.owned):
					t.Errorf("it lists %v (%v), want %d objects", amw.Status.AppliedResources, err, test.owned)
				}
			})
		})
	}
}

// WK-05, WK-12: the annotation that says which fields a work names goes with the work, and with the manifest, also from an object that the
// work has never owned.
func TestFieldsOfOrphan(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bench, *workv1.AppliedManifestWork) error{
		"it is released": func(b *bench, amw *workv1.AppliedManifestWork) error {
			_, err := b.Applied.release(b.Context(), amw, amw.Status.AppliedResources)
			return err
		},
		"it is pruned": func(b *bench, amw *workv1.AppliedManifestWork) error {
			return b.Applied.Prune(b.Context(), b.client, amw, nil, amw.Status.AppliedResources)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				amw, key, other := &workv1.AppliedManifestWork{}, appliedmanifestwork.FieldsAnnotation(workName),
					appliedmanifestwork.FieldsAnnotation("hash-other")
				if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
					t.Fatal(err)
				}
				b.change("2", func(o *metav1.PartialObjectMetadata) {
					o.OwnerReferences, o.Annotations = nil, map[string]string{key: "{}", other: "{}"}
				})
				for range 2 { // the second one finds nothing to do
					if err := end(b, amw); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				live, err := b.objects.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"), "default", "cm-0")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(map[string]string{other: "{}"}, live.(*metav1.PartialObjectMetadata).Annotations); diff != "" {
					t.Errorf("annotations (-want +got):\n%s", diff)
				}
				if requests := b.requests(); requests["patch"] != 1 || requests["delete"] != 0 {
					t.Errorf("requests %v", requests)
				}
			})
		})
	}
}

// unmapped is a client for a cluster where an API group is down.
type unmapped struct{ client.Client }

func (unmapped) RESTMapper() meta.RESTMapper { return brokenMapper{} }

type brokenMapper struct{ meta.RESTMapper }

func (brokenMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errBroken
}

// WK-14: that it cannot be found out what there is to delete is said, until it can.
func TestBlockedDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		amw := &workv1.AppliedManifestWork{}
		if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
			t.Fatal(err)
		}
		amw.Annotations = map[string]string{fleet.AnnotationManifests: appliedmanifestwork.EncodeNamed([]manifest.Identity{
			{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "default", Name: "cm-1"}})}
		if err := b.client.Update(t.Context(), amw); err != nil {
			t.Fatal(err)
		}
		b.managed = unmapped{b.client}
		request := ctrl.Request{NamespacedName: types.NamespacedName{Name: workName}}
		if _, err := b.Reconcile(t.Context(), request); !errors.Is(err, errBroken) {
			t.Errorf("got error %v, want %v", err, errBroken)
		}
		want := &conditions.Delay{Left: 1, Reasons: []string{"could not find the resource of v1 ConfigMap default/cm-1: broken"}}
		if diff := cmp.Diff(want, b.Applied.Delay(workName)); diff != "" {
			t.Errorf("delay (-want +got):\n%s", diff)
		}
		b.managed = b.client
		b.pass()
		if d := b.Applied.Delay(workName); d != nil {
			t.Errorf("delay %+v, after it could", d)
		}
	})
}

// WK-12: a propagation policy that changes during the deletion takes effect whatever becomes of the objects that are orphaned. What is not
// known to be released stays named.
func TestPolicyChangesWithoutRelease(t *testing.T) {
	t.Parallel()
	for name, breakDown := range map[string]func(*bench){
		"an orphan cannot be released": func(b *bench) {
			b.objects.PrependReactor("patch", "configmaps", func(clientgotesting.Action) (bool, runtime.Object, error) {
				return true, nil, errBroken
			})
		},
		"an API group is down": func(b *bench) { b.client = unmapped{b.client} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testPolicyChangesWithoutRelease(t, breakDown) })
		})
	}
}

func testPolicyChangesWithoutRelease(t *testing.T, breakDown func(*bench)) {
	b := newBench(t, 2)
	breakDown(b)
	amw := &workv1.AppliedManifestWork{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
		t.Fatal(err)
	}
	named := appliedmanifestwork.EncodeNamed([]manifest.Identity{{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Namespace: "default", Name: "cm-0"}})
	amw.Annotations = map[string]string{fleet.AnnotationManifests: named,
		fleet.AnnotationPropagationPolicy: string(metav1.DeletePropagationForeground)}
	if err := b.client.Update(t.Context(), amw); err != nil {
		t.Fatal(err)
	}
	work := &workv1.ManifestWork{}
	work.Spec.Workload.Manifests = []workv1.Manifest{{}}
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
		SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
			{Resource: "configmaps", Namespace: "default", Name: "cm-0"}}}}
	fresh := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleet.AnnotationManifests: named}}}
	if err := b.Applied.DeleteApplied(t.Context(), b.client, work, amw, fresh); !errors.Is(err, errBroken) {
		t.Errorf("got error %v, want %v", err, errBroken)
	}
	synctest.Wait()
	if err := b.client.Get(t.Context(), client.ObjectKey{Name: workName}, amw); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{fleet.AnnotationManifests: named, fleet.AnnotationPropagationPolicy: string(metav1.DeletePropagationBackground)}
	if diff := cmp.Diff(want, amw.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}
