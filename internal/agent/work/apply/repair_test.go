package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// disputed is a cluster with one Deployment, which several works and others may write, and the applier of the works. The watch knows
// nothing, so every pass looks at the object, unless its repair is held back.
type disputed struct {
	*applier
	clock  *clocktesting.FakeClock
	live   *unstructured.Unstructured
	writes int
	// admit is what admission makes of each write, and refuse whether it refuses updates.
	admit  func(*unstructured.Unstructured)
	refuse bool
	works  []*workv1.ManifestWork
	last   map[string]*workResult
}

func newDisputed(t *testing.T, works ...*workv1.ManifestWork) *disputed {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	unwatched := metadatafake.NewSimpleMetadataClient(scheme)
	unwatched.PrependReactor("list", "*", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not now")
	})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	objects := dynamicfake.NewSimpleDynamicClient(scheme)
	d := &disputed{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), works: works, last: map[string]*workResult{}}
	objects.PrependReactor("*", "deployments", d.serve)
	d.applier = &applier{objects: objects, mapper: mapper, tracked: tracker.New(t.Context(), unwatched),
		names: &appliedmanifestwork.Names{HubHash: hubHash}, backoff: repair.NewBackoff(d.clock, repairsAtOnce), clock: d.clock}
	return d
}

// serve answers as an API server does: what changes nothing is not written.
func (d *disputed) serve(action kubetesting.Action) (bool, runtime.Object, error) {
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	switch action := action.(type) {
	case kubetesting.UpdateAction: // before CreateAction, which has the same methods
		if action.GetVerb() == "create" {
			if d.live != nil {
				return true, nil, apierrors.NewAlreadyExists(resource, "web")
			}
			d.store(action.GetObject().(*unstructured.Unstructured), "work-agent")
			d.live.SetUID(types.UID(fmt.Sprint("uid-", d.writes)))
			d.writes++
			return true, d.live.DeepCopy(), nil
		}
		if d.refuse {
			return true, nil, errors.New("refused")
		}
		if d.store(action.GetObject().(*unstructured.Unstructured), "work-agent") {
			d.writes++
		}
		return true, d.live.DeepCopy(), nil
	case kubetesting.PatchAction: // before GetAction, the same
		live := d.live
		if live == nil { // server-side apply makes objects
			live = &unstructured.Unstructured{Object: map[string]any{}}
		}
		changed, err := mergePatch(live, action.GetPatch())
		if err != nil {
			return true, nil, err
		}
		if d.store(changed, "work-agent") {
			d.writes++
		}
		return true, d.live.DeepCopy(), nil
	case kubetesting.GetAction:
		if d.live == nil {
			return true, nil, apierrors.NewNotFound(resource, "web")
		}
		return true, d.live.DeepCopy(), nil
	default:
		return false, nil, nil
	}
}

func mergePatch(object *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return nil, err
	}
	patched := &unstructured.Unstructured{}
	return patched, json.Unmarshal(after, &patched.Object)
}

// store reports whether the object has changed.
func (d *disputed) store(object *unstructured.Unstructured, manager string) bool {
	object = object.DeepCopy()
	if d.admit != nil {
		d.admit(object)
	}
	version := 0
	if d.live != nil {
		object.SetUID(d.live.GetUID())
		object.SetManagedFields(d.live.GetManagedFields())
		object.SetResourceVersion(d.live.GetResourceVersion())
		if fmt.Sprint(object.Object) == fmt.Sprint(d.live.Object) {
			return false
		}
		_, _ = fmt.Sscan(d.live.GetResourceVersion(), &version)
	}
	object.SetResourceVersion(fmt.Sprint(version + 1))
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"work-a\"}":{}}}}`)}})
	d.live = object
	return true
}

// pass has every work applied that is not up to date, as the controller does it.
func (d *disputed) pass(t *testing.T) {
	t.Helper()
	for _, w := range d.works {
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, w.Name), UID: w.UID}}
		last := d.last[w.Name]
		if last.isOf(w, amw.UID) && d.isUpToDate(&last.results[0], d.clock.Now()) {
			continue
		}
		results, _ := d.apply(t.Context(), amw, w, last)
		d.last[w.Name] = &workResult{work: w.UID, generation: w.Generation, owner: amw.UID, results: results}
	}
}

func (d *disputed) outcome(work string) *manifestResult { return &d.last[work].results[0] }

// deploys is a work with one Deployment.
func deploys(name string, replicas int, metadata string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("work-" + name), Generation: 1}}
	w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"default","name":"web"%s},"spec":{"replicas":%d}}`,
		metadata, replicas)}}}
	return w
}

