package works

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// configured adds a manifestConfig to a work.
func configured(w *workv1.ManifestWork, group, resource, namespace, name string, set func(*workv1.ManifestConfigOption)) {
	config := workv1.ManifestConfigOption{ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: resource, Namespace: namespace,
		Name: name}}
	set(&config)
	w.Spec.ManifestConfigs = append(w.Spec.ManifestConfigs, config)
}

// awaitWork waits until the check of the work is content, and returns the work.
func awaitWork(t *testing.T, c client.Client, w *workv1.ManifestWork, check func(*workv1.ManifestWork) error) *workv1.ManifestWork {
	t.Helper()
	got := &workv1.ManifestWork{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), got); err != nil {
			return err
		}
		return check(got)
	})
	return got
}

// values are what the hub is told of a manifest, each as a text.
func values(w *workv1.ManifestWork, manifest int) map[string]string {
	found := map[string]string{}
	if manifest >= len(w.Status.ResourceStatus.Manifests) {
		return found
	}
	for _, v := range w.Status.ResourceStatus.Manifests[manifest].StatusFeedbacks.Values {
		switch value := v.Value; value.Type {
		case workv1.Integer:
			found[v.Name] = fmt.Sprint(*value.Integer)
		case workv1.Boolean:
			found[v.Name] = fmt.Sprint(*value.Boolean)
		case workv1.String:
			found[v.Name] = *value.String
		case workv1.JSONRaw:
			found[v.Name] = *value.JSONRaw
		}
	}
	return found
}

func want(found map[string]string, name, value string) error {
	if found[name] != value {
		return fmt.Errorf("%s is %q, want %q; all values: %v", name, found[name], value, found)
	}
	return nil
}

