package workload

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func hookJob(name string) *unstructured.Unstructured {
	return annotated(yamlObject(`{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: `+name+`}, spec: {}}`),
		fleet.AnnotationAddOnPreDelete, "")
}

func hookPod(name string) *unstructured.Unstructured {
	o := yamlObject(`{apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: ` + name + `}, spec: {}}`)
	o.SetLabels(map[string]string{fleet.LabelAddOnPreDelete: ""})
	return o
}

// AF-15: a hook is marked by an annotation, or by a label: with the key of the annotation, or with the one of older add-ons.
func TestMarksOfHooks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind                string
		labels, annotations map[string]string
		hook                bool
	}{
		"annotation":           {kind: "Job", annotations: map[string]string{"addon.open-cluster-management.io/addon-pre-delete": ""}, hook: true},
		"label":                {kind: "Job", labels: map[string]string{"addon.open-cluster-management.io/addon-pre-delete": ""}, hook: true},
		"label of older":       {kind: "Job", labels: map[string]string{"open-cluster-management.io/addon-pre-delete": ""}, hook: true},
		"annotation of no key": {kind: "Job", annotations: map[string]string{"open-cluster-management.io/addon-pre-delete": ""}},
		"another kind":         {kind: "CronJob", labels: map[string]string{"addon.open-cluster-management.io/addon-pre-delete": ""}},
		"no mark":              {kind: "Job"},
	} {
		o := yamlObject(`{apiVersion: batch/v1, kind: ` + test.kind + `, metadata: {namespace: ns, name: bye}, spec: {}}`)
		o.SetLabels(test.labels)
		o.SetAnnotations(test.annotations)
		if got := isHook(o); got != test.hook {
			t.Errorf("%s: %t", name, got)
		}
	}
}

type values = map[string]map[string]string

// AF-15: hooks run before the add-on goes, and all else stays until they are done.
func TestHooks(t *testing.T) {
	t.Parallel()
	marked := annotated(configMap("b", 1), fleet.AnnotationAddOnPreDelete, "") // no hook: of another kind
	h := newHub(t, configMap("a", 1), marked, hookJob("bye"), hookPod("ciao"))
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a", "ConfigMap b")
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectNoCondition("HookManifestCompleted")
	h.agents(nil)

	h.removed()
	h.Dependents = []string{"b", "c"}
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "delete these, too: b, c",
		"capstan.io/pre-delete-timeout=0s")
	h.Dependents = nil
	h.Workload.Objects[0] = configMap("a", 99)
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-pre-delete")
	h.expectObjects("cluster1", "addon-hello-pre-delete", "Pod ciao", "Job bye")
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "Job ns/bye", "Pod ns/ciao",
		"to be started")
	w := h.work("cluster1", "addon-hello-pre-delete")
	if len(w.OwnerReferences) != 1 || w.Labels[fleet.LabelAddOnName] != "hello" {
		t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
	}
	for _, c := range w.Spec.ManifestConfigs {
		if c.FeedbackRules[0].Type != workv1.WellKnownStatusType || c.ResourceIdentifier.Namespace != "ns" {
			t.Errorf("config %+v", c)
		}
	}
	for _, half := range []values{nil, {"Job": {"JobComplete": "True"}}, {"Pod": {"PodPhase": "Succeeded"}},
		{"Job": {"JobComplete": "True"}, "Pod": {"PodPhase": "Running"}}} {
		h.agents(half)
		h.reconcile()
		h.expectWrites()
		h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
		h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "not done yet",
			"capstan.io/pre-delete-timeout=0s")
	}
	h.agents(values{"Job": {"JobComplete": "True"}, "Pod": {"PodPhase": "Succeeded"}})
	h.reconcile()
	h.expectWrites() // the works go with the add-on
	h.expectFinalizers()
	h.expectCondition("HookManifestCompleted", metav1.ConditionTrue, "HookManifestIsCompleted")
}