// withoutReplicas takes the two replicas out of the manifest of a work.
func withoutReplicas(w *workv1.ManifestWork) *workv1.ManifestWork {
	raw := &w.Spec.Workload.Manifests[0].Raw
	*raw = bytes.ReplaceAll(*raw, []byte(`"replicas":2`), nil)
	return w
}

func scale(replicas int64) func(*disputed) {
	return func(d *disputed) {
		changed := d.live.DeepCopy()
		_ = unstructured.SetNestedField(changed.Object, replicas, "spec", "replicas")
		d.store(changed, "autoscaler")
	}
}

func remove(d *disputed) { d.live = nil }

// collectGarbage does what the garbage collector does about the owner with the name gone.
func collectGarbage(d *disputed) {
	owners := d.live.GetOwnerReferences()
	kept := slices.DeleteFunc(slices.Clone(owners), func(o metav1.OwnerReference) bool { return o.Name == "gone" })
	switch {
	case len(kept) == len(owners):
	case len(kept) == 0:
		d.live = nil
	default:
		changed := d.live.DeepCopy()
		changed.SetOwnerReferences(kept)
		d.store(changed, "kube-controller-manager")
	}
}

// WK-17: at most 20 writes of the agent in the first minute of a dispute, and 2 in each minute after it, for each object; the manifest is
// applied all the time, and says what is in dispute until the object was left alone for some minutes.
func TestRepairs(t *testing.T) {
	t.Parallel()
	const gone = `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"1"}]`
	createOnly := deploys("a", 2, "")
	createOnly.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly},
	}}
	for name, test := range map[string]struct {
		works []*workv1.ManifestWork
		// rival is what others do, again and again; nil if the works dispute the object among themselves.
		rival func(*disputed)
		admit func(*unstructured.Unstructured)
		// disputes are what the messages of the works contain.
		disputes []string
	}{
		"an autoscaler": {works: []*workv1.ManifestWork{deploys("a", 2, "")}, rival: scale(3),
			disputes: []string{"Fields in dispute: spec.replicas. They were last written by autoscaler. "}},
		"two works": {works: []*workv1.ManifestWork{deploys("a", 1, ""), deploys("b", 3, "")}, disputes: []string{
			"Fields in dispute: spec.replicas. The object is also named by ManifestWork b. ",
			"Fields in dispute: spec.replicas. The object is also named by ManifestWork a. "}},
		"two works and an autoscaler": {works: []*workv1.ManifestWork{deploys("a", 1, ""), deploys("b", 3, "")}, rival: scale(5),
			disputes: []string{"Fields in dispute: spec.replicas. ", "Fields in dispute: spec.replicas. "}},
		"somebody who deletes": {works: []*workv1.ManifestWork{deploys("a", 2, "")}, rival: remove,
			disputes: []string{"times. Who deletes it is not recorded. "}},
		"the garbage collector": {works: []*workv1.ManifestWork{deploys("a", 2, gone)}, rival: collectGarbage, disputes: []string{""}},
		"somebody who takes the owner away": {works: []*workv1.ManifestWork{createOnly}, rival: func(d *disputed) {
			changed := d.live.DeepCopy()
			changed.SetOwnerReferences(nil)
			d.store(changed, "controller")
		}, disputes: []string{"Fields in dispute: metadata.ownerReferences. They were last written by controller. "}},
		"a webhook": {works: []*workv1.ManifestWork{deploys("a", 2, "")}, admit: func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, int64(3), "spec", "replicas")
			o.SetLabels(map[string]string{"written": o.GetLabels()["written"] + "x"})
		}, disputes: []string{"No other client wrote them: the API server or an admission webhook changes what the agent writes. "}},
		"a webhook that undoes each write": {works: []*workv1.ManifestWork{deploys("a", 2, "")}, admit: func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, int64(3), "spec", "replicas")
		}, disputes: []string{""}},
		"a field that is not stored": {works: []*workv1.ManifestWork{deploys("a", 2, "")}, admit: func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "spec", "replicas")
		}, disputes: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisputed(t, test.works...)
			d.admit = test.admit
			d.pass(t)
			minutes := map[int]int{}
			for second := range 15 * 60 { // each second, the others act three times
				before := d.writes
				for range 3 {
					if d.live != nil && test.rival != nil {
						test.rival(d)
					}
					d.pass(t)
					for _, w := range d.works {
						if err := d.outcome(w.Name).err; err != nil {
							t.Fatalf("the manifest of %s is not applied any more: %v", w.Name, err)
						}
					}
				}
				minutes[second/60] += d.writes - before
				d.clock.Step(time.Second)
			}
			for minute, writes := range minutes {
				if most := 2; minute > 0 && writes > most || writes > 20 {
					t.Errorf("%d writes in minute %d", writes, minute)
				}
			}
			for i, w := range d.works {
				message := ""
				if dispute := d.outcome(w.Name).dispute; dispute != nil {
					message = dispute.String()
				}
				if want := test.disputes[i]; !strings.Contains(message, want) || (message == "") != (want == "") {
					t.Errorf("work %s says %q, want %q", w.Name, message, want)
				}
			}
			// The others stop, the works agree, and the repair that is due comes.
			d.works, d.admit = d.works[:1], nil
			for range 7 * 60 {
				d.clock.Step(time.Second)
				d.pass(t)
			}
			if o := d.outcome("a"); o.dispute != nil || !o.backoffUntil.IsZero() || o.presence != conditions.Present {
				t.Errorf("the dispute does not end: %+v", o)
			}
			scale(9)(d)
			before := d.writes
			d.pass(t)
			if strategy := d.works[0].Spec.ManifestConfigs; d.writes != before+1 && strategy == nil {
				t.Error("a change by hand after the dispute is not undone at once")
			}
		})
	}
}

