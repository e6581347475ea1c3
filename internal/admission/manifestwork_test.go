package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/admission"
)

func workOf(manifests ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w"}}
	for _, manifest := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests,
			workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	return work
}

// padded is a manifest of exactly this many bytes.
func padded(name string, size int) string {
	empty := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":%q},"data":{"x":""}}`, name)
	return strings.Replace(empty, `"x":""`, `"x":"`+strings.Repeat("x", size-len(empty))+`"`, 1)
}

const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"a"}}`

// WH-10
func TestManifests(t *testing.T) {
	t.Parallel()
	many := make([]string, 12)
	for i := range many {
		many[i] = `{}`
	}
	for _, test := range []struct {
		name      string
		manifests []string
		limit     int
		texts     []string
	}{
		{name: "one", manifests: []string{configMap}},
		{name: "same name in other namespace, kind, group", manifests: []string{configMap,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"m","name":"a"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"n","name":"a"}}`,
			`{"apiVersion":"x/v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"a"}}`}},
		{name: "none", texts: []string{"spec.workload.manifests", "at least one manifest"}},
		{name: "empty", manifests: []string{configMap, ""}, texts: []string{"spec.workload.manifests[1]", "empty"}},
		{name: "no object", manifests: []string{`"secret"`}, texts: []string{"spec.workload.manifests[0]", "not a Kubernetes object"}},
		{name: "null", manifests: []string{`null`}, texts: []string{"spec.workload.manifests[0].apiVersion"}},
		{name: "no apiVersion", manifests: []string{`{"kind":"Secret","metadata":{"name":"a"}}`},
			texts: []string{"spec.workload.manifests[0].apiVersion"}},
		{name: "no kind", manifests: []string{`{"apiVersion":"v1","metadata":{"name":"a"}}`}, texts: []string{"spec.workload.manifests[0].kind"}},
		{name: "no name", manifests: []string{`{"apiVersion":"v1","kind":"Secret"}`}, texts: []string{"spec.workload.manifests[0].metadata.name",
			"the Secret has no name"}},
		{name: "generateName", manifests: []string{`{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"a-"}}`},
			texts: []string{"spec.workload.manifests[0].metadata.generateName", `"a-"`, "Secret"}},
		{name: "name and generateName", manifests: []string{`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","generateName":"a-"}}`},
			texts: []string{"generateName"}},
		{name: "duplicate", manifests: []string{`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, configMap, configMap},
			texts: []string{"spec.workload.manifests[2]", "duplicate of manifest 1", "v1 ConfigMap n/a"}},
		{name: "duplicate in another version", manifests: []string{
			`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"namespace":"n","name":"a"}}`,
			`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"namespace":"n","name":"a"}}`},
			texts: []string{"spec.workload.manifests[1]", "duplicate of manifest 0", "autoscaling/v2 HorizontalPodAutoscaler n/a"}},
		{name: "all errors", manifests: []string{`{}`, configMap, configMap}, texts: []string{"manifests[0].apiVersion", "manifests[2]"}},
		{name: "more errors than users read", manifests: many, texts: []string{"manifests[9].apiVersion", "and 2 more"}},
		{name: "at the limit", manifests: []string{padded("a", 400), padded("b", 600)}, limit: 1000},
		{name: "over the limit", manifests: []string{padded("a", 400), padded("b", 601)}, limit: 1000,
			texts: []string{"size of the manifests is 1001 bytes", "limit is 1000 bytes", "manifest 1, v1 ConfigMap n/b, of 601 bytes"}},
		{name: "over the limit and unreadable", manifests: []string{strings.Repeat("x", 1001)}, limit: 1000,
			texts: []string{"manifest 0, unreadable"}},
		{name: "at the default limit", manifests: []string{padded("a", 1<<20)}},
		{name: "over the default limit", manifests: []string{padded("a", 1<<20+1)}, texts: []string{"1048577 bytes", "1048576 bytes"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code := 0
			if test.texts != nil {
				code = 400
			}
			opts := admission.ManifestWorkOptions{Limit: test.limit}
			for _, old := range []*workv1.ManifestWork{nil, workOf(`{"other":1}`)} {
				err := admission.ValidateManifestWork(context.Background(), workOf(test.manifests...), old, (&fakeAuthorizer{}).sender(), opts)
				checkStatus(t, err, code, test.texts...)
			}
		})
	}
}

// WH-10: a work that was stored under a larger limit can still lose its finalizers.
func TestUnchangedManifestsAreNotCheckedAgain(t *testing.T) {
	t.Parallel()
	work, old := workOf(padded("a", 2000)), workOf(padded("a", 2000))
	old.Finalizers = []string{"f"}
	err := admission.ValidateManifestWork(context.Background(), work, old, (&fakeAuthorizer{}).sender(),
		admission.ManifestWorkOptions{Limit: 1000})
	checkStatus(t, err, 0)
}

// A manifest may be a Secret.
func TestErrorsDoNotQuoteManifests(t *testing.T) {
	t.Parallel()
	err := admission.ValidateManifestWork(context.Background(), workOf(`["hunter2"]`), nil, (&fakeAuthorizer{}).sender(),
		admission.ManifestWorkOptions{})
	checkStatus(t, err, 400)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the content is in the message: %v", err)
	}
}

// WH-11
func TestExecutor(t *testing.T) {
	t.Parallel()
	const asSelf = "execute-as manifestworks/.work.open-cluster-management.io c1/system:serviceaccount::klusterlet-work-sa"
	const asBot = "execute-as manifestworks/.work.open-cluster-management.io c1/system:serviceaccount:apps:bot"
	executedBy := func(executor *workv1.ManifestWorkExecutor) *workv1.ManifestWork {
		work := workOf(configMap)
		work.Spec.Executor = executor
		return work
	}
	account := func(name string) *workv1.ManifestWorkExecutor {
		return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "apps", Name: name},
		}}
	}
	const otherConfigMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"b"}}`
	doing := func(work *workv1.ManifestWork, manifest string) *workv1.ManifestWork {
		work.Spec.Workload = workOf(manifest).Spec.Workload
		return work
	}
	updating := func(work *workv1.ManifestWork) *workv1.ManifestWork {
		work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{
			{UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply}}}
		return work
	}
	labelled := func(work *workv1.ManifestWork) *workv1.ManifestWork {
		work.Labels = map[string]string{"a": "b"}
		work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		return work
	}
	for _, test := range []struct {
		name       string
		work, old  *workv1.ManifestWork
		gate       bool
		authorizer fakeAuthorizer
		reviewed   []string
		texts      []string
	}{
		{name: "create", work: executedBy(account("bot")), authorizer: fakeAuthorizer{allowed: []string{asBot}}, reviewed: []string{asBot}},
		{name: "create without permission", work: executedBy(account("bot")), reviewed: []string{asBot}, texts: []string{
			`user "ann" cannot manipulate the Manifestwork with executor system:serviceaccount:apps:bot in namespace c1`, "execute-as",
			"no rule allows it"}},
		{name: "create with another user's permission", work: executedBy(account("bot")), authorizer: fakeAuthorizer{allowed: []string{asSelf}},
			reviewed: []string{asBot}, texts: []string{"cannot manipulate"}},
		{name: "authorizer fails", work: executedBy(account("bot")),
			authorizer: fakeAuthorizer{allowed: []string{asBot}, err: errors.New("no connection")},
			reviewed:   []string{asBot}, texts: []string{"no connection"}},
		{name: "changed", work: executedBy(account("bot")), old: executedBy(account("other")), reviewed: []string{asBot},
			texts: []string{"cannot manipulate"}},
		{name: "added", work: executedBy(account("bot")), old: executedBy(nil), reviewed: []string{asBot}, texts: []string{"cannot manipulate"}},
		{name: "unchanged", work: executedBy(account("bot")), old: executedBy(account("bot"))},
		// "An executor is asked for only when it changes": who may not execute as it must not say what it does.
		{name: "other workload", work: doing(executedBy(account("bot")), otherConfigMap), old: executedBy(account("bot")),
			reviewed: []string{asBot},
			texts:    []string{"cannot manipulate"}},
		{name: "other workload with permission", work: doing(executedBy(account("bot")), otherConfigMap), old: executedBy(account("bot")),
			authorizer: fakeAuthorizer{allowed: []string{asBot}}, reviewed: []string{asBot}},
		{name: "other configuration", work: updating(executedBy(account("bot"))), old: executedBy(account("bot")), reviewed: []string{asBot},
			texts: []string{"cannot manipulate"}},
		{name: "taken away", work: executedBy(nil), old: executedBy(account("bot")), authorizer: fakeAuthorizer{allowed: []string{asBot}},
			reviewed: []string{asSelf},
			texts:    []string{"cannot manipulate", "klusterlet-work-sa", "as which the agent acts when the executor is taken away"}},
		{name: "taken away with permission", work: executedBy(nil), old: executedBy(account("bot")),
			authorizer: fakeAuthorizer{allowed: []string{asSelf}}, reviewed: []string{asSelf}},
		{name: "neither workload nor configuration", work: labelled(executedBy(account("bot"))), old: executedBy(account("bot"))},
		{name: "other workload of the agent", work: doing(executedBy(nil), otherConfigMap), old: executedBy(nil)},
		{name: "other workload of the agent with the gate", gate: true, work: doing(executedBy(nil), otherConfigMap), old: executedBy(nil),
			reviewed: []string{asSelf},
			texts:    []string{"cannot manipulate"}},
		{name: "no service account", work: executedBy(&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type: workv1.ExecutorSubjectTypeServiceAccount}}), texts: []string{"spec.executor.subject.serviceAccount"}},
		{name: "other type", work: executedBy(&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "User"}}),
			texts: []string{"spec.executor.subject.type", `"ServiceAccount"`}},
		{name: "none", work: executedBy(nil)},
		{name: "none with the gate", gate: true, work: executedBy(nil), authorizer: fakeAuthorizer{allowed: []string{asSelf}},
			reviewed: []string{asSelf}},
		{name: "none with the gate without permission", gate: true, work: executedBy(nil), reviewed: []string{asSelf},
			texts: []string{"system:serviceaccount::klusterlet-work-sa"}},
		{name: "taken away with the gate", gate: true, work: executedBy(nil), old: executedBy(account("bot")), reviewed: []string{asSelf},
			texts: []string{"cannot manipulate"}},
		{name: "still none with the gate", gate: true, work: executedBy(nil), old: executedBy(nil)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code := 0
			if test.texts != nil {
				code = 400
			}
			err := admission.ValidateManifestWork(context.Background(), test.work, test.old, test.authorizer.sender(),
				admission.ManifestWorkOptions{NilExecutorValidating: test.gate})
			checkStatus(t, err, code, test.texts...)
			if !slices.Equal(test.authorizer.reviewed, test.reviewed) {
				t.Errorf("asked for %q, want %q", test.authorizer.reviewed, test.reviewed)
			}
		})
	}
}

// WH-10: whatever a manifest is, the answer is yes or a 400.
func FuzzManifests(f *testing.F) {
	f.Add([]byte(configMap), []byte(`{"apiVersion":"v1","kind":"List","items":[{}],"metadata":{"name":"a","labels":{"a":1}}}`))
	f.Add([]byte(`{"apiVersion":5}`), []byte(``))
	f.Add([]byte(`{"metadata":{"creationTimestamp":"x"}}`), []byte(`[{"a":{}}]`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		work := workOf(string(first), string(second))
		err := admission.ValidateManifestWork(context.Background(), work, nil, (&fakeAuthorizer{}).sender(),
			admission.ManifestWorkOptions{Limit: 4096})
		if err == nil {
			if string(first) == string(second) {
				t.Errorf("%q passed twice", first)
			}
			return
		}
		if !apierrors.IsBadRequest(err) {
			t.Errorf("%q, %q: got %v, want a 400", first, second, err)
		}
	})
}