// AF-15: an add-on that is deleted without ever having had the finalizer is gone: nothing can be run any more. Without hooks there
// is nothing to wait for.
func TestNoHooks(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.removed()
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers()
	h = newHub(t, configMap("a", 1))
	h.Installation.AddOn.Finalizers = []string{"other", fleet.FinalizerAddOnPreDelete}
	h.removed()
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers("other")
}

// AF-15: the finalizers of older add-ons count, and none is added to what is being deleted.
func TestDeprecatedFinalizers(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.Installation.AddOn.Finalizers = []string{fleet.DeprecatedFinalizerAddOnPreDelete}
	h.reconcile()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.Installation.AddOn.Finalizers = []string{fleet.DeprecatedFinalizerAddOnPreDelete}
	h.removed()
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-pre-delete")
	h.expectFinalizers(fleet.DeprecatedFinalizerAddOnPreDelete)
	h.agents(values{"Job": {"JobComplete": "True"}})
	h.reconcile()
	h.expectFinalizers()
}

// AF-15: a failure says what failed and what to do, and the hook can be run again.
func TestFailedHook(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.removed()
	h.reconcile()
	h.agents(values{"Job": {"JobFailed": "True", "JobFailedMessage": "Job has reached the specified backoff limit"}})
	h.reconcile()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted",
		"On cluster cluster1 failed: Job ns/bye (Job has reached the specified backoff limit)",
		"delete ManifestWork cluster1/addon-hello-pre-delete",
		"kubectl annotate --overwrite managedclusteraddon -n cluster1 hello capstan.io/pre-delete-timeout=0s")
	if h.plan.RequeueAfter != 0 {
		t.Errorf("comes back after %s", h.plan.RequeueAfter)
	}
	h.work("cluster1", "addon-hello-pre-delete").DeletionTimestamp = new(metav1.NewTime(noon))
	h.reconcile()
	h.expectWrites()
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "the hooks run when it is gone")
	h.agents(nil)
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-pre-delete")
}

// AF-15: what ran for an add-on of this name before does not count.
func TestStaleHooks(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1), hookJob("bye"))
	h.reconcile()
	h.removed()
	h.reconcile()
	h.agents(values{"Job": {"JobComplete": "True"}})
	h.Installation.AddOn.UID = "another"
	h.reconcile()
	h.expectWrites("delete cluster1/addon-hello-pre-delete")
	h.agents(nil)
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-pre-delete")
	h.agents(nil)
	h.Installation.AddOn.DeletionTimestamp = nil
	h.reconcile()
	h.expectWrites("update cluster1/addon-hello-deploy-0", "delete cluster1/addon-hello-pre-delete")
}

// AF-15: hooks go with their work, whatever is to stay: those that stay would not run again when the add-on is removed once more.
func TestHooksDoNotStay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hook   client.Object
		option *workv1.DeleteOption
	}{
		"all stay": {hookJob("bye"), &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}},
		"the author names it": {hookJob("bye"), &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{
				OrphaningRules: []workv1.OrphaningRule{{Group: "batch", Resource: "jobs", Namespace: "ns", Name: "bye"}}},
		}},
		"annotated": {annotated(hookJob("bye"), fleet.AnnotationDeletionOrphan, ""), nil},
	} {
		h := newHub(t, configMap("a", 1), test.hook)
		h.Workload.DeleteOption = test.option
		h.reconcile()
		h.removed()
		h.reconcile()
		if got := h.work("cluster1", "addon-hello-pre-delete").Spec.DeleteOption; got != nil {
			t.Errorf("%s: deleteOption %+v of the hooks, want none", name, got)
		}
	}
}