// inDispute is the work a, whose Deployment has been scaled by others so often that it is not repaired yet.
func inDispute(t *testing.T) *disputed {
	t.Helper()
	d := newDisputed(t, deploys("a", 2, ""))
	d.pass(t)
	for range 10 {
		scale(3)(d)
		d.pass(t)
	}
	return d
}

// A new generation of the work is applied at once and once, whatever is in dispute. The condition goes, and comes back with the next
// repair.
func TestNewGenerationInDispute(t *testing.T) {
	t.Parallel()
	d := inDispute(t)
	if o := d.outcome("a"); o.dispute == nil || o.backoffUntil.IsZero() || o.err != nil || o.requeueAt != o.backoffUntil {
		t.Fatalf("not held back: %+v", o)
	}
	before := d.writes
	changed := deploys("a", 4, "")
	changed.Generation = 2
	d.works = []*workv1.ManifestWork{changed}
	d.pass(t)
	if o := d.outcome("a"); d.writes != before+1 || o.dispute != nil || !o.backoffUntil.IsZero() || !o.requeueAt.IsZero() {
		t.Errorf("%d writes: %+v", d.writes-before, o)
	}
	scale(3)(d)
	d.pass(t)
	d.pass(t)
	if o := d.outcome("a"); d.writes != before+1 || o.dispute == nil || o.backoffUntil.IsZero() {
		t.Errorf("%d writes: %+v", d.writes-before, o)
	}
	d.clock.SetTime(d.outcome("a").backoffUntil)
	d.pass(t)
	if d.writes != before+2 {
		t.Errorf("%d writes when the repair is due", d.writes-before)
	}
}

