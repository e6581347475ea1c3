package replicaset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// rolledOut is a hub whose set with rollback has version 1 on four clusters.
func rolledOut(t *testing.T) *hub {
	t.Helper()
	set := webSet(progressive(2, clusterv1alpha1.RolloutConfig{}))
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true"}
	h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2", "c3", "c4"))...)
	h.succeed(t, "c1", "c2", "c3", "c4")
	h.reconcile(t)
	h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete")
	return h
}

// fail rolls version 2 out to the first two clusters, where it fails.
func (h *hub) fail(t *testing.T) {
	t.Helper()
	h.setTemplate(t, "2")
	h.reconcile(t)
	if want := map[string]string{"c1": "2", "c2": "2", "c3": "1", "c4": "1"}; !maps.Equal(h.versions(t), want) {
		t.Fatalf("versions %v, want %v", h.versions(t), want)
	}
	h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "True", "Degraded", "True")
	h.reconcile(t)
	h.reconcile(t)
}

func (h *hub) history(t *testing.T) (revisions history) {
	t.Helper()
	if err := json.Unmarshal([]byte(h.set(t).Annotations["capstan.io/revisions"]), &revisions); err != nil {
		t.Fatal(err)
	}
	return revisions
}

// Gap W11: what has failed is taken back everywhere at once, the spec stays as it was written, and the next template gets
// its chance.
func TestRollback(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	h.fail(t)
	if want := map[string]string{"c1": "1", "c2": "1", "c3": "1", "c4": "1"}; !maps.Equal(h.versions(t), want) {
		t.Fatalf("versions %v, want %v", h.versions(t), want)
	}
	set := h.set(t)
	if two := template("2"); !manifest.SameSpec(&set.Spec.ManifestWorkTemplate, &two) || set.Status.Summary.Updated != 0 ||
		set.Status.Summary.Total != 4 {
		t.Errorf("template %s, summary %+v", set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw, set.Status.Summary)
	}
	message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing")
	if !strings.Contains(message, "revision 2 has failed: stopped: 1 failure") ||
		!strings.Contains(message, "revision 1 is restored: change the template") {
		t.Errorf("message %q", message)
	}
	if revisions := h.history(t); len(revisions) != 2 || revisions[0].State != good || revisions[1].State != failed {
		t.Errorf("history %+v", revisions)
	}
	// It stays so, also for a cluster that is new, and though all of them are well with what they have.
	h.report(t, []string{"c1", "c2", "c3", "c4"}, "Applied", "True", "Progressing", "False", "Degraded", "False")
	h.decide(t, decision("p", 1, 0, "c1", "c2", "c3", "c4", "c5"))
	h.reconcile(t)
	if h.versions(t)["c5"] != "1" || h.versions(t)["c1"] != "1" {
		t.Errorf("versions %v", h.versions(t))
	}
	h.writes.Store(0)
	if h.reconcile(t); h.writes.Load() > 0 {
		t.Error("it is written though nothing has changed")
	}

	h.setTemplate(t, "3")
	h.reconcile(t)
	if h.versions(t)["c1"] != "3" || h.versions(t)["c3"] != "1" || h.history(t).current().Number != 3 {
		t.Errorf("versions %v, history %+v", h.versions(t), h.history(t))
	}
}

// Gap W11: a template that was good everywhere is not taken back because a cluster falls ill later.
func TestGoodRevisionsStay(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	h.setTemplate(t, "2")
	h.succeed(t, "c1", "c2", "c3", "c4")
	h.reconcile(t)
	h.report(t, []string{"c1"}, "Progressing", "True", "Degraded", "True")
	h.reconcile(t)
	h.reconcile(t)
	if h.versions(t)["c1"] != "2" || h.history(t).current().State != good {
		t.Errorf("versions %v, history %+v", h.versions(t), h.history(t))
	}
}