// Gap A4, A6: an administrator may have an add-on go before those that need it.
func TestDependentsNotWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1))
	h.reconcile()
	h.Installation.AddOn.Finalizers = []string{fleet.FinalizerAddOnPreDelete} // for the sake of those
	h.removed()
	h.Dependents = []string{"b"}
	set(&h.Installation.AddOn.Annotations, fleet.AnnotationPreDeleteTimeout, "30m")
	h.reconcile()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "delete these, too: b",
		"all the same at 2026-11-21T12:30:00Z")
	if h.plan.RequeueAfter != 30*time.Minute {
		t.Errorf("it comes back after %s", h.plan.RequeueAfter)
	}
	h.Now = h.Now.Add(30 * time.Minute)
	h.reconcile()
	h.expectFinalizers()
}

// AF-15: with an agent on a hosting cluster both clusters have hooks, and all is deleted there when both are done.
func TestHostedHooks(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("a"), annotated(hookJob("b"), at, "hosting"), annotated(configMap("c", 1), at, "hosting")).hosted()
	h.reconcile()
	h.expectWrites("create host/addon-hello-deploy-hosting-cluster1-0")
	all := []string{fleet.FinalizerAddOnPreDelete, fleet.FinalizerHostingAddOnPreDelete, fleet.FinalizerHostingManifestsCleanup}
	h.expectFinalizers(all...)
	h.agents(nil)
	h.removed()
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-pre-delete", "create host/addon-hello-pre-delete-hosting-cluster1")
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "Job ns/a on cluster cluster1",
		"Job ns/b on cluster host")
	done := h.work("host", "addon-hello-pre-delete-hosting-cluster1")
	h.agents(values{"Job": {"JobComplete": "True"}})
	done.Status = workv1.ManifestWorkStatus{}
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers(all...)
	h.agents(values{"Job": {"JobComplete": "True"}})
	h.reconcile()
	h.expectWrites("delete host/addon-hello-deploy-hosting-cluster1-0", "delete host/addon-hello-pre-delete-hosting-cluster1")
	h.expectFinalizers(fleet.FinalizerHostingManifestsCleanup)
	h.agents(nil)
	h.reconcile()
	h.expectFinalizers()
}

// Gap A6: when hooks are waited for no longer.
func TestHookTimeout(t *testing.T) {
	t.Parallel()
	timeout := func(value string) map[string]string {
		return map[string]string{fleet.AnnotationPreDeleteTimeout: value}
	}
	byDefault := func(value string) map[string]string {
		return map[string]string{fleet.AnnotationDefaultPreDeleteTimeout: value}
	}
	for name, test := range map[string]struct {
		addOn, cma map[string]string // cma is nil if there is none
		available  metav1.ConditionStatus
		want       time.Duration // 0: never
		says       string
	}{
		"available": {available: metav1.ConditionTrue, says: "capstan.io/pre-delete-timeout=0s"},
		"not available": {available: metav1.ConditionFalse, want: 10 * time.Minute,
			says: "cluster cluster1 is not available; the hub removes the add-on all the same at 2026-11-21T12:10:00Z"},
		"unknown":                      {available: metav1.ConditionUnknown, want: 10 * time.Minute},
		"the add-on says":              {addOn: timeout("1m"), cma: timeout("1h"), available: metav1.ConditionTrue, want: time.Minute},
		"the add-on says: hookTimeout": {addOn: timeout("1h"), available: metav1.ConditionUnknown, want: time.Hour},
		"the catalogue says":           {cma: timeout("30s"), available: metav1.ConditionUnknown, want: 30 * time.Second},
		"the catalogue said":           {addOn: byDefault("30s"), available: metav1.ConditionTrue, want: 30 * time.Second},
		"the catalogue says otherwise": {addOn: byDefault("1h"), cma: timeout("30s"), available: metav1.ConditionTrue, want: 30 * time.Second},
		"the catalogue says no more":   {addOn: byDefault("1h"), cma: map[string]string{}, available: metav1.ConditionTrue},
		"nonsense": {addOn: timeout("soon"), available: metav1.ConditionTrue,
			says: `capstan.io/pre-delete-timeout="soon" is no duration`},
		"less than nothing": {addOn: timeout("-1s"), available: metav1.ConditionUnknown, want: 10 * time.Minute,
			says: "is no duration, write one such as 30m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, hookJob("bye"))
			h.reconcile()
			h.Installation.AddOn.Annotations = test.addOn
			if test.cma != nil {
				h.CMA = &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Annotations: test.cma}}
			}
			h.Installation.Cluster = cluster("cluster1", test.available)
			h.removed()
			h.reconcile()
			h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
			h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", test.says)
			if h.plan.RequeueAfter != test.want {
				t.Errorf("comes back after %s, want %s", h.plan.RequeueAfter, test.want)
			}
			if test.want == 0 {
				test.want = 1000 * time.Hour
			}
			h.Now = noon.Add(test.want - time.Second)
			h.reconcile()
			h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
			h.Now = noon.Add(test.want)
			h.reconcile()
			if test.want != 1000*time.Hour {
				h.expectFinalizers()
				h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted",
					"goes on without the pre-delete hooks", "Job ns/bye")
			}
		})
	}
}

