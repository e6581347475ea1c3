package fleetsim

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func dynamicFor(t *testing.T, c *Cluster) dynamic.Interface {
	t.Helper()
	d, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func configMap(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"},
		"data": map[string]any{"key": value},
	}}
}

// must fails the test on an error.
func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWrites(t *testing.T) {
	t.Parallel()
	cms := dynamicFor(t, NewCluster("c")).Resource(configMaps).Namespace("default")
	ctx := t.Context()
	made, err := cms.Create(ctx, configMap("x", "1"), metav1.CreateOptions{})
	must(t, made, err)
	if made.GetUID() == "" || made.GetResourceVersion() == "" || made.Object["metadata"].(map[string]any)["creationTimestamp"] == nil {
		t.Errorf("not as a cluster makes it: %v", made)
	}
	if _, err := cms.Create(ctx, configMap("x", "1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create twice: %v", err)
	}
	same, err := cms.Update(ctx, configMap("x", "1"), metav1.UpdateOptions{})
	if must(t, same, err); same.GetResourceVersion() != made.GetResourceVersion() || same.GetUID() != made.GetUID() {
		t.Errorf("an update without a change: %v", same)
	}
	changed, err := cms.Patch(ctx, "x", types.MergePatchType, []byte(`{"data":{"key":"2","other":"3"}}`), metav1.PatchOptions{})
	if must(t, changed, err); changed.GetResourceVersion() == made.GetResourceVersion() {
		t.Errorf("a patch: %v", changed)
	}
	if _, err := cms.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v", err)
	}
	applied, err := cms.Apply(ctx, "y", configMap("y", "1"), metav1.ApplyOptions{FieldManager: "test"})
	must(t, applied, err)
	if _, err := cms.Patch(ctx, "x", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a patch of another kind: %v", err)
	}
	list, err := cms.List(ctx, metav1.ListOptions{})
	if must(t, list, err); len(list.Items) != 2 || list.Items[0].GetName() != "x" {
		t.Errorf("the list: %v", list)
	}
	other := types.UID("another")
	if err := cms.Delete(ctx, "x", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("delete another's: %v", err)
	}
	if err := cms.Delete(ctx, "x", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := cms.Get(ctx, "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get what is gone: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	d := dynamicFor(t, NewCluster("c"))
	o := configMap("x", "1")
	o.SetNamespace("missing")
	for what, err := range map[string]error{
		"a namespace that is missing": second(d.Resource(configMaps).Namespace("missing").Create(t.Context(), o, metav1.CreateOptions{})),
		"a kind that is missing": second(d.Resource(workv1.GroupVersion.WithResource("appliedmanifestworks")).List(t.Context(),
			metav1.ListOptions{})),
		"an update of nothing": second(d.Resource(configMaps).Namespace("default").Update(t.Context(), configMap("no", ""),
			metav1.UpdateOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestStatusAndGenerations(t *testing.T) {
	t.Parallel()
	services := dynamicFor(t, NewCluster("c")).Resource(v1("", "services")).Namespace("default")
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "x"},
		"spec": map[string]any{"replicas": int64(1)}, "status": map[string]any{"replicas": int64(9)},
	}}
	made, err := services.Create(t.Context(), o, metav1.CreateOptions{})
	if must(t, made, err); made.GetGeneration() != 1 || made.Object["status"] != nil {
		t.Errorf("made: %v", made)
	}
	patch := []byte(`{"spec":{"replicas":2},"status":{"replicas":2}}`)
	reported, err := services.Patch(t.Context(), "x", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	must(t, reported, err)
	if spec, status := replicas(t, reported); spec != 1 || status != 2 || reported.GetGeneration() != 1 {
		t.Errorf("status: %v", reported)
	}
	scaled, err := services.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"spec":{"replicas":3},"status":{"replicas":3}}`),
		metav1.PatchOptions{})
	must(t, scaled, err)
	if spec, status := replicas(t, scaled); spec != 3 || status != 2 || scaled.GetGeneration() != 2 {
		t.Errorf("spec: %v", scaled)
	}
}

func replicas(t *testing.T, o *unstructured.Unstructured) (spec, status int64) {
	t.Helper()
	spec, _, err1 := unstructured.NestedInt64(o.Object, "spec", "replicas")
	status, _, err2 := unstructured.NestedInt64(o.Object, "status", "replicas")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return spec, status
}

// A Deployment has, at once and after every change, the status of one whose pods run.
func TestDeployments(t *testing.T) {
	t.Parallel()
	deploys := dynamicFor(t, NewCluster("c")).Resource(deployments).Namespace("default")
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "x"}}}
	made, err := deploys.Create(t.Context(), o, metav1.CreateOptions{})
	must(t, made, err)
	scaled, err := deploys.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
	must(t, scaled, err)
	for _, c := range []struct {
		o        *unstructured.Unstructured
		replicas int64
	}{{made, 1}, {scaled, 3}} {
		status, _, err := unstructured.NestedMap(c.o.Object, "status")
		if err != nil || status["readyReplicas"] != c.replicas || status["observedGeneration"] != c.o.GetGeneration() {
			t.Errorf("status %v, want %d ready", status, c.replicas)
		}
	}
}

func TestFinalizers(t *testing.T) {
	t.Parallel()
	cms := dynamicFor(t, NewCluster("c")).Resource(configMaps).Namespace("default")
	o := configMap("x", "1")
	o.SetFinalizers([]string{"example.com/hold"})
	made, err := cms.Create(t.Context(), o, metav1.CreateOptions{})
	must(t, made, err)
	if err := cms.Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	leaving, err := cms.Get(t.Context(), "x", metav1.GetOptions{})
	if must(t, leaving, err); leaving.GetDeletionTimestamp() == nil {
		t.Errorf("it is not leaving: %v", leaving)
	}
	gone, err := cms.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, gone, err)
	if _, err := cms.Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// What is between the start of a watch and its resource version is not lost, and metadata is all that is sent to those who
// ask for no more.
func TestWatch(t *testing.T) {
	t.Parallel()
	cluster := NewCluster("c")
	cms := dynamicFor(t, cluster).Resource(configMaps).Namespace("default")
	partial, err := metadata.NewForConfig(cluster.Config())
	must(t, partial, err)
	list, err := partial.Resource(configMaps).List(t.Context(), metav1.ListOptions{})
	must(t, list, err)
	labelled := configMap("x", "1")
	labelled.SetLabels(map[string]string{"seen": ""})
	for _, o := range []*unstructured.Unstructured{labelled, configMap("y", "1")} {
		made, err := cms.Create(t.Context(), o, metav1.CreateOptions{})
		must(t, made, err)
	}
	w, err := partial.Resource(configMaps).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "seen"})
	must(t, w, err)
	defer w.Stop()
	next(t, w, watch.Added)
	changed, err := cms.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"data":{"key":"2"}}`), metav1.PatchOptions{})
	must(t, changed, err)
	next(t, w, watch.Modified)
	unlabelled, err := cms.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
	must(t, unlabelled, err)
	next(t, w, watch.Deleted)
}

