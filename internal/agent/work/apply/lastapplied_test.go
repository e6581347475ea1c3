package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// widgetWith is a manifest with the fields of metadata.
func widgetWith(t *testing.T, metadata string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if metadata != "" {
		metadata = "," + metadata
	}
	text := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"one"` + metadata + `}}`
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// ownerNamed is the AppliedManifestWork of a work.
func ownerNamed(work string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: workv1.GroupVersion.String(), Kind: "AppliedManifestWork",
		Name: fleet.AppliedManifestWorkName(hubHash, work), UID: types.UID("uid-" + work)}
}

// updates is the task of a work that has the manifest under Update.
func updates(work string, object *unstructured.Unstructured) *task {
	widgets := &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}}
	o := &manifestResult{mapping: widgets, identity: manifest.Identify(object)}
	t := newTask(o, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: work}}, ownerNamed(work), object)
	t.rememberFields()
	return t
}

// mergeInto writes the manifest of a task over the live object.
func mergeInto(live *unstructured.Unstructured, t *task) *unstructured.Unstructured {
	merged, _ := manifest.Merge(t.required, live, t.lastApplied(live))
	return merged
}

// keysIn are the keys of an object, but for the owners and annotations that agents write.
func keysIn(object *unstructured.Unstructured) map[string]bool {
	keys := map[string]bool{}
	for key := range manifest.KeysOf(object) {
		keys[key.Field+" "+key.Name] = true
	}
	for _, owner := range object.GetOwnerReferences() {
		if tracker.IsWork(owner) {
			delete(keys, "ownerReferences "+string(owner.UID))
		}
	}
	return keys
}

// WK-05: what a manifest named and names no more goes, also if the agent was restarted in between; what others have stays.
func TestKeysThatGo(t *testing.T) {
	t.Parallel()
	const (
		ours = `"labels":{"a":"1","b":"2"},"annotations":{"c":"3"},"finalizers":["f.io/f"],` +
			`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"o"}]`
		label     = `{"f:metadata":{"f:labels":{"f:a":{}}}}`
		finalizer = `{"f:metadata":{"f:finalizers":{"v:\"f.io/f\"":{}}}}`
	)
	all := []string{"labels a", "labels b", "annotations c", "finalizers f.io/f", "ownerReferences o"}
	writtenBy := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) func(*unstructured.Unstructured) {
		return func(live *unstructured.Unstructured) {
			live.SetManagedFields(append(live.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: manager, Operation: operation,
				APIVersion: "example.com/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}))
		}
	}
	for name, test := range map[string]struct {
		last, next string
		// others is what else has become of the object.
		others func(*unstructured.Unstructured)
		want   []string
	}{
		"everything is still named": {last: ours, next: ours, want: all},
		"whole fields":              {last: ours, next: ``},
		"empty fields instead":      {last: ours, next: `"labels":{},"annotations":null,"finalizers":[],"ownerReferences":[]`},
		"one of several": {last: ours, next: `"labels":{"b":"9"},"finalizers":["f.io/f"]`,
			want: []string{"labels b", "finalizers f.io/f"}},
		"a label becomes an annotation": {last: `"labels":{"a":"1"}`, next: `"annotations":{"a":"1"}`, want: []string{"annotations a"}},
		"a finalizer and its name as a label": {last: `"finalizers":["f.io/f"],"labels":{"f.io/f":""}`, next: `"labels":{"f.io/f":""}`,
			want: []string{"labels f.io/f"}},
		"a value that others have changed, and nobody knows who": {last: `"labels":{"a":"1"}`, others: func(live *unstructured.Unstructured) {
			live.SetLabels(map[string]string{"a": "x"})
		}},
		"keys of others": {last: ours, others: func(live *unstructured.Unstructured) {
			live.SetLabels(map[string]string{"a": "1", "x": "1"})
			live.SetFinalizers([]string{"g.io/g", "f.io/f"})
			live.SetOwnerReferences(append(live.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}))
		}, want: []string{"labels x", "finalizers g.io/g", "ownerReferences p"}},
		"a key that another client applies as well": {last: ours, others: writtenBy("helm", metav1.ManagedFieldsOperationApply, label),
			want: []string{"labels a"}},
		"a finalizer that a controller had added before": {last: ours,
			others: writtenBy("controller", metav1.ManagedFieldsOperationUpdate, finalizer), want: []string{"finalizers f.io/f"}},
		"what the agent has written": {last: ours, others: writtenBy("work-agent", metav1.ManagedFieldsOperationUpdate, label)},
		"what the agent applied when the strategy was ServerSideApply": {last: ours,
			others: writtenBy("work-agent-x", metav1.ManagedFieldsOperationApply, label)},
		"what the original's agent has written": {last: ours, others: writtenBy("work", metav1.ManagedFieldsOperationUpdate, finalizer)},
		"a key that another work names as well": {last: ours, others: func(live *unstructured.Unstructured) {
			other := updates("b", widgetWith(t, `"labels":{"a":"1"},"finalizers":["f.io/f"]`))
			*live = *mergeInto(live, other)
		}, want: []string{"labels a", "finalizers f.io/f"}},
		"a key that another work names by itself": {last: `"labels":{"a":"1"}`, others: func(live *unstructured.Unstructured) {
			*live = *mergeInto(live, updates("b", widgetWith(t, `"labels":{"x":"1"}`)))
		}, want: []string{"labels x"}},
		"an object that others have made again": {last: ours, others: func(live *unstructured.Unstructured) {
			*live = *widgetWith(t, `"labels":{"a":"1","x":"1"}`)
			writtenBy("kubectl", metav1.ManagedFieldsOperationUpdate, label)(live)
		}, want: []string{"labels a", "labels x"}},
		"the removal of what others have": {last: `"labels":{"a-":""}`, others: func(live *unstructured.Unstructured) {
			live.SetLabels(map[string]string{"a": "1"})
		}, want: []string{"labels a"}},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %t", name, restarted), func(t *testing.T) {
				t.Parallel()
				first := updates("a", widgetWith(t, test.last))
				first.written = first.manifest
				live := manifest.ForCreate(first.required)
				if test.others != nil {
					test.others(live)
				}
				second := updates("a", widgetWith(t, test.next))
				if !restarted {
					second.before = first.manifestResult
				}
				merged := mergeInto(live, second)
				want := map[string]bool{}
				for _, key := range test.want {
					want[key] = true
				}
				if diff := cmp.Diff(want, keysIn(merged)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(merged.GetOwnerReferences()) == 0 {
					t.Error("the owner has gone")
				}
				third := updates("a", widgetWith(t, test.next))
				if _, changed := manifest.Merge(third.required, merged, third.lastApplied(merged)); changed {
					t.Error("the next pass changes it again")
				}
			})
		}
	}
}

// WK-05: a manifest that names AppliedManifestWorks as owners, as one does that was exported, takes no owner away when it does not name
// them any more.
func TestOwnersThatStay(t *testing.T) {
	t.Parallel()
	exported := widgetWith(t, "")
	exported.SetOwnerReferences([]metav1.OwnerReference{ownerNamed("a"), ownerNamed("b")})
	first, second := updates("a", exported), updates("a", widgetWith(t, ""))
	live := manifest.ForCreate(first.required)
	merged := mergeInto(live, second)
	if diff := cmp.Diff(exported.GetOwnerReferences(), merged.GetOwnerReferences()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// WK-05: an answer that never came: the object has what the agent does not remember to have written.
func TestKeysOfLostWrite(t *testing.T) {
	t.Parallel()
	first, second := updates("a", widgetWith(t, `"labels":{"a":"1"}`)), updates("a", widgetWith(t, `"labels":{"b":"1"}`))
	first.written = first.manifest
	second.before = first.manifestResult
	live := mergeInto(manifest.ForCreate(first.required), second)
	third := updates("a", widgetWith(t, ""))
	third.before = first.manifestResult
	if labels := mergeInto(live, third).GetLabels(); len(labels) != 0 {
		t.Errorf("%v is left", labels)
	}
}

// WK-05, WK-09: what is removed when the strategy changes along with the manifest.
func TestKeysWhenStrategyChanges(t *testing.T) {
	t.Parallel()
	const label = `,"labels":{"a":"1"},"finalizers":["f.io/f"]`
	for name, test := range map[string]struct {
		strategies []workv1.UpdateStrategyType // of the works with and without the label
		exists     bool                        // the object is there before, with the label
		left       bool
	}{
		"Update":                           {strategies: []workv1.UpdateStrategyType{"Update", "Update"}},
		"Update turns to CreateOnly":       {strategies: []workv1.UpdateStrategyType{"Update", "CreateOnly"}, left: true},
		"Update turns to ReadOnly":         {strategies: []workv1.UpdateStrategyType{"Update", "ReadOnly"}, left: true},
		"CreateOnly turns to Update":       {strategies: []workv1.UpdateStrategyType{"CreateOnly", "Update"}},
		"ReadOnly turns to Update":         {strategies: []workv1.UpdateStrategyType{"ReadOnly", "Update"}, exists: true, left: true},
		"by way of CreateOnly":             {strategies: []workv1.UpdateStrategyType{"Update", "CreateOnly", "Update"}, left: true},
		"CreateOnly leaves what was there": {strategies: []workv1.UpdateStrategyType{"CreateOnly", "CreateOnly"}, exists: true, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisputed(t)
			if test.exists {
				live := widgetWith(t, `"namespace":"default","labels":{"a":"1"},"finalizers":["f.io/f"]`)
				live.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
				live.SetName("web")
				d.store(live, "kubectl")
			}
			for i, strategy := range test.strategies {
				work := deploys("a", 2, "")
				if i == 0 {
					work = deploys("a", 2, label)
				}
				work.Generation = int64(i + 1)
				work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
					ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"},
					UpdateStrategy:     &workv1.UpdateStrategy{Type: strategy},
				}}
				d.works = []*workv1.ManifestWork{work}
				d.pass(t)
				if err := d.outcome("a").err; err != nil {
					t.Fatal(err)
				}
			}
			if left := d.live.GetLabels()["a"] != "" && len(d.live.GetFinalizers()) > 0; left != test.left {
				t.Errorf("labels %v, finalizers %v", d.live.GetLabels(), d.live.GetFinalizers())
			}
		})
	}
}

// WK-05: of a manifest that the agent has not written, no field goes when a later one does not name it.
func TestFieldNeverWritten(t *testing.T) {
	t.Parallel()
	resource := workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"}
	ignoring := &workv1.ServerSideApplyConfig{IgnoreFields: []workv1.IgnoreField{{JSONPaths: []string{".spec.replicas"}}}}
	for name, test := range map[string]struct {
		strategy workv1.UpdateStrategy // of the manifest that names the replicas
		exists   bool                  // a team has made the object before
		refused  bool                  // the API server refuses that manifest
		passes   int
		left     bool
	}{
		"Update":                         {workv1.UpdateStrategy{Type: "Update"}, true, false, 1, false},
		"Update, refused":                {workv1.UpdateStrategy{Type: "Update"}, true, true, 2, true},
		"CreateOnly":                     {workv1.UpdateStrategy{Type: "CreateOnly"}, true, false, 1, true},
		"CreateOnly has made it":         {workv1.UpdateStrategy{Type: "CreateOnly"}, false, false, 2, false},
		"ServerSideApply":                {workv1.UpdateStrategy{Type: "ServerSideApply"}, true, false, 1, false},
		"ServerSideApply that ignores":   {workv1.UpdateStrategy{Type: "ServerSideApply", ServerSideApply: ignoring}, true, false, 1, true},
		"ServerSideApply makes, ignores": {workv1.UpdateStrategy{Type: "ServerSideApply", ServerSideApply: ignoring}, false, false, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := deploys("a", 2, "")
			work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{ResourceIdentifier: resource, UpdateStrategy: &test.strategy}}
			d := newDisputed(t, work)
			if test.exists {
				d.store(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
					"metadata": map[string]any{"namespace": "default", "name": "web"}, "spec": map[string]any{"replicas": int64(2)}}}, "kubectl")
			}
			d.refuse = test.refused
			for range test.passes {
				d.pass(t)
				if err := d.outcome("a").err; (err != nil) != test.refused {
					t.Fatalf("the first manifest: %v", err)
				}
			}
			next := withoutReplicas(deploys("a", 2, ""))
			next.Generation = 2
			d.works, d.refuse = []*workv1.ManifestWork{next}, false
			d.pass(t)
			if _, left, _ := unstructured.NestedInt64(d.live.Object, "spec", "replicas"); left != test.left || d.outcome("a").err != nil {
				t.Errorf("the replicas are left: %t, want %t (%v)", left, test.left, d.outcome("a").err)
			}
		})
	}
}

// WK-05: a finalizer that the manifest does not name any more goes from an object that is being deleted, too, which is then made again.
func TestFinalizerOfDeletedObject(t *testing.T) {
	t.Parallel()
	d := newDisputed(t, deploys("a", 2, `,"finalizers":["f.io/f"]`))
	d.pass(t)
	now := metav1.Now()
	d.live.SetDeletionTimestamp(&now)
	d.live.SetFinalizers(append(d.live.GetFinalizers(), "g.io/g"))
	next := deploys("a", 2, "")
	next.Generation = 2
	d.works = []*workv1.ManifestWork{next}
	d.pass(t)
	if err := d.outcome("a").err; err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"g.io/g"}, d.live.GetFinalizers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.live = nil // as the API server does when the last one goes
	d.pass(t)
	if d.live == nil || d.outcome("a").err != nil || d.live.GetDeletionTimestamp() != nil {
		t.Errorf("%v, error %v", d.live, d.outcome("a").err)
	}
}