// MR-04, gap W11: a cluster that has lost for a moment what it has had for longer than the deadline has not missed the deadline.
func TestNoRollbackForAMoment(t *testing.T) {
	t.Parallel()
	for name, lapse := range map[string]struct{ succeeded, lost []string }{
		"not applied":   {[]string{"Applied", "True", "Progressing", "False"}, []string{"Applied", "False"}},
		"not available": {[]string{"Applied", "True", "Available", "True"}, []string{"Available", "False"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := rolledOut(t)
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
				set.Spec.PlacementRefs[0] = progressive(2, clusterv1alpha1.RolloutConfig{ProgressDeadline: "10m"})
				set.Spec.ManifestWorkTemplate = template("2")
			})
			h.reconcile(t)
			h.clearConditions(t, "c1", "c2")
			h.report(t, []string{"c1", "c2"}, lapse.succeeded...)
			h.clock.Step(30 * time.Minute)
			h.reconcile(t)
			h.report(t, []string{"c1"}, lapse.lost...)
			for range 2 {
				h.reconcile(t)
			}
			if want := map[string]string{"c1": "2", "c2": "2", "c3": "2", "c4": "2"}; !maps.Equal(h.versions(t), want) {
				t.Errorf("versions %v, want %v", h.versions(t), want)
			}
			if now := h.history(t).current(); now.State != "" {
				t.Errorf("the present revision is %+v", now)
			}
			h.clearConditions(t, "c3", "c4")
			h.report(t, []string{"c3", "c4"}, lapse.succeeded...)
			h.clock.Step(10 * time.Minute)
			h.reconcile(t)
			if now := h.history(t).current(); now.State != failed {
				t.Errorf("after the deadline, the present revision is %+v", now)
			}
		})
	}
}

// clearConditions makes the works of clusters what they are before their agents have reported anything.
func (h *hub) clearConditions(t *testing.T, clusters ...string) {
	t.Helper()
	for _, cluster := range clusters {
		w := h.works(t)[cluster][0]
		w.Status.Conditions = nil
		if err := h.Status().Update(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
	}
}

// Gap W11: a hub that may not keep templates rolls out all the same, and says what it cannot do.
func TestTemplatesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true"}
	h := newHub(t, objects(set, decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "False")
	for err, again := range map[error]bool{
		apierrors.NewInternalError(errors.New("etcd is slow")):                          true,
		apierrors.NewForbidden(corev1.Resource("secrets"), "t", errors.New("no right")): false,
	} {
		h.unwritable = err
		if _, got := h.Reconcile(t.Context(), request); again != errors.Is(got, err) || !again && got != nil {
			t.Errorf("%v: tried again because of %v", err, got)
		}
		if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete"); !strings.Contains(message,
			"there can be no rollback to this template") || !strings.Contains(message, err.Error()) {
			t.Errorf("%v: message %q", err, message)
		}
	}
	h.unwritable = nil
	h.reconcile(t)
	if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete"); h.history(t).current().State != good ||
		strings.Contains(message, "rollback") {
		t.Errorf("history %+v, message %q", h.history(t), message)
	}
}

// Gap W11: what has failed and was taken back stays back, whether the good template cannot be read now or never again.
func TestFailedRevisionsDoNotComeBack(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	h.fail(t)
	all := map[string]string{"c1": "1", "c2": "1", "c3": "1", "c4": "1"}
	h.unreadable = apierrors.NewInternalError(errors.New("etcd is slow"))
	if _, err := h.Reconcile(t.Context(), request); !errors.Is(err, h.unreadable) || !maps.Equal(h.versions(t), all) {
		t.Errorf("versions %v, error %v", h.versions(t), err)
	}
	if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
		"revision 1 cannot be restored: "+h.unreadable.Error()) {
		t.Errorf("message %q", message)
	}
	h.unreadable = nil
	if err := h.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	h.decide(t, decision("p", 1, 0, "c1", "c2", "c3", "c4", "c5"))
	for range 2 {
		h.reconcile(t)
	}
	if !maps.Equal(h.versions(t), all) {
		t.Errorf("versions %v", h.versions(t))
	}
	if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
		"revision 1 cannot be restored") {
		t.Errorf("message %q", message)
	}
	h.setTemplate(t, "3")
	h.reconcile(t)
	if h.versions(t)["c1"] != "3" || h.versions(t)["c3"] != "1" {
		t.Errorf("versions %v", h.versions(t))
	}
}

