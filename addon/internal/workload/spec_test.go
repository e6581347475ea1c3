package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The objects are the author's, who may return the same ones to several calls at once: what is left out of works stays in them.
func TestObjectsOfTheAuthorStay(t *testing.T) {
	t.Parallel()
	mine := yamlObject(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: a, uid: x, creationTimestamp: null,
		annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", deployment.kubernetes.io/revision: "1"}},
		spec: {template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: c}]}}}, status: {replicas: 1}}`)
	before := mine.DeepCopy()
	mine.Object["spec"].(map[string]any)["replicas"] = 3 // an int, which is no type of JSON
	objects, err := encode([]client.Object{mine})
	if err != nil {
		t.Fatal(err)
	}
	if raw := string(objects[0].raw); strings.Contains(raw, "last-applied") || !strings.Contains(raw, `"replicas":3`) {
		t.Errorf("encoded as %s", raw)
	}
	delete(mine.Object["spec"].(map[string]any), "replicas")
	if diff := cmp.Diff(before.Object, mine.Object); diff != "" {
		t.Errorf("changed (-before +after):\n%s", diff)
	}
}

// AF-16: what is to stay is named with its resource.
func TestDeletionOrphan(t *testing.T) {
	t.Parallel()
	stay := func(text string) *unstructured.Unstructured {
		return annotated(yamlObject(text), fleet.AnnotationDeletionOrphan, "")
	}
	h := newHub(t,
		stay(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}}`),
		stay(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: ns, name: b}}`),
		stay(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: ns, name: c}}`),
		stay(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: ns, name: d}}`),
		stay(`{apiVersion: v1, kind: Endpoints, metadata: {namespace: ns, name: e}}`),
		stay(`{apiVersion: example.com/v1, kind: Ox, metadata: {name: f}}`),
		stay(`{apiVersion: example.com/v1, kind: Mouse, metadata: {name: g}}`),
		stay(`{apiVersion: v1, kind: Namespace, metadata: {name: h}}`),
		yamlObject(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: oxen.example.com},
			spec: {group: example.com, names: {kind: Ox, plural: oxen}}}`),
		configMap("goes", 1),
	)
	orphans := func() string {
		h.reconcile()
		var all []string
		for _, r := range h.work("cluster1", "addon-hello-deploy-0").Spec.DeleteOption.SelectivelyOrphan.OrphaningRules {
			all = append(all, fmt.Sprintf("%s.%s/%s/%s", r.Resource, r.Group, r.Namespace, r.Name))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	const want = "configmaps./ns/a endpoints./ns/e gateways.gateway.networking.k8s.io/ns/d ingresses.networking.k8s.io/ns/c %s.example.com//g " +
		"namespaces.//h networkpolicies.networking.k8s.io/ns/b oxen.example.com//f"
	if got := orphans(); got != fmt.Sprintf(want, "mouses") {
		t.Errorf("rules %s", got)
	}
	w := h.work("cluster1", "addon-hello-deploy-0")
	if w.Spec.DeleteOption.PropagationPolicy != workv1.DeletePropagationPolicyTypeSelectivelyOrphan {
		t.Errorf("policy %s", w.Spec.DeleteOption.PropagationPolicy)
	}
	// Nobody guesses the plural of mouse. The cluster reports it.
	w.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{ResourceMeta: workv1.ManifestResourceMeta{Group: "example.com",
		Kind: "Mouse", Resource: "mice", Name: "g"}}}
	if got := orphans(); got != fmt.Sprintf(want, "mice") {
		t.Errorf("rules %s", got)
	}
}

// What the author says of deletion holds besides the annotation.
func TestDeleteOption(t *testing.T) {
	t.Parallel()
	rule := workv1.OrphaningRule{Resource: "configmaps", Namespace: "ns", Name: "a"}
	marked := annotated(configMap("a", 1), fleet.AnnotationDeletionOrphan, "")
	selective := func(rules ...workv1.OrphaningRule) *workv1.DeleteOption {
		return &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules},
		}
	}
	other := workv1.OrphaningRule{Resource: "secrets", Namespace: "ns", Name: "s"}
	for name, test := range map[string]struct {
		object         client.Object
		authored, want *workv1.DeleteOption
	}{
		"nothing": {configMap("a", 1), nil, nil},
		"default": {configMap("a", 1), &workv1.DeleteOption{},
			&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}},
		"marked": {marked, nil, selective(rule)},
		"all stay": {marked, &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan},
			&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}},
		"others as well": {marked, selective(other), selective(other, rule)},
		"said twice":     {marked, selective(rule), selective(rule)},
		"rules without effect": {marked,
			&workv1.DeleteOption{SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{other}}},
			selective(rule)},
	} {
		h := newHub(t, test.object)
		h.Workload.DeleteOption = test.authored
		before := test.authored.DeepCopy()
		h.reconcile()
		if got := h.work("cluster1", "addon-hello-deploy-0").Spec.DeleteOption; !equalJSON(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		if !equalJSON(test.authored, before) {
			t.Errorf("%s: the author's option was changed", name)
		}
	}
}

