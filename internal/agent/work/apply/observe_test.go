package apply

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

const hubHash = "hash"

// reporter is a Controller that reports on one Deployment of one work.
type reporter struct {
	*Controller
	clock *clocktesting.FakeClock
	work  *workv1.ManifestWork
	last  *workResult
}

func newReporter(t *testing.T) *reporter {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	tracked := tracker.New(t.Context(), metadatafake.NewSimpleMetadataClient(scheme))
	observed := observe.New(dynamicfake.NewSimpleDynamicClient(scheme), tracked, observe.Options{MaxJSONRawLength: 1024, Clock: clock})
	c := &Controller{Options: Options{Applied: &deletion.Cluster{Tracked: tracked}, Observer: observed, Clock: clock},
		names: &appliedmanifestwork.Names{HubHash: hubHash}}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "work", Generation: 1}}
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"},
		FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}},
		ConditionRules: []workv1.ConditionRule{
			{Condition: "Serving", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"object.status.availableReplicas > 0"}},
		},
	}}
	return &reporter{Controller: c, clock: clock, work: work}
}

// pass reports what a pass has found; live is nil if it read nothing. It returns the status of the Deployment's manifest.
func (r *reporter) pass(t *testing.T, live *unstructured.Unstructured) workv1.ManifestCondition {
	t.Helper()
	r.clock.Step(time.Minute)
	o := manifestResult{resolved: true, presence: conditions.Present,
		mapping: &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}}
	o.identity = manifest.Identity{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Namespace: "default", Name: "web"}
	o.freeze(r.work, r.last.find(o.object()))
	outcomes := []manifestResult{o}
	r.observe(fleet.AppliedManifestWorkName(hubHash, r.work.Name), r.work, r.last, outcomes, []*unstructured.Unstructured{live})
	r.last = &workResult{results: outcomes}
	r.updateStatus(r.work, outcomes)
	if r.updateStatus(r.work, outcomes) {
		t.Error("the same status is news")
	}
	return r.work.Status.ResourceStatus.Manifests[0]
}

func webWith(available int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "default", "name": "web", "generation": int64(1)},
		"spec": map[string]any{"replicas": int64(2)},
		"status": map[string]any{"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2),
			"availableReplicas": available},
	}}
}

func (r *reporter) expect(t *testing.T, conditions []metav1.Condition, kind string, status metav1.ConditionStatus,
	reason string) metav1.Condition {
	t.Helper()
	cond := meta.FindStatusCondition(conditions, kind)
	if cond == nil {
		if status != "" {
			t.Errorf("there is no %s, want %s", kind, status)
		}
		return metav1.Condition{}
	}
	if cond.Status != status || cond.Reason != reason || cond.ObservedGeneration != r.work.Generation {
		t.Errorf("%+v, want %s %s at generation %d", cond, status, reason, r.work.Generation)
	}
	return *cond
}

// WK-24: the time of StatusFeedbackSynced is that of the values.
func TestTimeOfFeedback(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	first := r.expect(t, r.pass(t, webWith(1)).Conditions, "StatusFeedbackSynced", "True", "StatusFeedbackSynced")
	same := r.expect(t, r.pass(t, webWith(1)).Conditions, "StatusFeedbackSynced", "True", "StatusFeedbackSynced")
	if !same.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Error("the time has changed, and the values have not")
	}
	status := r.pass(t, webWith(2))
	later := r.expect(t, status.Conditions, "StatusFeedbackSynced", "True", "StatusFeedbackSynced")
	if !later.LastTransitionTime.Time.Equal(r.clock.Now()) {
		t.Errorf("the time is %s, want that of the new values", later.LastTransitionTime)
	}
	if n := len(status.StatusFeedbacks.Values); n != 2 {
		t.Errorf("%d values", n)
	}
	r.expect(t, status.Conditions, "Serving", "True", "ConditionRuleEvaluated")
	r.expect(t, r.work.Status.Conditions, "Serving", "True", "ConditionRulesAggregated")
	r.expect(t, status.Conditions, "Progressing", "False", "HealthCurrent")
	r.expect(t, r.work.Status.Conditions, "Progressing", "False", "ConditionRulesAggregated")
}

// WK-30, MR-04: what was found under an earlier generation says nothing about this one.
func TestNewGeneration(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	r.pass(t, webWith(2))
	r.work.Generation = 2
	r.work.Spec.ManifestConfigs[0].FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType,
		JSONPaths: []workv1.JSONPath{{Name: "replicas", Path: ".spec.replicas"}}}}
	status := r.pass(t, nil)
	r.expect(t, status.Conditions, "Serving", "", "")
	r.expect(t, r.work.Status.Conditions, "Serving", "", "")
	r.expect(t, status.Conditions, "Progressing", "True", "HealthInProgress")
	r.expect(t, r.work.Status.Conditions, "Progressing", "True", "ConditionRulesAggregated")
	if len(status.StatusFeedbacks.Values) == 0 {
		t.Error("the values are not kept until there are new ones")
	}
	status = r.pass(t, webWith(2))
	r.expect(t, status.Conditions, "Serving", "True", "ConditionRuleEvaluated")
	if values := status.StatusFeedbacks.Values; len(values) != 1 || values[0].Name != "replicas" {
		t.Errorf("values %+v", values)
	}
	// Without rules, nothing of them stays.
	r.work.Generation, r.work.Spec.ManifestConfigs = 3, nil
	status = r.pass(t, webWith(2))
	r.expect(t, status.Conditions, "Serving", "", "")
	r.expect(t, r.work.Status.Conditions, "Serving", "", "")
	r.expect(t, status.Conditions, "StatusFeedbackSynced", "True", "NoStatusFeedbackSynced")
	r.expect(t, status.Conditions, "Progressing", "False", "HealthCurrent")
	if len(status.StatusFeedbacks.Values) != 0 {
		t.Errorf("values %+v", status.StatusFeedbacks.Values)
	}
}

