package apply

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// widgetOf is a Widget with the fields of spec.
func widgetOf(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "one"}, "spec": spec}}
}

// appliesServerSide is the task of a work that has the manifest under ServerSideApply and ignores the replicas.
func appliesServerSide(work string, condition workv1.IgnoreFieldsCondition, object *unstructured.Unstructured,
	option *workv1.DeleteOption) *task {
	return serverSideTask(work, &workv1.ServerSideApplyConfig{Force: true,
		IgnoreFields: []workv1.IgnoreField{{Condition: condition, JSONPaths: []string{".spec.replicas"}}}}, object, option)
}

// serverSideTask is the task of a work that has the manifest under ServerSideApply.
func serverSideTask(work string, config *workv1.ServerSideApplyConfig, object *unstructured.Unstructured,
	option *workv1.DeleteOption) *task {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: work}}
	w.Spec.DeleteOption = option
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: widgets.Group, Resource: widgets.Resource, Name: "one"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: config},
	}}
	o := &manifestResult{mapping: &meta.RESTMapping{Resource: widgets, Scope: meta.RESTScopeRoot}, resolved: true,
		identity: manifest.Identify(object)}
	return newTask(o, w, ownerNamed(work), object)
}

// WK-08: the hash that marks an object is of the manifest, and not of who owns the object: works that have the same manifest write the same
// one, and so does a dry run. The hash of earlier agents, which is with the owners, counts as well.
func TestConfigSpecHash(t *testing.T) {
	t.Parallel()
	object := widgetOf(map[string]any{"replicas": int64(2), "color": "red"})
	const onChange = workv1.IgnoreFieldsConditionOnSpokeChange
	moved := appliesServerSide("a", onChange, object, nil)
	moved.required.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "another", UID: "2"}})
	tried := appliesServerSide("a", onChange, object, nil)
	tried.required = object.DeepCopy()
	hashes := map[string]string{}
	for name, task := range map[string]*task{
		"a work":            appliesServerSide("a", onChange, object, nil),
		"another work":      appliesServerSide("b", onChange, object, nil),
		"a work that moved": moved,
		"a work that leaves the object": appliesServerSide("a", onChange, object,
			&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}),
		"a dry run": tried,
	} {
		s, err := newServerSide(t.Context(), &writer{}, task)
		if err != nil {
			t.Fatal(err)
		}
		hashes[name] = s.full.GetAnnotations()[fleet.AnnotationConfigSpecHash]
		live := object.DeepCopy()
		for hash, ignored := range map[string]bool{
			manifest.Hash(object):                                true,
			manifest.Hash(manifest.ForCreate(task.required)):     true,
			manifest.Hash(widgetOf(map[string]any{"size": "s"})): false,
			"": false,
		} {
			live.SetAnnotations(map[string]string{fleet.AnnotationConfigSpecHash: hash})
			if got := !s.ignored(live).Empty(); got != ignored {
				t.Errorf("%s, hash %q: fields are ignored: %t, want %t", name, hash, got, ignored)
			}
		}
	}
	for name, hash := range hashes {
		if want := manifest.Hash(object); hash != want {
			t.Errorf("%s: hash %s, want %s", name, hash, want)
		}
	}
}

// widgetServer has one Widget, and answers as an API server does. other is what another client does before the write with its number.
type widgetServer struct {
	live   *unstructured.Unstructured
	writes int
	other  map[int]func(*widgetServer)
}

func (w *widgetServer) client() *dynamicfake.FakeDynamicClient {
	objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	objects.PrependReactor("*", widgets.Resource, w.serve)
	return objects
}

