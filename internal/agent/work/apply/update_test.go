package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// WK-07 WK-20: an object that exists is applied whatever the API server says of its creation, with which an agent starts after a restart.
// If it does not exist, that is why the manifest is not applied.
func TestRefusedCreation(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for name, refusal := range map[string]error{
		"it exists": apierrors.NewAlreadyExists(resource, "web"),
		"a port is taken": apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", field.ErrorList{
			field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), 30080, "provided port is already allocated")}),
		"a quota is used up":  apierrors.NewForbidden(resource, "web", errors.New("exceeded quota")),
		"a webhook is broken": apierrors.NewInternalError(errors.New("failed calling webhook")),
	} {
		for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly} {
			for _, exists := range []bool{true, false} {
				if !exists && apierrors.IsAlreadyExists(refusal) {
					continue // it has gone in between, and is created then
				}
				t.Run(name+", "+string(strategy)+map[bool]string{true: ", exists", false: ", missing"}[exists], func(t *testing.T) {
					t.Parallel()
					testRefusedCreation(t, refusal, strategy, exists)
				})
			}
		}
	}
}

func testRefusedCreation(t *testing.T, refusal error, strategy workv1.UpdateStrategyType, exists bool) {
	work := deploys("a", 2, "")
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: strategy},
	}}
	d := newDisputed(t, work)
	d.managed = clientWith(t)
	if exists {
		d.store(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": "default", "name": "web", "uid": "1"}, "spec": map[string]any{"replicas": int64(3)}}}, "user")
	}
	d.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "deployments",
		func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	d.pass(t)
	o := d.outcome("a")
	if !exists {
		if o.err == nil || !strings.Contains(o.err.Error(), refusal.Error()) || o.presence != conditions.Absent {
			t.Errorf("presence %v, because %v; want %v", o.presence, o.err, refusal)
		}
		return
	}
	want := map[workv1.UpdateStrategyType]int64{workv1.UpdateStrategyTypeUpdate: 2, workv1.UpdateStrategyTypeCreateOnly: 3}[strategy]
	replicas, _, _ := unstructured.NestedInt64(d.live.Object, "spec", "replicas")
	if o.err != nil || o.presence != conditions.Present || o.uid != "1" || replicas != want {
		t.Errorf("presence %v with %d replicas, want %d: %v", o.presence, replicas, want, o.err)
	}
	if !hasOwner(d.live, work) {
		t.Errorf("owners %v", d.live.GetOwnerReferences())
	}
}

func hasOwner(live metav1.Object, work *workv1.ManifestWork) bool {
	for _, owner := range live.GetOwnerReferences() {
		if owner.UID == work.UID {
			return true
		}
	}
	return false
}