func equalJSON(a, b any) bool {
	left, _ := json.Marshal(a)
	right, _ := json.Marshal(b)
	return string(left) == string(right)
}

// Objects of the SDK's types need no apiVersion and kind, and what a cluster says of an object does not get into works.
func TestManifests(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", Generation: 3,
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "m"}},
		CreationTimestamp: metav1.NewTime(noon)}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
	read := yamlObject(`{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, uid: x, creationTimestamp: null}, spec: {x: 1.5, s: "<&>"}, status: {ready: true}}`)
	before := read.DeepCopy()
	h := newHub(t, &corev1.ConfigMap{ObjectMeta: meta}, deployment, &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: meta}, read)
	h.reconcile()
	var got []string
	for _, m := range h.work("cluster1", "addon-hello-deploy-0").Spec.Workload.Manifests {
		got = append(got, string(m.Raw))
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"}}`,
		`{"apiVersion":"cluster.open-cluster-management.io/v1alpha1","kind":"AddOnPlacementScore","metadata":{"name":"a","namespace":"ns"}}`,
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"s":"\u003c\u0026\u003e","x":1.5}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"ns"},`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s\nis not in\n%s", want, all)
		}
	}
	if strings.Contains(all, "ready") {
		t.Errorf("a status is in %s", all)
	}
	if !equalJSON(read, before) || deployment.UID != "u" || deployment.Status.ReadyReplicas != 1 {
		t.Error("the objects of the author were changed")
	}
	h.reconcile()
	h.expectWrites()
}

// The API server may write what it was given in another way: that is no change. What others change is put right.
func TestComparison(t *testing.T) {
	t.Parallel()
	h := newHub(t, yamlObject(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: "<&>"}}`))
	h.Workload.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"},
		UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{
			IgnoreFields: []workv1.IgnoreField{{JSONPaths: []string{".data"}}},
		}},
	}}
	h.reconcile()
	w := h.work("cluster1", "addon-hello-deploy-0")
	if c := w.Spec.ManifestConfigs[0]; c.FeedbackScrapeType != "Poll" || c.UpdateStrategy.ServerSideApply.FieldManager != "work-agent" ||
		c.UpdateStrategy.ServerSideApply.IgnoreFields[0].Condition != "OnSpokePresent" {
		t.Errorf("the defaults of the API are missing: %+v", c)
	}
	w.Spec.Workload.Manifests[0].Raw = []byte(`{"data": {"k":"<&>"}, "metadata":{"namespace":"ns","name":"a"}, "kind":"ConfigMap","apiVersion":"v1"}`)
	w.Labels["mine"], w.Annotations = "x", map[string]string{fleet.AnnotationLoggingPrefix + "a": "b"}
	h.reconcile()
	h.expectWrites()
	for name, change := range map[string]func(w *workv1.ManifestWork){
		"manifest": func(w *workv1.ManifestWork) {
			w.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a"},"data":{"k":"other"}}`)
		},
		"broken":        func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests[0].Raw = []byte(`{`) },
		"config":        func(w *workv1.ManifestWork) { w.Spec.ManifestConfigs = nil },
		"deleteOption":  func(w *workv1.ManifestWork) { w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: "Orphan"} },
		"executor":      func(w *workv1.ManifestWork) { w.Spec.Executor = &workv1.ManifestWorkExecutor{} },
		"owner":         func(w *workv1.ManifestWork) { w.OwnerReferences[0].UID = "other" },
		"no owner":      func(w *workv1.ManifestWork) { w.OwnerReferences = nil },
		"config hashes": func(w *workv1.ManifestWork) { w.Annotations[fleet.AnnotationConfigSpecHash] = "{}" },
	} {
		change(h.work("cluster1", "addon-hello-deploy-0"))
		if h.reconcile(); len(h.plan.Update) != 1 {
			t.Errorf("%s: writes %v", name, h.writes)
		}
		h.reconcile()
		h.expectWrites()
		w := h.work("cluster1", "addon-hello-deploy-0")
		if w.Labels["mine"] != "x" || w.Annotations[fleet.AnnotationLoggingPrefix+"a"] != "b" || len(w.OwnerReferences) != 1 ||
			w.OwnerReferences[0].UID != "addon-uid" {
			t.Errorf("%s: metadata %+v", name, w.ObjectMeta)
		}
	}
}