func deployment(namespace, name string, replicas int, more string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":%q,"name":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},
		"template":{"metadata":{"labels":{"app":%q}},"spec":{%s"containers":[{"name":"web","image":"nginx:1.14.2"}]}}}}`, namespace, name,
		replicas, name, name, more)
}

// WK-24 to WK-28, WK-30, gaps W2 and W3: a Deployment becomes available, and the hub is told, whatever the scrape type.
func TestFeedbackOfDeployment(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "feedback")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "feedback")
	for _, scrape := range []workv1.FeedbackScrapeType{workv1.FeedbackPollType, workv1.FeedbackWatchType} {
		name := strings.ToLower(string(scrape))
		w := framework.Work("feedback", name, framework.ConfigMap(ns, name, "1"), deployment(ns, name, 2, ""))
		configured(w, "apps", "deployments", ns, "*", func(c *workv1.ManifestConfigOption) {
			c.FeedbackScrapeType = scrape
			c.FeedbackRules = []workv1.FeedbackRule{
				{Type: workv1.WellKnownStatusType},
				{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{
					{Name: "image", Path: ".spec.template.spec.containers[0].image"},
					{Name: "available", Path: `.status.conditions[?(@.type=="Available")].status`},
					{Name: "selector", Path: ".spec.selector"},
				}},
			}
			c.ConditionRules = []workv1.ConditionRule{{
				Condition: "Serving", Type: workv1.CelConditionExpressionsType,
				CelExpressions: []string{
					`hasConditions(object.status) && object.status.conditions.exists(c, c.type == "Available" && c.status == "True")`},
				MessageExpression: `result ? string(object.status.availableReplicas) + " replicas serve" : "nobody serves"`,
			}}
		})
		framework.Create(t, h, w)
		got := awaitWork(t, h, w, func(w *workv1.ManifestWork) error { return want(values(w, 1), "AvailableReplicas", "2") })
		for name, value := range map[string]string{
			"ReadyReplicas": "2", "Replicas": "2", "image": "nginx:1.14.2", "available": "True",
			"selector": fmt.Sprintf(`{"matchLabels":{"app":%q}}`, name),
		} {
			if err := want(values(got, 1), name, value); err != nil {
				t.Error(err)
			}
		}
		for manifest, reason := range []string{"NoStatusFeedbackSynced", "StatusFeedbackSynced"} {
			cond := meta.FindStatusCondition(got.Status.ResourceStatus.Manifests[manifest].Conditions, "StatusFeedbackSynced")
			if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason != reason || cond.ObservedGeneration != got.Generation {
				t.Errorf("%s manifest %d: %+v, want %s", name, manifest, cond, reason)
			}
		}
		serving := meta.FindStatusCondition(got.Status.Conditions, "Serving")
		if serving == nil || serving.Status != metav1.ConditionTrue || serving.Reason != "ConditionRulesAggregated" ||
			serving.Message != "2 replicas serve" {
			t.Errorf("%s: Serving %+v", name, serving)
		}
	}
}

// Gap W6: without rules a work is Progressing until everything in it works, and Degraded when something fails.
func TestHealthByDefault(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "health")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "health")
	plain := framework.Work("health", "plain", framework.ConfigMap(ns, "plain", "1"))
	// No node has the label.
	stuck := framework.Work("health", "stuck", deployment(ns, "stuck", 1, `"nodeSelector":{"no":"node"},`))
	ruled := framework.Work("health", "ruled", deployment(ns, "ruled", 1, `"nodeSelector":{"no":"node"},`))
	configured(ruled, "apps", "deployments", ns, "ruled", func(c *workv1.ManifestConfigOption) {
		c.ConditionRules = []workv1.ConditionRule{{Condition: "Progressing", Type: workv1.CelConditionExpressionsType,
			CelExpressions: []string{"false"}}}
	})
	framework.Create(t, h, plain, stuck, ruled)
	framework.AwaitCondition(t, h, plain, "Progressing", metav1.ConditionFalse)
	framework.AwaitCondition(t, h, plain, "Degraded", metav1.ConditionFalse)
	got := framework.AwaitCondition(t, h, stuck, "Progressing", metav1.ConditionTrue)
	awaitWork(t, h, stuck, func(w *workv1.ManifestWork) error {
		cond := meta.FindStatusCondition(w.Status.Conditions, "Progressing")
		if !strings.Contains(cond.Message, "Deployment health/stuck: 0 of 1 replicas are available") {
			return fmt.Errorf("message %q", cond.Message)
		}
		return nil
	})
	framework.AwaitCondition(t, h, ruled, "Progressing", metav1.ConditionFalse)

	before := got.DeepCopy()
	got.Spec.Workload.Manifests = framework.RawManifests(deployment(ns, "stuck", 1, ""))
	if err := h.Patch(t.Context(), got, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	got = framework.AwaitCondition(t, h, stuck, "Progressing", metav1.ConditionFalse)
	manifest := got.Status.ResourceStatus.Manifests[0]
	if cond := meta.FindStatusCondition(manifest.Conditions, "Progressing"); cond == nil || cond.Status != metav1.ConditionFalse ||
		cond.Reason != "HealthCurrent" {
		t.Errorf("the manifest's Progressing: %+v", cond)
	}
}

// WK-16, WK-29: a Job that has finished is complete; neither it nor the rest of its work is applied again.
func TestCompleteWorksFreeze(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "complete")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "complete")
	job := `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"complete","name":%q},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"job","image":"busybox"}]}}}}`
	whole := framework.Work("complete", "whole", fmt.Sprintf(job, "whole"), framework.ConfigMap(ns, "whole", "1"))
	// A second rule, which never holds, keeps this work from being complete; its Job is.
	part := framework.Work("complete", "part", fmt.Sprintf(job, "part"), framework.ConfigMap(ns, "part", "1"))
	for _, w := range []*workv1.ManifestWork{whole, part} {
		configured(w, "batch", "jobs", ns, "*", func(c *workv1.ManifestConfigOption) {
			c.ConditionRules = []workv1.ConditionRule{{Condition: "Complete", Type: workv1.WellKnownConditionsType}}
		})
	}
	configured(part, "", "configmaps", ns, "part", func(c *workv1.ManifestConfigOption) {
		c.ConditionRules = []workv1.ConditionRule{{Condition: "Complete", Type: workv1.CelConditionExpressionsType,
			CelExpressions: []string{"false"}}}
	})
	framework.Create(t, h, whole, part)
	framework.AwaitCondition(t, h, whole, "Complete", metav1.ConditionTrue)
	awaitWork(t, h, part, func(w *workv1.ManifestWork) error {
		if !meta.IsStatusConditionTrue(w.Status.ResourceStatus.Manifests[0].Conditions, "Complete") ||
			!meta.IsStatusConditionFalse(w.Status.Conditions, "Complete") {
			return fmt.Errorf("%+v", w.Status)
		}
		return nil
	})

	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	for _, name := range []string{"whole", "part"} {
		if err := m.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, background); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "whole"}}); err != nil {
		t.Fatal(err)
	}
	// What is not complete is repaired, and once it is, the agent has seen the other deletions, too.
	if err := m.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "part"}}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitConfigMap(t, m, ns, "part", "1")
	// A work that came later is applied, and these are not.
	after := framework.Work("complete", "after", framework.ConfigMap(ns, "after", "1"))
	framework.Create(t, h, after)
	framework.AwaitCondition(t, h, after, "Applied", metav1.ConditionTrue)
	for _, gone := range []client.Object{
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "whole"}}, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "part"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "whole"}},
	} {
		if err := m.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: gone.GetName()}, gone); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s was made again (%v)", gone, gone.GetName(), err)
		}
	}
	got := framework.AwaitCondition(t, h, part, "Applied", metav1.ConditionTrue)
	if got.Status.ResourceStatus.Manifests[0].ResourceMeta.Name != "part" ||
		!meta.IsStatusConditionTrue(got.Status.ResourceStatus.Manifests[0].Conditions, "Complete") {
		t.Errorf("the complete manifest: %+v", got.Status.ResourceStatus.Manifests[0])
	}
	for _, w := range []*workv1.ManifestWork{whole, part} {
		if err := h.Delete(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		framework.AwaitGone(t, h, w)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "part"}})
}

// WK-32: a complete work with a TTL goes at its end, with everything it applied; others stay.
func TestWorkGoesAfterTTL(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "ttl")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "ttl")
	var works []*workv1.ManifestWork
	for _, name := range []string{"goes", "stays"} {
		w := framework.Work("ttl", name, framework.ConfigMap(ns, name, "1"))
		configured(w, "", "configmaps", ns, name, func(c *workv1.ManifestConfigOption) {
			c.ConditionRules = []workv1.ConditionRule{{Condition: "Complete", Type: workv1.CelConditionExpressionsType,
				CelExpressions: []string{`object.data.key == "1"`}}}
		})
		works = append(works, w)
	}
	ttl := int64(1)
	works[0].Spec.DeleteOption = &workv1.DeleteOption{TTLSecondsAfterFinished: &ttl}
	framework.Create(t, h, works[1], works[0])
	framework.AwaitGone(t, h, works[0])
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "goes"}})
	framework.AwaitCondition(t, h, works[1], "Complete", metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "stays", "1")
}

const gaugeDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gauges.feedback.example.com"},"spec":{"group":"feedback.example.com","scope":"Namespaced",
	"names":{"kind":"Gauge","plural":"gauges","singular":"gauge","listKind":"GaugeList"},
	"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// Gap W7 and bursts: values of every type are reported; of many changes in a row not each is, but the last always.
func TestFeedbackOfCustomResource(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "gauges")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "gauges")
	w := framework.Work("gauges", "gauges", gaugeDefinition,
		`{"apiVersion":"feedback.example.com/v1","kind":"Gauge","metadata":{"namespace":"gauges","name":"gauge"}}`)
	configured(w, "feedback.example.com", "gauges", ns, "gauge", func(c *workv1.ManifestConfigOption) {
		c.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{
			{Name: "level", Path: ".status.level"}, {Name: "count", Path: ".status.count"}, {Name: "wrong", Path: ".status.wrong"},
			{Name: "all", Path: ".status.all"},
		}}}
	})
	framework.Create(t, h, w)
	before := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	set := func(status string) {
		t.Helper()
		gauge := &unstructured.Unstructured{}
		gauge.SetAPIVersion("feedback.example.com/v1")
		gauge.SetKind("Gauge")
		gauge.SetNamespace(ns)
		gauge.SetName("gauge")
		if err := m.Status().Patch(t.Context(), gauge,
			client.RawPatch("application/merge-patch+json", []byte(`{"status":`+status+`}`))); err != nil {
			t.Fatal(err)
		}
	}
	set(`{"level":0.75,"count":1,"all":[1,{"a":"b"}]}`)
	awaitWork(t, h, w, func(w *workv1.ManifestWork) error {
		if got := values(w, 1); got["level"] != "0.75" || got["count"] != "1" || got["all"] != `[1,{"a":"b"}]` || len(got) != 3 {
			return fmt.Errorf("values %v", got)
		}
		return nil
	})
	began := time.Now()
	const changes = 200
	writes := statusWrites(t, h, before, func() {
		for i := range changes {
			set(fmt.Sprintf(`{"count":%d}`, i+2))
		}
		awaitWork(t, h, w, func(w *workv1.ManifestWork) error { return want(values(w, 1), "count", fmt.Sprint(changes+1)) })
	})
	took := time.Since(began)
	if most := 5 * int(took/time.Second+2); writes > most {
		t.Errorf("%d changes within %s led to %d writes on the hub, want %d at most", changes, took, writes, most)
	}
	// What cannot be reported is said, and does not keep the rest from being reported.
	set(fmt.Sprintf(`{"wrong":[%q],"count":0}`, strings.Repeat("x", 1025)))
	got := awaitWork(t, h, w, func(w *workv1.ManifestWork) error { return want(values(w, 1), "count", "0") })
	cond := meta.FindStatusCondition(got.Status.ResourceStatus.Manifests[1].Conditions, "StatusFeedbackSynced")
	if cond.Status != metav1.ConditionFalse || cond.Reason != "StatusFeedbackSyncFailed" ||
		!strings.Contains(cond.Message, `the value "wrong" cannot be reported: it has 1029 bytes of JSON, and 1024 is the limit`) {
		t.Errorf("%+v", cond)
	}
}

// statusWrites counts the changes of a work on the hub from an earlier state of it until something is done.
func statusWrites(t *testing.T, c client.WithWatch, since *workv1.ManifestWork, do func()) int {
	t.Helper()
	changes, err := c.Watch(t.Context(), &workv1.ManifestWorkList{}, client.InNamespace(since.Namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: since.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	do()
	now := &workv1.ManifestWork{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(since), now); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		event, more := env.NextEvent(t, changes)
		changed, ok := event.Object.(*workv1.ManifestWork)
		if !more || !ok {
			t.Fatalf("the watch ended after %d changes: %+v", n-1, event)
		}
		if changed.ResourceVersion == now.ResourceVersion {
			return n
		}
	}
}
