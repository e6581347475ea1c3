package conditions

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-17: a dispute is named with its fields, with who takes part, and with what can be done.
func TestDisputed(t *testing.T) {
	t.Parallel()
	const (
		interval = " at intervals of up to a minute. "
		restores = ". The agent restores what the manifest says" + interval
		makes    = ". The agent makes it again" + interval
		replicas = "Fields in dispute: spec.replicas. "
		leave    = "Leave the fields out of the manifest, leave them to others with updateStrategy ServerSideApply and ignoreFields, " +
			"or set updateStrategy ReadOnly"
	)
	for name, test := range map[string]struct {
		dispute      Dispute
		reason, want string
	}{
		"an autoscaler": {Dispute{Fields: []string{"spec.replicas"}, Writer: "kube-controller-manager (subresource scale)"},
			"FieldsChangedRepeatedly", replicas + "They were last written by kube-controller-manager (subresource scale)" + restores + leave},
		"another work": {Dispute{Fields: []string{"spec.replicas"}, ByAgent: true, Others: []string{"ManifestWork b"}},
			"FieldsChangedRepeatedly", replicas + "The object is also named by ManifestWork b" + restores +
				"Name the object in one manifest only, or give all of them the same values"},
		"another client, and a work that does not matter": {
			Dispute{Fields: []string{"spec.replicas"}, Writer: "kubectl-edit", Others: []string{"ManifestWork b"}},
			"FieldsChangedRepeatedly", replicas + "They were last written by kubectl-edit" + restores + leave},
		"a webhook": {Dispute{Fields: []string{"a", "b", "c", "d"}, ByAgent: true}, "FieldsChangedRepeatedly",
			"Fields in dispute: a, b, c and 1 more. No other client wrote them: the API server or an admission webhook changes what the agent " +
				"writes" + restores + leave},
		"somebody": {Dispute{Fields: []string{"spec.replicas"}}, "FieldsChangedRepeatedly",
			replicas + "Who changed them is not recorded" + restores + leave},
		"somebody who deletes": {Dispute{Deletions: 1}, "ObjectDeletedRepeatedly", "The object was deleted at least 1 time. Who deletes it is not " +
			"recorded" + makes + "Take the object out of the work, or set updateStrategy ReadOnly"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			results := []Result{{Manifest: configMap, Presence: Present, Dispute: &test.dispute}, {Presence: Present}}
			Update(w, results, time.Unix(1000, 0))
			if Update(w, results, time.Unix(2000, 0)) {
				t.Error("the same dispute is news")
			}
			ofManifest := meta.FindStatusCondition(w.Status.ResourceStatus.Manifests[0].Conditions, "Disputed")
			if ofManifest == nil || ofManifest.Status != metav1.ConditionTrue || ofManifest.ObservedGeneration != 3 ||
				ofManifest.Reason != test.reason || ofManifest.Message != test.want {
				t.Errorf("%+v\nwant %s: %s", ofManifest, test.reason, test.want)
			}
			ofWork := meta.FindStatusCondition(w.Status.Conditions, "Disputed")
			if want := "1 of 2 resources are in dispute: " + nameOf(configMap) + ": " + test.want; ofWork == nil ||
				ofWork.Status != metav1.ConditionTrue || ofWork.Reason != "ManifestsDisputed" || ofWork.Message != want {
				t.Errorf("%+v\nwant %s", ofWork, want)
			}
			if !meta.IsStatusConditionTrue(w.Status.Conditions, "Applied") {
				t.Error("the work is not Applied any more")
			}
			results[0].Dispute = nil
			Update(w, results, time.Unix(3000, 0))
			for _, conditions := range [][]metav1.Condition{w.Status.Conditions, w.Status.ResourceStatus.Manifests[0].Conditions} {
				if left := meta.FindStatusCondition(conditions, "Disputed"); left != nil {
					t.Errorf("left when the dispute is over: %+v", left)
				}
			}
		})
	}
}

// A rule about a condition of this name decides on it alone, and a message that is too long is cut.
func TestDisputedWithOthers(t *testing.T) {
	t.Parallel()
	w := &workv1.ManifestWork{}
	long := &Dispute{Fields: []string{strings.Repeat("x", 5000)}}
	Update(w, []Result{{Dispute: long}, {Dispute: long}, {Dispute: long}, {Dispute: long}}, time.Unix(1000, 0))
	if cond := meta.FindStatusCondition(w.Status.Conditions, "Disputed"); cond == nil || len(cond.Message) > 32768 ||
		!strings.HasSuffix(cond.Message, "; and 1 more") {
		t.Errorf("%+v", cond)
	}
	ruled := Query{ConditionRules: []workv1.ConditionRule{{Condition: "Disputed"}}}
	answer := &Reading{Conditions: []metav1.Condition{{Type: "Disputed", Status: metav1.ConditionFalse, Reason: "ConditionRuleEvaluated"}}}
	results := []Result{{Dispute: long, Query: ruled, Reading: answer}}
	w = &workv1.ManifestWork{}
	Update(w, results, time.Unix(1000, 0))
	if Update(w, results, time.Unix(2000, 0)) || meta.IsStatusConditionTrue(w.Status.Conditions, "Disputed") {
		t.Errorf("the rule does not decide alone: %+v", w.Status.Conditions)
	}
}

// WK-17: a dispute about a field is one about what the field is in, and about nothing beside it.
func TestIsAbout(t *testing.T) {
	t.Parallel()
	dispute := &Dispute{Fields: []string{"spec.replicas", `metadata.labels["a/b"]`, "spec.ports[0].name"}}
	for field, want := range map[string]bool{
		"spec.replicas": true, "spec": true, "spec.ports": true, "spec.ports[0]": true, `metadata.labels["a/b"]`: true, "metadata.labels": true,
		"spec.replica": false, "spec.replicas.max": false, "spec.ports[1]": false, "spec.paused": false,
	} {
		if got := dispute.IsAbout(field); got != want {
			t.Errorf("%s: %t", field, got)
		}
	}
	if (*Dispute)(nil).IsAbout("spec") {
		t.Error("no dispute is about something")
	}
}