// After a restart, what was found under this generation holds until the object is read again.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	r.pass(t, webWith(2))
	restarted := newReporter(t)
	restarted.work = r.work
	status := restarted.pass(t, nil)
	restarted.expect(t, status.Conditions, "Serving", "True", "ConditionRuleEvaluated")
	restarted.expect(t, r.work.Status.Conditions, "Progressing", "False", "ConditionRulesAggregated")
	if len(status.StatusFeedbacks.Values) != 2 {
		t.Errorf("values %+v", status.StatusFeedbacks.Values)
	}
}

// WK-16: a complete manifest keeps its status.
func TestFrozenStatus(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	r.work.Spec.ManifestConfigs[0].ConditionRules[0].Condition = "Complete"
	r.pass(t, webWith(2))
	if !conditions.IsComplete(r.work) {
		t.Fatalf("the work is not complete: %+v", r.work.Status.Conditions)
	}
	r.work.Generation, r.work.Spec.ManifestConfigs = 2, nil
	status := r.pass(t, webWith(0))
	r.expect(t, status.Conditions, "Complete", "True", "ConditionRuleEvaluated")
	r.expect(t, status.Conditions, "Progressing", "False", "HealthCurrent")
	r.expect(t, status.Conditions, "StatusFeedbackSynced", "True", "StatusFeedbackSynced")
	r.expect(t, r.work.Status.Conditions, "Complete", "True", "ConditionRulesAggregated")
	if len(status.StatusFeedbacks.Values) != 2 {
		t.Errorf("values %+v", status.StatusFeedbacks.Values)
	}
}

// WK-33: of an object that the executor may not get, nothing is reported, nor under a second manifest of it. What it may get is reported
// under both, whatever else it may not.
func TestWithheldFromExecutor(t *testing.T) {
	t.Parallel()
	deployer := workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "ns", Name: "deployer"}}
	for name, test := range map[string]struct {
		subject workv1.ManifestWorkExecutorSubject
		allowed string // the one verb
		values  int
	}{
		"no service account": {workv1.ManifestWorkExecutorSubject{}, "get", 0},
		"it may not get":     {deployer, "create", 0},
		"it may get":         {deployer, "get", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReporter(t)
			results := r.passOfTwo(t, &workv1.ManifestWorkExecutor{Subject: test.subject}, checkerAllowing(t, test.allowed))
			if n := len(r.work.Status.ResourceStatus.Manifests); n != len(results) {
				t.Fatalf("the status has %d manifests, want %d", n, len(results))
			}
			for i, status := range r.work.Status.ResourceStatus.Manifests {
				synced := meta.FindStatusCondition(status.Conditions, fleet.ConditionStatusFeedbackSynced)
				isRefused := synced != nil && strings.Contains(synced.Message, "lacks the verb get")
				if len(status.StatusFeedbacks.Values) != test.values || isRefused != (test.values == 0) || !results[i].resolved {
					t.Errorf("manifest %d has the values %+v and the condition %+v: %v", i, status.StatusFeedbacks.Values, synced, results[i].err)
				}
			}
		})
	}
}

// passOfTwo reports what a pass over two manifests of one ClusterRole finds.
func (r *reporter) passOfTwo(t *testing.T, by *workv1.ManifestWorkExecutor, executors *executor.Checker) []manifestResult {
	t.Helper()
	raw := func(namespace string) workv1.Manifest {
		return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1",` +
			`"kind":"ClusterRole","metadata":{"namespace":"` + namespace + `","name":"viewer"}}`)}}
	}
	r.work.Spec.Workload.Manifests, r.work.Spec.Executor = []workv1.Manifest{raw("a"), raw("b")}, by
	r.work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "viewer"},
		FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType,
			JSONPaths: []workv1.JSONPath{{Name: "secret", Path: ".metadata.labels.secret"}}}},
	}}
	d := newDisputed(t, r.work)
	d.executors = executors
	d.mapper.(*meta.DefaultRESTMapper).Add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		meta.RESTScopeRoot)
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, r.work.Name)}}
	results, live := d.apply(t.Context(), amw, r.work, nil)
	for i := range live {
		live[i] = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"metadata": map[string]any{"name": "viewer", "labels": map[string]any{"secret": "x"}}}}
	}
	r.observe(amw.Name, r.work, nil, results, live)
	r.updateStatus(r.work, results)
	return results
}

// checkerAllowing has an authorizer that allows everybody the verbs.
func checkerAllowing(t *testing.T, verbs ...string) *executor.Checker {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil || review.Spec.ResourceAttributes == nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		review.Status.Allowed = slices.Contains(verbs, review.Spec.ResourceAttributes.Verb)
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	checker, err := executor.New(config, clocktesting.NewFakeClock(time.Unix(1000, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return checker
}
