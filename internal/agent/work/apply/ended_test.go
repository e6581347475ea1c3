package apply

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

func jobOf(image string) string {
	return `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"default","name":"once"},
		"spec":{"ttlSecondsAfterFinished":5,"template":{"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}}}`
}

func jobWork(image string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "work", UID: "work", Generation: 1}}
	w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(jobOf(image))}}}
	return w
}

// WK-17: a Job that has ended is not made again when it is missing, also by an agent that has just started; one with another template is.
// One that is still there is applied.
func TestJobRunsOnce(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, meta.RESTScopeNamespace)
	ended := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(jobOf("a")), &ended.Object); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		image    string
		ended    bool
		exists   bool
		strategy workv1.UpdateStrategyType
		made     bool
	}{
		"it has not ended":                    {"a", false, false, workv1.UpdateStrategyTypeUpdate, true},
		"it has ended":                        {"a", true, false, workv1.UpdateStrategyTypeUpdate, false},
		"it has ended, CreateOnly":            {"a", true, false, workv1.UpdateStrategyTypeCreateOnly, false},
		"it has ended and exists":             {"a", true, true, workv1.UpdateStrategyTypeUpdate, false},
		"it has ended and exists, CreateOnly": {"a", true, true, workv1.UpdateStrategyTypeCreateOnly, false},
		"another has ended":                   {"b", true, false, workv1.UpdateStrategyTypeUpdate, true},
		"no Job of this agent":                {"b", false, false, workv1.UpdateStrategyTypeUpdate, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := dynamicfake.NewSimpleDynamicClient(scheme)
			jobs := objects.Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}).Namespace("default")
			if test.exists {
				if _, err := jobs.Create(t.Context(), ended.DeepCopy(), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				objects.ClearActions()
			}
			clock := clocktesting.NewFakeClock(metav1.Now().Time)
			tracked := tracker.New(t.Context(), metadatafake.NewSimpleMetadataClient(scheme))
			a := &applier{objects: objects, mapper: mapper, tracked: tracked, backoff: repair.NewBackoff(clock, repairsAtOnce), clock: clock}
			amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hash-work", UID: "amw"}}
			if test.ended {
				encoded, err := json.Marshal(endedJobs{jobName(ended): specHash(ended)})
				if err != nil {
					t.Fatal(err)
				}
				amw.Annotations = map[string]string{fleet.AnnotationEndedJobs: string(encoded)}
			}
			work := jobWork(test.image)
			work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: "batch", Resource: "jobs", Namespace: "default", Name: "once"},
				UpdateStrategy:     &workv1.UpdateStrategy{Type: test.strategy},
			}}
			results, _ := a.apply(t.Context(), amw, work, nil)
			o := results[0]
			made := 0
			for _, action := range objects.Actions() {
				if action.GetVerb() == "create" {
					made++
				}
			}
			if o.err != nil || (made == 1) != test.made || o.frozen == (test.made || test.exists) {
				t.Errorf("made %d times; frozen %t, %v", made, o.frozen, o.err)
			}
			if !test.exists {
				return
			}
			live, err := jobs.Get(t.Context(), "once", metav1.GetOptions{})
			if err != nil || len(live.GetOwnerReferences()) != 1 {
				t.Errorf("the Job that is there was not applied: %v (%v)", live, err)
			}
		})
	}
}