// Gap A6: the time counts from when the cluster went away, and starts again when it was back.
func TestHookTimeoutBegins(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.removed()
	h.Now = noon.Add(time.Hour)
	h.Installation.Cluster = cluster("cluster1", metav1.ConditionUnknown)
	h.Installation.Cluster.Status.Conditions[1].LastTransitionTime = metav1.NewTime(h.Now)
	h.reconcile()
	if h.plan.RequeueAfter != 10*time.Minute {
		t.Errorf("comes back after %s", h.plan.RequeueAfter)
	}
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
}

// Gap A6: a cluster that exists no longer is not waited for.
func TestHooksWithoutCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.Installation.Cluster = nil
	h.reconcile()
	h.expectWrites()
	h.removed()
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers()
}

// AF-15: where the namespace of the cluster is being deleted, no hook can be brought to it any more, and the namespace waits for the
// add-on.
func TestHooksInANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begun bool
		want  []string
	}{
		"not begun": {false, nil},
		"begun":     {true, []string{fleet.FinalizerAddOnPreDelete}}, // their work is there, and its agent runs them
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, hookJob("bye"))
			h.reconcile()
			h.removed()
			if test.begun {
				h.reconcile()
				h.expectWrites("create cluster1/addon-hello-pre-delete")
			}
			h.Closed = true
			h.reconcile()
			h.expectWrites()
			h.expectFinalizers(test.want...)
		})
	}
}

// AF-15: hooks that cannot be made are waited for, in sight of everybody, and with a way out.
func TestUnrenderedHooks(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.Workload, h.Unrendered = nil, errors.New("no such chart")
	h.reconcile()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.removed()
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "no such chart",
		"capstan.io/pre-delete-timeout=0s")
	message := meta.FindStatusCondition(h.Installation.AddOn.Status.Conditions, "HookManifestCompleted").Message
	advised := regexp.MustCompile(`kubectl annotate --overwrite managedclusteraddon -n cluster1 hello (\S+)=(\w+)`).FindStringSubmatch(message)
	if advised == nil {
		t.Fatalf("the condition does not say how the add-on goes all the same: %s", message)
	}
	set(&h.Installation.AddOn.Annotations, advised[1], advised[2])
	h.reconcile()
	h.expectFinalizers()
}

// Gap A6: objects that cannot be used hold an add-on no longer than its hooks.
func TestUnusableHooks(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.removed()
	h.Workload.Objects = append(h.Workload.Objects, nil)
	h.reconcile()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "manifest 1: it is nil")
	if h.plan.RequeueAfter != rerender {
		t.Errorf("the add-on is asked again after %s", h.plan.RequeueAfter)
	}
	h.CMA = &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleet.AnnotationPreDeleteTimeout: "0s"}}}
	h.reconcile()
	h.expectFinalizers()
}