// WK-05, WK-17: a field that is taken out of the manifest stays as it is if others have it, whoever of those in dispute wrote it last.
func TestFieldLeftToOthers(t *testing.T) {
	t.Parallel()
	unchanged := func(*disputed, *testing.T) {}
	repaired := func(d *disputed, t *testing.T) {
		d.clock.SetTime(d.outcome("a").backoffUntil)
		d.pass(t)
	}
	scaled := func(by func(*metav1.ManagedFieldsEntry)) func(*disputed, *testing.T) {
		return func(d *disputed, _ *testing.T) {
			scale(12)(d)
			entries := d.live.GetManagedFields()
			by(&entries[0])
			d.live.SetManagedFields(entries)
		}
	}
	bySubresource := scaled(func(entry *metav1.ManagedFieldsEntry) { entry.Subresource = "scale" })
	byApply := scaled(func(entry *metav1.ManagedFieldsEntry) { entry.Operation = metav1.ManagedFieldsOperationApply })
	byUpdate := scaled(func(entry *metav1.ManagedFieldsEntry) { entry.Operation = metav1.ManagedFieldsOperationUpdate })
	byAgent := scaled(func(entry *metav1.ManagedFieldsEntry) {
		entry.Manager, entry.Operation = "work-agent", metav1.ManagedFieldsOperationApply
	})
	named := func(d *disputed, t *testing.T) {
		d.works = append(d.works, deploys("b", 2, ""))
		d.pass(t)
	}
	byOtherWork := func(d *disputed, t *testing.T) {
		d.live.SetOwnerReferences(append(d.live.GetOwnerReferences(), ownerNamed("b")))
		byAgent(d, t)
	}
	besideOtherWork := func(d *disputed, t *testing.T) {
		d.works = append(d.works, withoutReplicas(deploys("b", 2, `,"labels":{"b":"1"}`)))
		d.pass(t)
		byAgent(d, t)
	}
	for name, test := range map[string]struct {
		disputed bool
		// change is what becomes of the object, restarted whether the agent has forgotten its passes since, and refused how often the API
		// server refuses the write without the field.
		change    func(*disputed, *testing.T)
		restarted bool
		refused   int
		want      int64 // 0 is none
	}{
		"nobody else has it":                     {change: unchanged},
		"nobody else has it, refused":            {change: unchanged, refused: 1},
		"an autoscaler has it":                   {change: bySubresource, want: 12},
		"an autoscaler has it, after a restart":  {change: bySubresource, restarted: true, want: 12},
		"another client applies it":              {change: byApply, want: 12},
		"another client has written it":          {change: byUpdate},
		"another work names it":                  {change: named, want: 2},
		"another work names it, after a restart": {change: named, restarted: true, want: 2},
		"another work applies it":                {change: byOtherWork, want: 12},
		"this work has applied it":               {change: byAgent},
		"this work, and another names a label":   {change: besideOtherWork},
		"in dispute, changed by others":          {disputed: true, change: unchanged, want: 3},
		"in dispute, just repaired":              {disputed: true, change: repaired, want: 2},
		"in dispute, refused":                    {disputed: true, change: unchanged, refused: 1, want: 3},
		"in dispute, refused twice":              {disputed: true, change: repaired, refused: 2, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisputed(t, deploys("a", 2, ""))
			if test.disputed {
				d = inDispute(t)
			} else {
				d.pass(t)
			}
			test.change(d, t)
			if test.restarted {
				d.last = map[string]*workResult{}
			}
			next := withoutReplicas(deploys("a", 2, ""))
			next.Generation = 2
			d.works = []*workv1.ManifestWork{next}
			d.refuse = true
			for range test.refused {
				d.pass(t)
				if d.outcome("a").err == nil {
					t.Fatal("the write is not refused")
				}
			}
			d.refuse = false
			for range 2 { // the second pass is the one after a restart
				d.pass(t)
				if got, _, _ := unstructured.NestedInt64(d.live.Object, "spec", "replicas"); got != test.want || d.outcome("a").err != nil {
					t.Errorf("%d replicas, want %d: %v", got, test.want, d.outcome("a").err)
				}
				d.last = map[string]*workResult{}
			}
		})
	}
}