// Without the annotation a rollout that has stopped stays where it is, and nothing is recorded.
func TestNoRollbackUnlessAsked(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Annotations = nil })
	h.fail(t)
	if h.versions(t)["c1"] != "2" || len(h.set(t).Annotations) > 0 {
		t.Errorf("versions %v, annotations %v", h.versions(t), h.set(t).Annotations)
	}
}

// Gap W11: a first template that fails is left where it is: there is nothing better.
func TestRollbackOfTheFirst(t *testing.T) {
	t.Parallel()
	set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{}))
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true"}
	h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2"))...)
	h.reconcile(t)
	h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "True", "Degraded", "True")
	h.reconcile(t)
	h.reconcile(t)
	h.expectClusters(t, "c1")
	h.report(t, []string{"c1"}, "Progressing", "False", "Degraded", "False")
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
}

// WH-11 gap W11: what is restored is what admission has let pass: not a template that another user put into the Secret, and not
// one with another executor.
func TestForgedRevisions(t *testing.T) {
	t.Parallel()
	executor := &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}}
	for name, test := range map[string]struct {
		forge func(t *testing.T, h *hub)
		text  string
	}{
		"another template": {func(t *testing.T, h *hub) {
			secrets := &corev1.SecretList{}
			if err := h.List(t.Context(), secrets); err != nil || len(secrets.Items) != 1 {
				t.Fatalf("%d Secrets: %v", len(secrets.Items), err)
			}
			content, err := json.Marshal(template("3"))
			if err != nil {
				t.Fatal(err)
			}
			if secrets.Items[0].Data["template"], err = pack(content); err != nil {
				t.Fatal(err)
			}
			if err := h.Update(t.Context(), &secrets.Items[0]); err != nil {
				t.Fatal(err)
			}
		}, "does not hold the template of revision 1 any more"},
		"another executor": {func(t *testing.T, h *hub) {
			one := template("1")
			one.Executor = executor
			content, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			set := h.set(t)
			set.Spec.ManifestWorkTemplate = one
			if err := h.templates.keep(t.Context(), set, nil); err != nil {
				t.Fatal(err)
			}
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
				set.Annotations[fleet.AnnotationRevisions] = strings.ReplaceAll(set.Annotations[fleet.AnnotationRevisions], h.history(t)[0].Hash,
					hashOf(content))
			})
		}, "the executor of revision 1 is another one"},
		"before there was an executor": {func(t *testing.T, h *hub) {
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
				set.Annotations[fleet.AnnotationRevisions] = strings.Replace(set.Annotations[fleet.AnnotationRevisions], fleet.NoExecutor,
					"system:serviceaccount:apps:bot", 1)
			})
		}, "the executor of revision 1 is another one: system:serviceaccount:apps:bot"},
		"by an earlier version": {func(t *testing.T, h *hub) {
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
				set.Annotations[fleet.AnnotationRevisions] = strings.Replace(set.Annotations[fleet.AnnotationRevisions], `,"executor":"`+
					fleet.NoExecutor+`"`, "", 1)
			})
		}, "an earlier version of the hub has noted revision 1, without its executor"},
		"no template": {func(t *testing.T, h *hub) {
			if err := h.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace("ns")); err != nil {
				t.Fatal(err)
			}
		}, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := rolledOut(t)
			h.setTemplate(t, "2")
			h.reconcile(t)
			test.forge(t, h)
			h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "True", "Degraded", "True")
			h.reconcile(t)
			h.reconcile(t)
			if versions := h.versions(t); versions["c1"] != "2" || versions["c3"] != "1" {
				t.Errorf("versions %v", versions)
			}
			if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
				"cannot be restored") || !strings.Contains(message, test.text) {
				t.Errorf("message %q", message)
			}
		})
	}
}

// The revision that a set has when the hub is upgraded can be gone back to: the template is the one that it has.
func TestRevisionOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations[fleet.AnnotationRevisions] = strings.Replace(set.Annotations[fleet.AnnotationRevisions], `,"executor":"`+fleet.NoExecutor+
			`"`, "", 1)
	})
	h.reconcile(t)
	if executor := h.history(t)[0].Executor; executor != fleet.NoExecutor {
		t.Errorf("the executor is %q", executor)
	}
	h.fail(t)
	if want := map[string]string{"c1": "1", "c2": "1", "c3": "1", "c4": "1"}; !maps.Equal(h.versions(t), want) {
		t.Errorf("versions %v, want %v", h.versions(t), want)
	}
}

