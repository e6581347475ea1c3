package works

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// said are conditions by their type, each as its status and reason.
type said map[string]string

// check compares some of the conditions, which must be about the generation.
func (want said) check(conditions []metav1.Condition, generation int64) error {
	for kind, words := range want {
		have := isNotSaid
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			have = fmt.Sprintf("%s %s", c.Status, c.Reason)
			if c.ObservedGeneration != generation || c.LastTransitionTime.IsZero() || c.Message == "" {
				have += fmt.Sprintf(" at generation %d since %s: %q", c.ObservedGeneration, c.LastTransitionTime, c.Message)
			}
		}
		if have != words {
			return fmt.Errorf("%s is %s, want %s; all: %+v", kind, have, words, conditions)
		}
	}
	return nil
}

const (
	isApplied    = "True AppliedManifestComplete"
	isNotApplied = "False AppliedManifestFailed"
	isThere      = "True ResourceAvailable"
	isNotThere   = "False ResourceNotAvailable"
	isNotSaid    = "nothing"
)

// WK-07 to WK-09, WK-20 to WK-30, WK-33: the conditions of a work and of its only manifest, after successes, failures and refusals.
func TestStatusRows(t *testing.T) {
	t.Parallel()
	const cluster = "status-rows"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	framework.Create(t, m, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nobody"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}})
	grant(t, m, ns, "reader", "reader", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}})

	as := func(account string) func(*workv1.ManifestWork) {
		return func(w *workv1.ManifestWork) {
			w.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
				Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: ns, Name: account},
			}}
		}
	}
	with := func(set func(*workv1.ManifestConfigOption)) func(*workv1.ManifestWork) {
		return func(w *workv1.ManifestWork) { configured(w, "", "configmaps", ns, w.Name, set) }
	}
	strategy := func(s workv1.UpdateStrategy) func(*workv1.ManifestWork) {
		return with(func(c *workv1.ManifestConfigOption) { c.UpdateStrategy = &s })
	}
	readOnly := strategy(workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly})
	ignoring := strategy(serverSide(workv1.ServerSideApplyConfig{IgnoreFields: []workv1.IgnoreField{
		{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JQPathExpressions: []string{`.data.key | error`}},
	}}))
	path := func(path string) func(*workv1.ManifestWork) {
		return with(func(c *workv1.ManifestConfigOption) {
			c.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{{Name: "value", Path: path}}}}
		})
	}
	rule := func(kind string, expressions ...string) func(*workv1.ManifestWork) {
		return with(func(c *workv1.ManifestConfigOption) {
			c.ConditionRules = append(c.ConditionRules, workv1.ConditionRule{Condition: kind, Type: workv1.CelConditionExpressionsType,
				CelExpressions: expressions})
		})
	}
	invalid := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q},"data":{"no key!":"x"}}`, ns, name)
	}

	good := said{"Applied": "True AppliedManifestWorkComplete", "Available": "True ResourcesAvailable"}
	gone := said{"Applied": "False AppliedManifestWorkFailed", "Available": "False ResourcesNotAvailable"}
	kept := said{"Applied": "False AppliedManifestWorkFailed", "Available": "True ResourcesAvailable"}
	for name, row := range map[string]struct {
		manifest string // a ConfigMap if empty
		exists   bool   // before the work
		set      []func(*workv1.ManifestWork)
		of, work said
		values   string
	}{
		"applied": {of: said{"Applied": isApplied, "Available": isThere, "StatusFeedbackSynced": "True NoStatusFeedbackSynced"},
			work: good},
		"adopted": {exists: true, of: said{"Applied": isApplied, "Available": isThere}, work: good},
		"no-namespace": {manifest: framework.ConfigMap("status-rows-none", "a", "1"), of: said{"Applied": isNotApplied, "Available": isNotThere},
			work: gone},
		"no-kind": {manifest: `{"apiVersion":"example.com/v1","kind":"Unknown","metadata":{"namespace":"status-rows","name":"a"}}`,
			of: said{"Applied": isNotApplied, "Available": isNotThere, "StatusFeedbackSynced": "True NoStatusFeedbackSynced"}, work: gone},
		"invalid": {manifest: invalid("invalid"), of: said{"Applied": isNotApplied, "Available": isNotThere}, work: gone},
		"turned-invalid": {manifest: invalid("turned-invalid"), exists: true, of: said{"Applied": isNotApplied, "Available": isThere},
			work: kept},

		"refused": {set: []func(*workv1.ManifestWork){as("nobody")}, of: said{"Applied": isNotApplied, "Available": isNotThere},
			work: gone},
		"refused-there": {exists: true, set: []func(*workv1.ManifestWork){as("nobody")},
			of: said{"Applied": isNotApplied, "Available": isThere, "StatusFeedbackSynced": "True NoStatusFeedbackSynced"}, work: kept},
		"refused-feedback": {exists: true, set: []func(*workv1.ManifestWork){as("nobody"), path(".data.key"),
			rule("Right", `object.data.key == "0"`)},
			of:   said{"Applied": isNotApplied, "Available": isThere, "StatusFeedbackSynced": "False StatusFeedbackSyncFailed", "Right": isNotSaid},
			work: kept},
		"refused-reader": {exists: true, set: []func(*workv1.ManifestWork){as("reader"), path(".data.key")},
			of: said{"Applied": isNotApplied, "Available": isThere, "StatusFeedbackSynced": "True StatusFeedbackSynced"}, work: kept, values: "0"},
		"refused-look": {exists: true, set: []func(*workv1.ManifestWork){as("nobody"), readOnly, path(".data.key")},
			of: said{"Applied": isNotApplied, "Available": isThere, "StatusFeedbackSynced": "False StatusFeedbackSyncFailed"}, work: kept},
		"refused-nothing": {set: []func(*workv1.ManifestWork){as("nobody"), readOnly},
			of: said{"Applied": isNotApplied, "Available": isNotThere}, work: gone},

		"look": {exists: true, set: []func(*workv1.ManifestWork){readOnly, path(".data.key")},
			of: said{"Applied": isApplied, "Available": isThere, "StatusFeedbackSynced": "True StatusFeedbackSynced"}, work: good, values: "0"},
		"look-reader": {exists: true, set: []func(*workv1.ManifestWork){as("reader"), readOnly},
			of: said{"Applied": isApplied, "Available": isThere}, work: good},
		"look-at-nothing": {set: []func(*workv1.ManifestWork){readOnly, path(".data.key")},
			of: said{"Applied": isNotApplied, "Available": isNotThere, "StatusFeedbackSynced": "False StatusFeedbackSyncFailed"}, work: gone},
		"conflict": {exists: true, set: []func(*workv1.ManifestWork){strategy(serverSide(workv1.ServerSideApplyConfig{}))},
			of: said{"Applied": isNotApplied, "Available": isThere}, work: kept},
		"ignore": {set: []func(*workv1.ManifestWork){ignoring}, of: said{"Applied": "False AppliedManifestSSAIgnoreFieldError",
			"Available": isNotThere}, work: gone},
		"ignore-there": {exists: true, set: []func(*workv1.ManifestWork){ignoring},
			of: said{"Applied": "False AppliedManifestSSAIgnoreFieldError", "Available": isThere}, work: kept},

		"value": {set: []func(*workv1.ManifestWork){path(".data.key")},
			of: said{"Applied": isApplied, "StatusFeedbackSynced": "True StatusFeedbackSynced"}, work: good, values: "1"},
		"bad-path": {set: []func(*workv1.ManifestWork){path(".data[")},
			of: said{"Applied": isApplied, "StatusFeedbackSynced": "False StatusFeedbackSyncFailed"}, work: good},
		"no-status": {set: []func(*workv1.ManifestWork){with(func(c *workv1.ManifestConfigOption) {
			c.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
		})}, of: said{"StatusFeedbackSynced": "False StatusFeedbackSyncFailed"}, work: good},

		"rule": {set: []func(*workv1.ManifestWork){rule("Right", `object.data.key == "1"`)},
			of: said{"Right": "True ConditionRuleEvaluated"}, work: said{"Right": "True ConditionRulesAggregated"}},
		"rule-fails": {set: []func(*workv1.ManifestWork){rule("Right", `object.data.key == "2"`)},
			of: said{"Right": "False ConditionRuleEvaluated"}, work: said{"Right": "False ConditionRulesAggregated"}},
		"rule-guarded": {set: []func(*workv1.ManifestWork){rule("Right", `has(object.status)`, `object.status.ready`)},
			of: said{"Right": "False ConditionRuleEvaluated"}, work: said{"Right": "False ConditionRulesAggregated"}},
		"rule-error": {set: []func(*workv1.ManifestWork){rule("Right", `object.status.ready`)},
			of: said{"Right": "False ConditionRuleExpressionError"}, work: said{"Right": "False ConditionRulesAggregated"}},
		"rule-syntax": {set: []func(*workv1.ManifestWork){rule("Right", `object.`)}, of: said{"Right": "False ConditionRuleExpressionError"},
			work: said{"Right": "False ConditionRulesAggregated"}},
		"rule-reserved": {set: []func(*workv1.ManifestWork){rule("Applied", `false`)},
			of: said{"Applied": isApplied, "StatusFeedbackSynced": "False StatusFeedbackSyncFailed"}, work: good},
		"progress": {set: []func(*workv1.ManifestWork){rule("Progressing", `true`)}, of: said{"Progressing": "True ConditionRuleEvaluated"},
			work: said{"Progressing": "True ConditionRulesAggregated", "Degraded": "False ConditionRulesAggregated"}},
		"complete": {set: []func(*workv1.ManifestWork){rule("Complete", `true`)},
			of:   said{"Complete": "True ConditionRuleEvaluated", "Applied": isApplied},
			work: said{"Complete": "True ConditionRulesAggregated", "Applied": "True AppliedManifestWorkComplete"}},
	} {
		if row.exists {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{"key": "0"}}
			if err := m.Create(t.Context(), cm, client.FieldOwner("another")); err != nil {
				t.Fatal(err)
			}
		}
		w := framework.Work(cluster, name, cmp.Or(row.manifest, framework.ConfigMap(ns, name, "1")))
		for _, set := range row.set {
			set(w)
		}
		framework.Create(t, h, w)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := awaitWork(t, h, w, func(w *workv1.ManifestWork) error {
				if err := row.work.check(w.Status.Conditions, w.Generation); err != nil {
					return err
				}
				if len(w.Status.ResourceStatus.Manifests) != 1 {
					return fmt.Errorf("status %+v", w.Status)
				}
				return row.of.check(w.Status.ResourceStatus.Manifests[0].Conditions, w.Generation)
			})
			if have := values(got, 0)["value"]; have != row.values {
				t.Errorf("the value %q is reported, want %q", have, row.values)
			}
		})
	}
}

// WK-20: a status on the wire has all fields of resourceMeta, and statusFeedback, also where they are empty.
func TestStatusOnTheWire(t *testing.T) {
	t.Parallel()
	const name = "status-wire"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	definition := strings.ReplaceAll(gaugeDefinition, "feedback.example.com", "wire.example.com")
	w := framework.Work(name, name, definition, framework.ConfigMap(ns, "b", "1"), deployment(ns, "web", 0, ""),
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"status-wire-made"}}`,
		framework.ConfigMap(ns, "a", "1"), framework.ConfigMap("status-wire-made", "a", "1"),
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":%q,"name":"a"}}`, ns),
		fmt.Sprintf(`{"apiVersion":"wire.example.com/v1","kind":"Gauge","metadata":{"namespace":%q,"name":"a"}}`, ns))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)

	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(schema.GroupVersionKind{Group: "work.open-cluster-management.io", Version: "v1", Kind: "ManifestWork"})
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(w), raw); err != nil {
		t.Fatal(err)
	}
	manifests, _, _ := unstructured.NestedSlice(raw.Object, "status", "resourceStatus", "manifests")
	if len(manifests) != 8 {
		t.Fatalf("%d manifests", len(manifests))
	}
	fields := func(object any) string {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for ordinal, want := range map[int]string{
		1: `{"group":"","kind":"ConfigMap","name":"b","namespace":"status-wire","ordinal":1,"resource":"configmaps","version":"v1"}`,
		3: `{"group":"","kind":"Namespace","name":"status-wire-made","namespace":"","ordinal":3,"resource":"namespaces","version":"v1"}`,
	} {
		status := manifests[ordinal].(map[string]any)
		if have := fields(status["resourceMeta"]); have != want {
			t.Errorf("resourceMeta %s, want %s", have, want)
		}
		if have := fields(status["statusFeedback"]); have != `{}` {
			t.Errorf("statusFeedback %s", have)
		}
	}

	// WK-13: the inventory is sorted by group, version, resource, namespace and name, and its fields are there, too.
	raw.SetKind("AppliedManifestWork")
	var resources []any
	env.Eventually(t, func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKey{Name: appliedName(t, agent, name)}, raw); err != nil {
			return err
		}
		if resources, _, _ = unstructured.NestedSlice(raw.Object, "status", "appliedResources"); len(resources) != 8 {
			return fmt.Errorf("%d resources", len(resources))
		}
		return nil
	})
	var have []string
	for _, r := range resources {
		one := r.(map[string]any)
		if one["uid"] == "" {
			t.Errorf("no uid: %v", one)
		}
		delete(one, "uid")
		have = append(have, fields(one))
	}
	want := []string{
		`{"group":"","name":"a","namespace":"status-wire","resource":"configmaps","version":"v1"}`,
		`{"group":"","name":"b","namespace":"status-wire","resource":"configmaps","version":"v1"}`,
		`{"group":"","name":"a","namespace":"status-wire-made","resource":"configmaps","version":"v1"}`,
		`{"group":"","name":"status-wire-made","namespace":"","resource":"namespaces","version":"v1"}`,
		`{"group":"","name":"a","namespace":"status-wire","resource":"secrets","version":"v1"}`,
		`{"group":"apiextensions.k8s.io","name":"gauges.wire.example.com","namespace":"","resource":"customresourcedefinitions","version":"v1"}`,
		`{"group":"apps","name":"web","namespace":"status-wire","resource":"deployments","version":"v1"}`,
		`{"group":"wire.example.com","name":"a","namespace":"status-wire","resource":"gauges","version":"v1"}`,
	}
	if !slices.Equal(have, want) {
		t.Errorf("the inventory is\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
}

// WK-33: a right that is taken from an executor shows without any change of the work or its objects, and so does one that comes back.
func TestRightTakenFromExecutor(t *testing.T) {
	t.Parallel()
	const name = "right-taken"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	framework.Create(t, m, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deployer"}})
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"get", "create", "update", "patch", "delete"}}
	grant(t, m, ns, "deployer", "deployer", rule)
	w := framework.Work(name, name, framework.ConfigMap(ns, "a", "1"), framework.ConfigMap(ns, "b", "1"))
	w.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: ns,
			Name: "deployer"},
	}}
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deployer"}}
	if err := m.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	awaitReview(t, h, w, metav1.ConditionFalse)
	got := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionFalse)
	for i, manifest := range got.Status.ResourceStatus.Manifests {
		if err := (said{"Applied": isNotApplied, "Available": isThere}).check(manifest.Conditions, got.Generation); err != nil {
			t.Errorf("manifest %d: %v", i, err)
		}
	}
	if err := (said{"Available": "True ResourcesAvailable"}).check(got.Status.Conditions, got.Generation); err != nil {
		t.Error(err)
	}
	grant(t, m, ns, "deployer", "again", rule)
	awaitReview(t, h, w, metav1.ConditionTrue)
}

// awaitReview waits until the rights of the executor of a work have been reviewed once more, which the agent does every minute.
func awaitReview(t *testing.T, c client.Client, w *workv1.ManifestWork, applied metav1.ConditionStatus) {
	t.Helper()
	env.EventuallyAfter(t, time.Minute, func(ctx context.Context) error {
		got := &workv1.ManifestWork{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), got); err != nil {
			return err
		}
		if !meta.IsStatusConditionPresentAndEqual(got.Status.Conditions, "Applied", applied) {
			return fmt.Errorf("want Applied=%s, have %+v", applied, got.Status.Conditions)
		}
		return nil
	})
}