// WK-17: it is written down that a Job has ended as soon as that was read, of this Job and no other of its name, and forgotten with the
// manifest.
func TestRecordEnded(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := newReporter(t)
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, r.work.Name)}}
	r.managed = fake.NewClientBuilder().WithScheme(scheme).WithObjects(amw).Build()
	outcomeOf := func(status string) ([]manifestResult, []*unstructured.Unstructured) {
		o := manifestResult{resolved: true, presence: conditions.Present, uid: "now", applied: true,
			mapping: &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}}}
		o.manifest = &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(jobOf("a")), &o.manifest.Object); err != nil {
			t.Fatal(err)
		}
		o.identity = manifest.Identify(o.manifest)
		live := o.manifest.DeepCopy()
		var content map[string]any
		if err := json.Unmarshal([]byte(status), &content); err != nil {
			t.Fatal(err)
		}
		live.Object["status"] = content
		live.SetUID("now")
		if content["other"] != nil {
			live.SetUID("before")
		}
		if content["unknown"] != nil {
			return []manifestResult{{identity: o.identity, err: errors.New("discovery fails")}}, []*unstructured.Unstructured{nil}
		}
		if content["deleted"] != nil || content["refused"] != nil {
			o.err, o.applied = errors.New("it is not applied"), content["refused"] == nil
		}
		return []manifestResult{o}, []*unstructured.Unstructured{live}
	}
	expect := func(name, status string, want int) {
		t.Helper()
		var outcomes []manifestResult
		var live []*unstructured.Unstructured
		if status != "" {
			outcomes, live = outcomeOf(status)
		}
		r.observe(amw.Name, r.work, nil, outcomes, live)
		if err := r.recordEnded(t.Context(), amw, outcomes); err != nil {
			t.Fatal(err)
		}
		stored := &workv1.AppliedManifestWork{}
		if err := r.managed.Get(t.Context(), client.ObjectKeyFromObject(amw), stored); err != nil {
			t.Fatal(err)
		}
		if got := endedJobsOf(stored); len(got) != want {
			t.Errorf("%s: %v has ended", name, got)
		}
	}
	expect("it runs", `{"active":1}`, 0)
	expect("another of its name", `{"other":true,"conditions":[{"type":"Complete","status":"True"}]}`, 0)
	expect("it is complete", `{"conditions":[{"type":"Complete","status":"True"}]}`, 1)
	expect("it is missing", `{}`, 1)
	expect("its kind is not known now", `{"unknown":true}`, 1)
	expect("the work has it no more", "", 0)
	expect("it has failed", `{"conditions":[{"type":"Failed","status":"True"}]}`, 1)
	expect("the work has it no more", "", 0)
	expect("another manifest was refused", `{"refused":true,"conditions":[{"type":"Complete","status":"True"}]}`, 0)
	expect("it is being deleted", `{"deleted":true,"conditions":[{"type":"Complete","status":"True"}]}`, 1)
}

// WK-17: a Job that ends and goes between two passes is not made again by the second, also if there was one while it was being deleted, and
// if it cannot be written down that it has ended, which the work says.
func TestJobEndsBetweenPasses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deleted bool
		refused error
	}{
		"it goes at once":           {},
		"it is deleted for a while": {deleted: true},
		"its end cannot be written": {refused: errors.New("denied by a webhook")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work"), UID: "amw"}}
			r, d, work := newReporter(t), newDisputed(t), jobWork("a")
			managed := clientWith(t, amw)
			r.hub, r.managed = clientWith(t, work), managed
			r.Record = func(*workv1.ManifestWork, string, string, string, string) {}
			r.Applied = &deletion.Cluster{Tracked: d.tracked}
			r.applier, d.managed = d.applier, r.managed
			d.mapper.(*meta.DefaultRESTMapper).Add(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, meta.RESTScopeNamespace)
			objects, made := d.objects.(*dynamicfake.FakeDynamicClient), 0
			objects.PrependReactor("create", "jobs", func(action kubetesting.Action) (bool, runtime.Object, error) {
				made++
				action.(kubetesting.CreateAction).GetObject().(*unstructured.Unstructured).SetUID("once")
				return false, nil, nil
			})
			pass := func() error {
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(work)})
				return err
			}
			if err := pass(); err != nil {
				t.Fatal(err)
			}
			jobs := objects.Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}).Namespace("default")
			live, err := jobs.Get(t.Context(), "once", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if test.deleted {
				live.SetDeletionTimestamp(new(metav1.Now()))
				if _, err := jobs.Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				if pass() == nil {
					t.Fatal("a Job that is being deleted is applied")
				}
			}
			live.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
			o := &r.lastResults.get("work").results[0]
			r.Observer.Observe(amw.Name, o.object(), o.query, live)
			if err := jobs.Delete(t.Context(), "once", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if test.refused != nil {
				r.managed = interceptor.NewClient(managed, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object,
					client.Patch, ...client.PatchOption) error {
					return test.refused
				}})
			}
			for range 2 { // the second time, nothing is known any more of what was read
				if err := pass(); !errors.Is(err, test.refused) || made != 1 {
					t.Errorf("made %d times, %v", made, err)
				}
			}
			if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil {
				t.Fatal(err)
			}
			says := slices.ContainsFunc(work.Status.Conditions, func(cond metav1.Condition) bool {
				return strings.Contains(cond.Message, "denied by a webhook")
			})
			if says != (test.refused != nil) {
				t.Errorf("conditions %+v", work.Status.Conditions)
			}
			r.managed = managed
			if err := pass(); err != nil {
				t.Fatal(err)
			}
			if err := managed.Get(t.Context(), client.ObjectKeyFromObject(amw), amw); err != nil || len(endedJobsOf(amw)) != 1 || made != 1 {
				t.Errorf("made %d times, and %v has ended (%v)", made, endedJobsOf(amw), err)
			}
		})
	}
}