func next(t *testing.T, w watch.Interface, kind watch.EventType) {
	t.Helper()
	event, _ := env.NextEvent(t, w)
	if o, ok := event.Object.(*metav1.PartialObjectMetadata); !ok || event.Type != kind || o.Name != "x" {
		t.Fatalf("want x %s, got %+v", kind, event)
	}
}

// SC-22: kinds come with their definitions, and clients find them.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	scheme := env.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(NewCluster("c").Config(), client.Options{Scheme: scheme})
	must(t, c, err)
	for _, crd := range crds.ManagedCluster() {
		if err := c.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "x",
		Finalizers: []string{fleet.FinalizerAppliedManifestWorkCleanup}}}
	env.Eventually(t, func(ctx context.Context) error { return c.Create(ctx, amw) })
	nodes := &corev1.NodeList{}
	if err := c.List(t.Context(), nodes, client.MatchingFields{"metadata.name": "c-1"}); err != nil || len(nodes.Items) != 1 {
		t.Errorf("nodes: %v, %v", nodes.Items, err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	c, err := rest.HTTPClientFor(NewCluster("c").Config())
	must(t, c, err)
	for path, want := range map[string]int{"/livez": http.StatusOK, "/version": http.StatusOK, "/nothing": http.StatusNotFound,
		"/apis/apps": http.StatusOK, "/apis/none": http.StatusNotFound} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster"+path, nil)
		must(t, request, err)
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}