// A configuration of manifests goes to the works that have them.
func TestManifestConfigs(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 30_000), configMap("b", 30_000))
	named := func(name string) workv1.ManifestConfigOption {
		return workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "ns", Name: name},
			FeedbackScrapeType: workv1.FeedbackPollType,
		}
	}
	h.Workload.ManifestConfigs = []workv1.ManifestConfigOption{named("b"), named("*"), named("c")}
	h.reconcile()
	for work, want := range map[string][]workv1.ManifestConfigOption{"addon-hello-deploy-0": {named("*")},
		"addon-hello-deploy-1": {named("b"), named("*")}} {
		if got := h.work("cluster1", work).Spec.ManifestConfigs; !equalJSON(got, want) {
			t.Errorf("%s: %+v", work, got)
		}
	}
}

// AF-07, AF-08: what the health depends on is reported, with what the author requests.
func TestHealthFeedback(t *testing.T) {
	t.Parallel()
	h := newHub(t, yamlObject(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: d}}`), configMap("a", 1))
	h.Options.Health.Mode = addon.HealthDeployments
	theirs := workv1.FeedbackRule{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{{Name: "Mine", Path: ".metadata.name"}}}
	h.Workload.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "*", Name: "*"},
		FeedbackRules:      []workv1.FeedbackRule{theirs},
	}}
	h.reconcile()
	configs := h.work("cluster1", "addon-hello-deploy-0").Spec.ManifestConfigs
	if len(configs) != 2 || configs[0].ResourceIdentifier.Name != "d" || configs[0].FeedbackRules[0].Type != workv1.WellKnownStatusType ||
		!equalJSON(configs[0].FeedbackRules[2], theirs) {
		t.Errorf("configs %+v", configs)
	}
}

// Errors name the object and what is wrong with it.
func TestUnusableObjects(t *testing.T) {
	t.Parallel()
	for want, objects := range map[string][]client.Object{
		"manifest 1: it is nil": {configMap("a", 1), nil},
		"manifest 0 (*unstructured.Unstructured ns/a): kind is missing": {yamlObject(`{apiVersion: v1, metadata: {namespace: ns, name: a}}`)},
		"manifest 0: metadata.name is missing": {
			yamlObject(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}`)},
		"manifest 1 is another ConfigMap ns/a that differs from the first": {configMap("a", 1), configMap("a", 2)},
	} {
		h := newHub(t, objects...)
		if _, err := New(h.Input); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	h := newHub(t, configMap("a", 1), configMap("a", 1))
	h.reconcile()
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a")
	h.Installation.AddOn.Name = strings.Repeat("x", 64)
	if _, err := New(h.Input); err == nil || !strings.Contains(err.Error(), "has 64 characters; choose one of no more than 63") {
		t.Errorf("error %v", err)
	}
}

// AF-14: what failed is named; a change that is just being applied does not make the condition flap.
func TestManifestApplied(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1))
	h.reconcile()
	h.agents(nil)
	h.reconcile()
	h.Workload.Objects[0] = configMap("a", 2)
	h.reconcile()
	h.expectCondition("ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	h.reconcile()
	h.expectWrites()
	h.expectCondition("ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	h.Installation.Cluster = cluster("cluster1", metav1.ConditionUnknown)
	h.reconcile()
	h.expectCondition("ManifestApplied", metav1.ConditionFalse, "AddonManifestAppliedFailed", "Cluster cluster1 is not available",
		"addon-hello-deploy-0")
	h.agents(nil)
	w := h.work("cluster1", "addon-hello-deploy-0")
	w.Status.Conditions[0].Status, w.Status.Conditions[0].Message = metav1.ConditionFalse, "1 of 1 manifests failed to apply: no namespace"
	h.reconcile()
	h.expectCondition("ManifestApplied", metav1.ConditionFalse, "AddonManifestAppliedFailed",
		"addon-hello-deploy-0: 1 of 1 manifests failed to apply: no namespace")
	h.Workload.Objects = nil
	h.reconcile()
	h.expectWrites("delete cluster1/addon-hello-deploy-0")
}

// A cluster that is leaving gets nothing any more.
func TestLeavingCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1))
	h.Installation.Cluster.DeletionTimestamp = new(metav1.NewTime(noon))
	h.reconcile()
	h.expectWrites()
}

// BenchmarkPlan is a pass over an add-on of 50 objects that is as it should be.
func BenchmarkPlan(b *testing.B) {
	var objects []client.Object
	for i := range 50 {
		o := configMap(fmt.Sprint("o", i), 1_000)
		objects = append(objects, annotated(o, "a", "b"))
	}
	h := newHub(nil, objects...)
	plan, err := New(h.Input)
	if err != nil {
		b.Fatal(err)
	}
	for _, w := range plan.Create {
		h.Existing = append(h.Existing, *w)
	}
	b.ReportAllocs()
	for b.Loop() {
		if plan, err := New(h.Input); err != nil || len(plan.Create)+len(plan.Update)+len(plan.Delete) != 0 {
			b.Fatal(plan, err)
		}
	}
}