// WK-33: what the executor makes of an object that exists is checked with the fields that its manifest does not name or ignores. The object
// stays as it is if the executor may not do that.
func TestResultIsChecked(t *testing.T) {
	t.Parallel()
	refusal := errors.New("not allowed")
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
		for name, refused := range map[string]error{"allowed": nil, "refused": refusal} {
			t.Run(string(strategy)+", "+name, func(t *testing.T) {
				t.Parallel()
				server := &widgetServer{live: widgetOf(map[string]any{"replicas": int64(5), "color": "blue"})}
				server.live.SetUID("first")
				var checked any
				w := &writer{resource: server.client().Resource(widgets)}
				w.checkResult = func(_ context.Context, result *unstructured.Unstructured) error {
					checked = result.Object["spec"]
					return refused
				}
				before, after := server.live.Object["spec"], map[string]any{"replicas": int64(5), "color": "red"}
				if err := applyColor(t, w, strategy); !errors.Is(err, refused) {
					t.Errorf("got error %v, want %v", err, refused)
				}
				if diff := cmp.Diff(any(after), checked); diff != "" {
					t.Errorf("spec that is checked (-want +got):\n%s", diff)
				}
				want := any(after)
				if refused != nil {
					want = before
				}
				if diff := cmp.Diff(want, server.live.Object["spec"]); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// WK-33: what does not exist is not made if the executor may not make it.
func TestCreationIsChecked(t *testing.T) {
	t.Parallel()
	for strategy, write := range map[workv1.UpdateStrategyType]func(*writer, context.Context, *task) (*unstructured.Unstructured, error){
		workv1.UpdateStrategyTypeUpdate: (*writer).update, workv1.UpdateStrategyTypeCreateOnly: (*writer).createOnly,
		workv1.UpdateStrategyTypeServerSideApply: (*writer).serverSideApply,
	} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			refusal := errors.New("not allowed")
			objects := (&widgetServer{}).client()
			w := &writer{resource: objects.Resource(widgets),
				checkResult: func(context.Context, *unstructured.Unstructured) error { return refusal }}
			task := appliesServerSide("a", workv1.IgnoreFieldsConditionOnSpokePresent, widgetOf(map[string]any{"color": "red"}), nil)
			if _, err := write(w, t.Context(), task); !errors.Is(err, refusal) {
				t.Errorf("got error %v, want %v", err, refusal)
			}
			for _, action := range objects.Actions() {
				if action.GetVerb() != "get" {
					t.Errorf("the agent has sent %s", action.GetVerb())
				}
			}
		})
	}
}

// WK-33: what is made by server-side apply is checked as what it is: an object that comes meanwhile stays as it is, if the executor may not
// change it.
func TestComesWhileChecked(t *testing.T) {
	t.Parallel()
	refusal := errors.New("not allowed")
	blue := map[string]any{"replicas": int64(5), "color": "blue"}
	for name, test := range map[string]struct {
		comes *unstructured.Unstructured
		err   error
		want  map[string]any
	}{
		"nothing comes": {nil, nil, map[string]any{"color": "red"}},
		"it comes":      {widgetOf(blue), refusal, blue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &widgetServer{}
			w := &writer{resource: server.client().Resource(widgets)}
			w.checkResult = func(_ context.Context, result *unstructured.Unstructured) error {
				if _, ofOther, _ := unstructured.NestedFieldNoCopy(result.Object, "spec", "replicas"); ofOther {
					return refusal
				}
				if server.live == nil {
					server.live = test.comes
				}
				return nil
			}
			task := appliesServerSide("a", workv1.IgnoreFieldsConditionOnSpokePresent, widgetOf(map[string]any{"color": "red"}), nil)
			if _, err := w.serverSideApply(t.Context(), task); !errors.Is(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(any(test.want), server.live.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// WK-33: what the API server does not take by server-side apply is not made, also where it would be created first.
func TestRefusedApply(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(context.Context, *unstructured.Unstructured) error{
		"checked":     func(context.Context, *unstructured.Unstructured) error { return nil },
		"not checked": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &widgetServer{}
			objects := server.client()
			refusal := apierrors.NewInternalError(errors.New("failed to create typed patch object: field not declared in schema"))
			objects.PrependReactor("patch", widgets.Resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			w := &writer{resource: objects.Resource(widgets), checkResult: check}
			if err := applyColor(t, w, workv1.UpdateStrategyTypeServerSideApply); !errors.Is(err, refusal) {
				t.Errorf("got error %v, want %v", err, refusal)
			}
			if server.live != nil {
				t.Errorf("made %v", server.live)
			}
		})
	}
}

// WK-33: an object is created where an API server makes none by apply, and where another has come that is in conflict, which creation
// tells.
func TestCreatedWithoutApply(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: widgets.Group, Resource: widgets.Resource}
	for name, refusal := range map[string]error{
		"not found": apierrors.NewNotFound(resource, "a"), "conflict": apierrors.NewConflict(resource, "a", errors.New("of another manager")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &widgetServer{}
			objects := server.client()
			objects.PrependReactor("patch", widgets.Resource, func(kubetesting.Action) (bool, runtime.Object, error) {
				return server.live == nil, nil, refusal
			})
			w := &writer{resource: objects.Resource(widgets),
				checkResult: func(context.Context, *unstructured.Unstructured) error { return nil }}
			if err := applyColor(t, w, workv1.UpdateStrategyTypeServerSideApply); err != nil || server.live == nil {
				t.Errorf("%v, there is %v", err, server.live)
			}
		})
	}
}

// WK-33: to check a server-side apply takes one dry run more, and none if it is itself a dry run, or looks at ignored fields by one.
func TestDryRunsOfCheck(t *testing.T) {
	t.Parallel()
	const onPresent, onChange = workv1.IgnoreFieldsConditionOnSpokePresent, workv1.IgnoreFieldsConditionOnSpokeChange
	check := func(context.Context, *unstructured.Unstructured) error { return nil }
	for name, test := range map[string]struct {
		ignored workv1.IgnoreFieldsCondition // OnSpokeChange ignores nothing yet
		dryRun  []string
		check   func(context.Context, *unstructured.Unstructured) error
		want    int
	}{
		"nothing is ignored":                         {onChange, nil, nil, 1},
		"nothing is ignored, checked":                {onChange, nil, check, 2},
		"nothing is ignored, a dry run":              {onChange, []string{metav1.DryRunAll}, nil, 1},
		"nothing is ignored, a dry run, checked":     {onChange, []string{metav1.DryRunAll}, check, 1},
		"the replicas are ignored":                   {onPresent, nil, nil, 2},
		"the replicas are ignored, checked":          {onPresent, nil, check, 2},
		"the replicas are ignored, a dry run":        {onPresent, []string{metav1.DryRunAll}, nil, 1},
		"the replicas are ignored, dry run, checked": {onPresent, []string{metav1.DryRunAll}, check, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &widgetServer{live: widgetOf(map[string]any{"replicas": int64(5), "color": "blue"})}
			server.live.SetUID("first")
			task := appliesServerSide("a", test.ignored, widgetOf(map[string]any{"replicas": int64(2), "color": "red"}), nil)
			w := &writer{resource: server.client().Resource(widgets), dryRun: test.dryRun, checkResult: test.check}
			result, err := w.serverSideApply(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			if color, _, _ := unstructured.NestedString(result.Object, "spec", "color"); color != "red" || server.writes != test.want {
				t.Errorf("the Widget is %s after %d requests to apply it, want red after %d", color, server.writes, test.want)
			}
		})
	}
}

// applyColor makes the Widget red. Under ServerSideApply, the manifest also has replicas, which are ignored.
func applyColor(t *testing.T, w *writer, strategy workv1.UpdateStrategyType) error {
	t.Helper()
	const ignored = workv1.IgnoreFieldsConditionOnSpokePresent
	var err error
	if strategy == workv1.UpdateStrategyTypeUpdate {
		_, err = w.update(t.Context(), appliesServerSide("a", ignored, widgetOf(map[string]any{"color": "red"}), nil))
	} else {
		task := appliesServerSide("a", ignored, widgetOf(map[string]any{"replicas": int64(2), "color": "red"}), nil)
		_, err = w.serverSideApply(t.Context(), task)
	}
	return err
}