func (w *widgetServer) serve(action kubetesting.Action) (bool, runtime.Object, error) {
	switch action.GetVerb() {
	case "create":
		if w.live != nil {
			return true, nil, apierrors.NewAlreadyExists(widgets.GroupResource(), "one")
		}
		w.live = action.(kubetesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		w.live.SetUID("new")
		return true, w.live.DeepCopy(), nil
	case "update":
		w.live = action.(kubetesting.UpdateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		return true, w.live.DeepCopy(), nil
	}
	patch, ok := action.(kubetesting.PatchActionImpl)
	if !ok {
		if w.live == nil {
			return true, nil, apierrors.NewNotFound(widgets.GroupResource(), "one")
		}
		return true, w.live.DeepCopy(), nil
	}
	w.writes++
	if other := w.other[w.writes]; other != nil {
		other(w)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(patch.Patch, &applied.Object); err != nil {
		return true, nil, err
	}
	after, err := w.apply(applied)
	if err == nil && len(patch.PatchOptions.DryRun) == 0 {
		w.live = after.DeepCopy()
	}
	return true, after, err
}

func (w *widgetServer) apply(applied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	uid := applied.GetUID()
	switch {
	case w.live == nil && uid != "":
		return nil, apierrors.NewConflict(widgets.GroupResource(), "one", fmt.Errorf("uid mismatch: %s, and no existing object was found", uid))
	case w.live == nil:
		applied.SetUID("new")
		return applied, nil
	case uid != "" && uid != w.live.GetUID():
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: widgets.Group, Kind: "Widget"}, "one",
			field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")})
	}
	after := w.live.DeepCopy()
	after.SetAnnotations(applied.GetAnnotations())
	after.SetOwnerReferences(applied.GetOwnerReferences())
	maps.Copy(after.Object["spec"].(map[string]any), applied.Object["spec"].(map[string]any))
	return after, nil
}

// WK-08: an object that another client deletes while it is applied is made anew with the ignored fields, and another one that has taken its
// place is applied to.
func TestDeletedWhileApplied(t *testing.T) {
	t.Parallel()
	scaled := func(uid types.UID, replicas int64) *unstructured.Unstructured {
		o := widgetOf(map[string]any{"replicas": replicas, "color": "blue"})
		o.SetUID(uid)
		return o
	}
	remove := func(w *widgetServer) { w.live = nil }
	replace := func(w *widgetServer) { w.live = scaled("other", 7) }
	const onPresent, onChange = workv1.IgnoreFieldsConditionOnSpokePresent, workv1.IgnoreFieldsConditionOnSpokeChange
	for name, test := range map[string]struct {
		condition workv1.IgnoreFieldsCondition
		other     map[int]func(*widgetServer)
		replicas  int64
	}{
		"nobody does":                    {onPresent, nil, 5},
		"before the preview":             {onPresent, map[int]func(*widgetServer){1: remove}, 2},
		"before the write":               {onPresent, map[int]func(*widgetServer){2: remove}, 2},
		"replaced before the write":      {onPresent, map[int]func(*widgetServer){2: replace}, 7},
		"of a changed manifest":          {onChange, map[int]func(*widgetServer){1: remove}, 2},
		"replaced of a changed manifest": {onChange, map[int]func(*widgetServer){1: replace}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &widgetServer{live: scaled("first", 5), other: test.other}
			task := appliesServerSide("a", test.condition, widgetOf(map[string]any{"replicas": int64(2), "color": "red"}), nil)
			_, err := (&writer{resource: server.client().Resource(widgets)}).serverSideApply(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"replicas": test.replicas, "color": "red"}
			if diff := cmp.Diff(want, server.live.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if task.uid != server.live.GetUID() {
				t.Errorf("the result is of the object with UID %q, want %q", task.uid, server.live.GetUID())
			}
		})
	}
}

// W12: a dry run of a manifest whose object does not exist shows what would be made, with the fields that are ignored afterwards.
func TestDryRunOfMissing(t *testing.T) {
	t.Parallel()
	for _, condition := range []workv1.IgnoreFieldsCondition{workv1.IgnoreFieldsConditionOnSpokePresent,
		workv1.IgnoreFieldsConditionOnSpokeChange} {
		t.Run(string(condition), func(t *testing.T) {
			t.Parallel()
			server := &widgetServer{}
			spec := map[string]any{"replicas": int64(2), "color": "red"}
			w := &writer{resource: server.client().Resource(widgets), dryRun: []string{metav1.DryRunAll}}
			tried, err := w.serverSideApply(t.Context(), appliesServerSide("a", condition, widgetOf(spec), nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(spec, tried.Object["spec"]); diff != "" || server.live != nil {
				t.Errorf("made %v; spec (-want +got):\n%s", server.live, diff)
			}
		})
	}
}

// fieldServer has one Widget, and records who has written which of its fields, as an API server does.
type fieldServer struct {
	fields *managedfields.FieldManager
	live   *unstructured.Unstructured
	// changes is how many writes have changed more than who owns which fields.
	changes int
}

func newFieldServer(t *testing.T) *fieldServer {
	t.Helper()
	kind := widgets.GroupVersion().WithKind("Widget")
	fields, err := managedfields.NewDefaultFieldManager(managedfields.NewDeducedTypeConverter(), oneVersion{}, oneVersion{}, oneVersion{},
		kind, kind.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &fieldServer{fields: fields}
}

// oneVersion is of a kind with one version and no defaults.
type oneVersion struct{}

func (oneVersion) Convert(_, _, _ any) error { return nil }

func (oneVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (oneVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (oneVersion) Default(runtime.Object) {}

func (oneVersion) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object, nil
}

func (f *fieldServer) writer() *writer {
	objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	objects.PrependReactor("*", widgets.Resource, f.serve)
	return &writer{resource: objects.Resource(widgets)}
}

func (f *fieldServer) serve(action kubetesting.Action) (bool, runtime.Object, error) {
	var after *unstructured.Unstructured
	var err error
	isDryRun := false
	switch action.GetVerb() {
	case "create":
		if f.live != nil {
			return true, nil, apierrors.NewAlreadyExists(widgets.GroupResource(), "one")
		}
		after, err = f.update(action.(kubetesting.CreateAction).GetObject().(*unstructured.Unstructured))
	case "update":
		after, err = f.update(action.(kubetesting.UpdateAction).GetObject().(*unstructured.Unstructured))
	case "patch":
		patch := action.(kubetesting.PatchActionImpl)
		isDryRun = len(patch.PatchOptions.DryRun) > 0
		after, err = f.patch(patch)
	default:
		if f.live == nil {
			return true, nil, apierrors.NewNotFound(widgets.GroupResource(), "one")
		}
		return true, f.live.DeepCopy(), nil
	}
	if err != nil {
		return true, nil, err
	}
	if !isDryRun {
		f.store(after)
	}
	return true, after.DeepCopy(), nil
}

func (f *fieldServer) patch(patch kubetesting.PatchActionImpl) (*unstructured.Unstructured, error) {
	if patch.GetPatchType() != types.ApplyPatchType {
		patched, err := mergePatch(f.live, patch.GetPatch())
		if err != nil {
			return nil, err
		}
		return f.update(patched)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(patch.GetPatch(), &applied.Object); err != nil {
		return nil, err
	}
	after, err := f.fields.Apply(f.existing(), applied, patch.PatchOptions.FieldManager, *patch.PatchOptions.Force)
	if err != nil {
		return nil, err
	}
	return after.(*unstructured.Unstructured), nil
}

func (f *fieldServer) update(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	after, err := f.fields.Update(f.existing(), object.DeepCopy(), fieldManager)
	if err != nil {
		return nil, err
	}
	return after.(*unstructured.Unstructured), nil
}

func (f *fieldServer) existing() *unstructured.Unstructured {
	if f.live != nil {
		return f.live.DeepCopy()
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	return object
}

func (f *fieldServer) store(after *unstructured.Unstructured) {
	after.SetUID("one")
	if f.live == nil || len(manifest.ChangedFields(f.live, after)) > 0 {
		f.changes++
	}
	f.live = after.DeepCopy()
}

// WK-05, WK-07: of two works with one object, the one that applies it takes nothing from what the other one updates, and they come to rest.
// It gets what it changes itself, without a conflict.
func TestUpdateAndServerSideApply(t *testing.T) {
	t.Parallel()
	server := newFieldServer(t)
	w := server.writer()
	pass := func(color string) {
		t.Helper()
		updated := widgetOf(map[string]any{"color": "red", "size": "s"})
		updated.SetLabels(map[string]string{"a": "1"})
		applied := widgetOf(map[string]any{"weight": "w"})
		applied.SetLabels(map[string]string{"b": "1"})
		if color != "" {
			applied.Object["spec"].(map[string]any)["color"] = color
		}
		_, updateErr := w.update(t.Context(), updates("a", updated))
		_, applyErr := w.serverSideApply(t.Context(), serverSideTask("b", nil, applied, nil))
		if err := errors.Join(updateErr, applyErr); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, color string, changes int) {
		t.Helper()
		want := map[string]any{"color": color, "size": "s", "weight": "w"}
		if diff := cmp.Diff(any(want), server.live.Object["spec"]); diff != "" {
			t.Errorf("%s: spec (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "1"}, server.live.GetLabels()); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", when, diff)
		}
		if len(server.live.GetAnnotations()) != 1 || len(server.live.GetOwnerReferences()) != 2 || server.changes != changes {
			t.Errorf("%s: %d changes, want %d: %v", when, server.changes, changes, server.live.Object["metadata"])
		}
	}
	for range 3 {
		pass("red")
		expect("both have a field", "red", 2)
	}
	pass("")
	expect("one drops it", "red", 2)
	pass("blue")
	expect("they differ", "blue", 3)
}

// WK-07, W12: what the agent wrote under another strategy is in no conflict with a dry run, as it is taken over before a write. What others
// wrote is.
func TestTryToTakeOver(t *testing.T) {
	t.Parallel()
	for manager, want := range map[string]string{fieldManager: "blue", "kubectl": ""} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			server := newFieldServer(t)
			w := server.writer()
			made, err := server.fields.Update(server.existing(), widgetOf(map[string]any{"color": "red"}), manager)
			if err != nil {
				t.Fatal(err)
			}
			server.store(made.(*unstructured.Unstructured))
			applies := func() *task { return serverSideTask("a", nil, widgetOf(map[string]any{"color": "blue"}), nil) }
			s, err := newServerSide(t.Context(), w, applies())
			if err != nil {
				t.Fatal(err)
			}
			planned, planErr := s.try(t.Context(), server.live.DeepCopy())
			dry := *w
			dry.dryRun = []string{metav1.DryRunAll}
			tried, tryErr := dry.serverSideApply(t.Context(), applies())
			if (planErr == nil) != (want != "") || (tryErr == nil) != (want != "") || server.changes != 1 {
				t.Fatalf("in dispute: %v; dry run: %v; %d changes", planErr, tryErr, server.changes)
			}
			if want == "" {
				return
			}
			for _, object := range []*unstructured.Unstructured{planned, tried} {
				if got, _, _ := unstructured.NestedString(object.Object, "spec", "color"); got != want {
					t.Errorf("color %q, want %q", got, want)
				}
			}
		})
	}
}

// WK-08: the hash by which a work knows what it has applied stays when another work applies the object, and goes with the last that writes
// one.
func TestHashOfAnotherWork(t *testing.T) {
	t.Parallel()
	server := newFieldServer(t)
	w := server.writer()
	apply := func(task *task) string {
		t.Helper()
		if _, err := w.serverSideApply(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		return server.live.GetAnnotations()[fleet.AnnotationConfigSpecHash]
	}
	object := widgetOf(map[string]any{"replicas": int64(2), "color": "red"})
	hash := apply(appliesServerSide("a", workv1.IgnoreFieldsConditionOnSpokeChange, object, nil))
	other := func() *task { return serverSideTask("b", nil, widgetOf(map[string]any{"color": "red"}), nil) }
	if got := apply(other()); got != hash || hash == "" {
		t.Errorf("hash %q, want %q", got, hash)
	}
	server.live.SetOwnerReferences([]metav1.OwnerReference{ownerNamed("b")})
	if got := apply(other()); got != "" {
		t.Errorf("hash %q of a work that has gone", got)
	}
}

// That others own fields is no reason to read an object again and to start anew.
func TestIsOutdated(t *testing.T) {
	t.Parallel()
	resource := widgets.GroupResource()
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"it has changed": {fmt.Errorf("give up the ignored fields: %w", apierrors.NewConflict(resource, "one", errors.New("modified"))), true},
		"it has come":    {apierrors.NewAlreadyExists(resource, "one"), true},
		"others own fields": {explainConflict(apierrors.NewApplyConflict([]metav1.StatusCause{
			{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: "conflict with \"hpa\""}}, "1 conflict")), false},
		"it is another one": {apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "one", field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), "1", "field is immutable")}), true},
		"it is invalid": {apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "one", field.ErrorList{
			field.Invalid(field.NewPath("spec", "color"), "red", "unknown")}), false},
		"the API server is away": {errors.New("connection refused"), false},
		"nothing":                {nil, false},
	} {
		if got := isOutdated(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