// Gap W11: the history does not grow forever, and neither do the Secrets.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	for i := range 14 {
		h.rollOut(t, strings.Repeat("x", i+1))
	}
	h.reconcile(t)
	secrets := &corev1.SecretList{}
	if err := h.List(t.Context(), secrets); err != nil {
		t.Fatal(err)
	}
	if revisions := h.history(t); len(revisions) != longestHistory || revisions.current().Number != 15 || len(secrets.Items) != keptTemplates {
		t.Errorf("%d revisions up to %d, %d templates", len(revisions), revisions.current().Number, len(secrets.Items))
	}
}

// Gap W11: however often the template changes before a rollout completes, there is a good revision to go back to.
func TestEditsLeaveTheGoodRevision(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	h.editUnjudged(t, longestHistory+1)
	h.fail(t)
	if want := map[string]string{"c1": "1", "c2": "1", "c3": "1", "c4": "1"}; !maps.Equal(h.versions(t), want) {
		t.Errorf("versions %v, want %v", h.versions(t), want)
	}
	if revisions := h.history(t); len(revisions) != longestHistory || revisions[0].Number != 1 || revisions[1].Number != 5 {
		t.Errorf("history %+v", revisions)
	}
}

// Gap W11: the Secrets of good revisions go, also if there are many others in between.
func TestSecretsOfScatteredRevisions(t *testing.T) {
	t.Parallel()
	h := rolledOut(t)
	for i := range keptTemplates + 2 {
		h.editUnjudged(t, longestHistory-1)
		h.rollOut(t, strings.Repeat("x", i+1))
		h.reconcile(t)
	}
	secrets := &corev1.SecretList{}
	if err := h.List(t.Context(), secrets); err != nil {
		t.Fatal(err)
	}
	revisions := h.history(t)
	if len(secrets.Items) != keptTemplates || len(revisions) != longestHistory || len(revisions.kept()) != keptTemplates {
		t.Errorf("%d templates of %+v", len(secrets.Items), revisions)
	}
}

// rollOut changes the template, and has all clusters succeed with it.
func (h *hub) rollOut(t *testing.T, version string) {
	t.Helper()
	h.setTemplate(t, version)
	h.succeed(t, "c1", "c2", "c3", "c4")
}

// editUnjudged changes the template so often, each time before an agent has reported on the last.
func (h *hub) editUnjudged(t *testing.T, times int) {
	t.Helper()
	for range times {
		h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
			set.Spec.ManifestWorkTemplate = template(fmt.Sprint("edit ", set.Generation))
		})
		h.reconcile(t)
	}
}

// Gap W11: the oldest revisions go first, but not the present one, and not those that can be restored.
func TestTrimmedHistory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, want string }{
		"short":              {"Aa", "Aa"},
		"not too long":       {"Abcdefghij", "Abcdefghij"},
		"one good":           {"Abcdefghijk", "Acdefghijk"},
		"all good":           {"ABCDEFGHIJK", "BCDEFGHIJK"},
		"good beyond kept":   {"ABCDEFGhijk", "BCDEFGhijk"},
		"many good, present": {"ABCDEFGHIJKlm", "DEFGHIJKlm"},
		"restored again":     {"AbcAdefghij", "bcAdefghij"},
		"none good":          {"abcdefghijkl", "cdefghijkl"},
	} {
		var h history
		for i, letter := range test.before {
			r := revision{Number: i + 1, Hash: strings.ToLower(string(letter))}
			if unicode.IsUpper(letter) {
				r.State = good
			}
			h = append(h, r)
		}
		got := ""
		for _, r := range h.trimmed() {
			got += test.before[r.Number-1 : r.Number]
		}
		if got != test.want {
			t.Errorf("%s: %s of %s, want %s", name, got, test.before, test.want)
		}
	}
}