// Another manifest is applied at once, whatever is in dispute, also under the same generation: a hub that was restored counts them anew.
func TestSameGenerationInDispute(t *testing.T) {
	t.Parallel()
	d := inDispute(t)
	if o := d.outcome("a"); o.dispute == nil || o.backoffUntil.IsZero() {
		t.Fatalf("not held back: %+v", o)
	}
	before, changed := d.writes, deploys("a", 4, "")
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "a"), UID: changed.UID}}
	results, _ := d.apply(t.Context(), amw, changed, d.last["a"])
	if o := &results[0]; d.writes != before+1 || o.err != nil || o.dispute != nil || !o.backoffUntil.IsZero() {
		t.Errorf("%d writes: %+v", d.writes-before, o)
	}
}

// Disputes are counted by kind as long as passes have them.
func TestCountDisputes(t *testing.T) {
	t.Parallel()
	of := func(kind string, dispute *conditions.Dispute) manifestResult {
		o := manifestResult{dispute: dispute}
		o.identity.Group, o.identity.Kind = "example.com", kind
		return o
	}
	all := workResults{}
	expect := func(when string, widgets, gadgets float64) {
		t.Helper()
		have := []float64{testutil.ToFloat64(disputeCount.WithLabelValues("example.com", "Widget")),
			testutil.ToFloat64(disputeCount.WithLabelValues("example.com", "Gadget"))}
		if have[0] != widgets || have[1] != gadgets {
			t.Errorf("%s: %v, want %v and %v", when, have, widgets, gadgets)
		}
	}
	about := &conditions.Dispute{}
	all.put("a", &workResult{results: []manifestResult{of("Widget", about), of("Gadget", about), of("Widget", nil)}})
	all.put("b", &workResult{results: []manifestResult{of("Widget", about)}})
	expect("two works", 2, 1)
	all.put("a", &workResult{results: []manifestResult{of("Widget", about), of("Gadget", nil)}})
	expect("a dispute is over", 2, 0)
	all.delete("b")
	all.delete("b")
	expect("a work has gone", 1, 0)
	all.delete("a")
	expect("both have gone", 0, 0)
}

// What a controller has counted goes off the metric with its context; a pass that ends later is not counted.
func TestCountDisputesUntilTheEnd(t *testing.T) {
	t.Parallel()
	disputed := func() *workResult {
		o := manifestResult{dispute: &conditions.Dispute{}}
		o.identity.Group, o.identity.Kind = "example.com", "Gizmo"
		return &workResult{results: []manifestResult{o}}
	}
	before, after := &Controller{}, &Controller{}
	before.lastResults.put("a", disputed())
	before.lastResults.put("b", disputed())
	after.lastResults.put("a", disputed())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := before.countUntil(ctx); err != nil {
		t.Fatal(err)
	}
	before.lastResults.put("a", disputed())
	before.lastResults.delete("b")
	if n := testutil.ToFloat64(disputeCount.WithLabelValues("example.com", "Gizmo")); n != 1 {
		t.Errorf("%v disputes after the end of a controller, want that of the other one", n)
	}
	if err := after.countUntil(ctx); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(disputeCount.WithLabelValues("example.com", "Gizmo")); n != 0 {
		t.Errorf("%v disputes after the end of both", n)
	}
}
