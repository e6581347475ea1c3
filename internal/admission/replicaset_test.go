package admission_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/admission"
)

func setExecutedBy(account string) *workv1alpha1.ManifestWorkReplicaSet {
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "s"}}
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "p"}}
	set.Spec.ManifestWorkTemplate = workOf(configMap).Spec
	if account != "" {
		set.Spec.ManifestWorkTemplate.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "apps", Name: account},
		}}
	}
	return set
}

// WH-11: the executor of a template needs the permission in all namespaces; in that of the set it is not enough, even if
// there is a cluster of that name.
func TestExecutorOfReplicaSet(t *testing.T) {
	t.Parallel()
	const (
		anywhere = "execute-as manifestworks/.work.open-cluster-management.io /system:serviceaccount:apps:bot"
		inC1     = "execute-as manifestworks/.work.open-cluster-management.io c1/system:serviceaccount:apps:bot"
		writing  = "patch manifestworkreplicasets/status.work.open-cluster-management.io /"
		asAgent  = "execute-as manifestworks/.work.open-cluster-management.io /system:serviceaccount::klusterlet-work-sa"
	)
	doingOther := setExecutedBy("bot")
	doingOther.Spec.ManifestWorkTemplate.Workload = workOf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"b"}}`).
		Spec.Workload
	annotated := func(name, value string) *workv1alpha1.ManifestWorkReplicaSet {
		set := setExecutedBy("bot")
		set.Annotations = map[string]string{name: value}
		return set
	}
	forgedBefore := setExecutedBy("")
	forgedBefore.Annotations = map[string]string{"capstan.io/revisions": "[]"}
	elsewhere := setExecutedBy("bot")
	elsewhere.Spec.PlacementRefs[0].Name = "other"
	refused := []string{"spec.manifestWorkTemplate.executor", `user "ann" cannot manipulate the Manifestwork`,
		"in the namespaces of all clusters"}
	for _, test := range []struct {
		name     string
		set, old *workv1alpha1.ManifestWorkReplicaSet
		gate     bool
		allowed  []string
		reviewed []string
		texts    []string
	}{
		{name: "none", set: setExecutedBy("")},
		{name: "allowed", set: setExecutedBy("bot"), allowed: []string{anywhere}, reviewed: []string{anywhere}},
		{name: "not allowed", set: setExecutedBy("bot"), reviewed: []string{anywhere}, texts: refused},
		{name: "allowed in one namespace", set: setExecutedBy("bot"), allowed: []string{inC1}, reviewed: []string{anywhere}, texts: refused},
		{name: "changed", set: setExecutedBy("bot"), old: setExecutedBy("other"), reviewed: []string{anywhere}, texts: refused},
		{name: "added", set: setExecutedBy("bot"), old: setExecutedBy(""), reviewed: []string{anywhere}, texts: refused},
		{name: "unchanged", set: setExecutedBy("bot"), old: setExecutedBy("bot")},
		{name: "other workload", set: doingOther, old: setExecutedBy("bot"), reviewed: []string{anywhere}, texts: refused},
		{name: "overridden", set: annotated("capstan.io/overrides", "[]"), old: setExecutedBy("bot"),
			reviewed: []string{anywhere}, texts: refused},
		{name: "another revision to restore", set: annotated("capstan.io/revisions", "[]"), old: setExecutedBy("bot"),
			allowed:  []string{anywhere},
			reviewed: []string{anywhere, writing},
			texts:    []string{"metadata.annotations[capstan.io/revisions]: Forbidden: the hub writes the revisions of a set", `user "ann"`}},
		{name: "another revision for an executor that comes later", set: forgedBefore, old: setExecutedBy(""), reviewed: []string{writing},
			texts: []string{"the hub writes the revisions"}},
		{name: "a new set with revisions", set: forgedBefore, reviewed: []string{writing}, texts: []string{"the hub writes the revisions"}},
		{name: "executor for a set with revisions", set: annotated("capstan.io/revisions", "[]"), old: forgedBefore, allowed: []string{anywhere},
			reviewed: []string{anywhere}},
		{name: "revisions forgotten", set: setExecutedBy(""), old: forgedBefore},
		{name: "revisions noted by the controller", set: annotated("capstan.io/revisions", "[]"), old: setExecutedBy("bot"),
			allowed: []string{anywhere, writing}, reviewed: []string{anywhere, writing}},
		{name: "rolled back", set: annotated("capstan.io/rollback", "true"), old: setExecutedBy("bot"), reviewed: []string{anywhere},
			texts: refused},
		{name: "rolled back by who may", set: annotated("capstan.io/rollback", "true"), old: setExecutedBy("bot"), allowed: []string{anywhere},
			reviewed: []string{anywhere}},
		{name: "annotated by another user", set: annotated("a", "b"), old: setExecutedBy("bot")},
		{name: "for other clusters", set: elsewhere, old: setExecutedBy("bot")},
		{name: "taken away", set: setExecutedBy(""), old: setExecutedBy("bot"), allowed: []string{anywhere}, reviewed: []string{asAgent},
			texts: refused},
		{name: "none with the gate", set: setExecutedBy(""), gate: true, reviewed: []string{asAgent}, texts: []string{"klusterlet-work-sa"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code := 0
			if test.texts != nil {
				code = 400
			}
			authorizer := fakeAuthorizer{allowed: test.allowed}
			err := admission.ValidateManifestWorkReplicaSet(t.Context(), test.set, test.old, authorizer.sender(),
				admission.ManifestWorkOptions{NilExecutorValidating: test.gate})
			checkStatus(t, err, code, test.texts...)
			if !slices.Equal(authorizer.reviewed, test.reviewed) {
				t.Errorf("asked for %q, want %q", authorizer.reviewed, test.reviewed)
			}
		})
	}
}

// WH-12: two references to one placement would have two strategies for the same works.
func TestPlacementTwice(t *testing.T) {
	t.Parallel()
	set := setExecutedBy("")
	set.Spec.PlacementRefs = append(set.Spec.PlacementRefs, set.Spec.PlacementRefs[0])
	err := admission.ValidateManifestWorkReplicaSet(t.Context(), set, nil, (&fakeAuthorizer{}).sender(), admission.ManifestWorkOptions{})
	checkStatus(t, err, 400, `spec.placementRefs[1].name: Duplicate value: "p"`)
}

// How works move is said in values that mean something. What is there already stays.
func TestMovesOfReplicaSet(t *testing.T) {
	t.Parallel()
	const graceful, maxLost = "capstan.io/graceful-move", "capstan.io/max-lost-clusters"
	with := func(annotation, value string) *workv1alpha1.ManifestWorkReplicaSet {
		set := setExecutedBy("")
		set.Annotations = map[string]string{annotation: value}
		return set
	}
	for _, test := range []struct {
		annotation, value string
		texts             []string
	}{
		{graceful, "true", nil}, {graceful, "false", nil},
		{graceful, "yes", []string{graceful, `"yes"`, `supported values: "true", "false"`}},
		{graceful, "", []string{graceful}},
		{maxLost, "30%", nil}, {maxLost, "3", nil}, {maxLost, "0", nil},
		{maxLost, "101%", []string{maxLost, `"101%"`, "use one such as 3 or 30%"}}, {maxLost, "-1", []string{maxLost}},
		{maxLost, "", []string{maxLost}},
	} {
		set := with(test.annotation, test.value)
		err := admission.ValidateManifestWorkReplicaSet(t.Context(), set, nil, admission.Sender{}, admission.ManifestWorkOptions{})
		if (err == nil) != (test.texts == nil) {
			t.Errorf("%s %q: %v", test.annotation, test.value, err)
		}
		for _, text := range test.texts {
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s %q: %v, want %q", test.annotation, test.value, err, text)
			}
		}
		err = admission.ValidateManifestWorkReplicaSet(t.Context(), set, set, admission.Sender{}, admission.ManifestWorkOptions{})
		if err != nil {
			t.Errorf("%s %q, which was there: %v", test.annotation, test.value, err)
		}
	}
}
