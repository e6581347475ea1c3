package replicaset

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// MR-04: what the conditions of a work mean for the rollout. The work has generation 2, was written at noon, and the
// conditions are as of a minute later. It is one o'clock.
func TestStateOf(t *testing.T) {
	t.Parallel()
	after := noon.Add(time.Minute)
	is := func(kind string, status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(after)}
	}
	ruled := template("1")
	ruled.ManifestConfigs = []workv1.ManifestConfigOption{{ConditionRules: []workv1.ConditionRule{{Condition: "Progressing"}}}}
	for _, test := range []struct {
		name       string
		template   workv1.ManifestWorkSpec
		conditions []metav1.Condition
		edit       func(*workv1.ManifestWork)
		state      rollout.State
		since      time.Time
	}{
		{name: "just written", state: rollout.Progressing, since: noon},
		{name: "applied before", conditions: []metav1.Condition{is("Applied", "True", 1), is("Progressing", "False", 1)},
			state: rollout.Progressing, since: noon},
		{name: "not applied", conditions: []metav1.Condition{is("Applied", "False", 2), is("Progressing", "False", 2)},
			state: rollout.Progressing, since: after},
		{name: "not applied before", conditions: []metav1.Condition{is("Applied", "False", 1)}, state: rollout.Progressing, since: noon},
		{name: "not applied, as was said before it was written", conditions: []metav1.Condition{is("Applied", "False", 2)},
			edit: func(w *workv1.ManifestWork) {
				w.Annotations[fleet.AnnotationTemplateWrittenAt] = after.Add(time.Minute).Format(time.RFC3339Nano)
			}, state: rollout.Progressing, since: after.Add(time.Minute)},
		{name: "applied, progress of before", conditions: []metav1.Condition{is("Applied", "True", 2), is("Available", "True", 2),
			is("Progressing", "False", 1)},
			state: rollout.Progressing, since: noon},
		{name: "progressing", conditions: []metav1.Condition{is("Applied", "True", 2), is("Progressing", "True", 2)}, state: rollout.Progressing,
			since: after},
		{name: "unknown", conditions: []metav1.Condition{is("Applied", "True", 2), is("Progressing", "Unknown", 2)}, state: rollout.Progressing,
			since: after},
		{name: "degraded", conditions: []metav1.Condition{is("Applied", "True", 2), is("Progressing", "True", 2), is("Degraded", "True", 2)},
			state: rollout.Failed, since: after},
		{name: "degraded before", conditions: []metav1.Condition{is("Applied", "True", 2), is("Progressing", "True", 2),
			is("Degraded", "True", 1)},
			state: rollout.Progressing, since: after},
		{name: "done", conditions: []metav1.Condition{is("Applied", "True", 2), is("Progressing", "False", 2)}, state: rollout.Succeeded,
			since: after},
		{name: "nothing to progress", conditions: []metav1.Condition{is("Applied", "True", 2), is("Available", "True", 2)},
			state: rollout.Succeeded, since: after},
		{name: "nothing to progress, not available", conditions: []metav1.Condition{is("Applied", "True", 2), is("Available", "False", 2)},
			state: rollout.Progressing, since: after},
		{name: "nothing to progress, nothing known of availability", conditions: []metav1.Condition{is("Applied", "True", 2)},
			state: rollout.Progressing, since: noon},
		{name: "rule without result", template: ruled, edit: func(w *workv1.ManifestWork) { w.Spec = ruled },
			conditions: []metav1.Condition{is("Applied", "True", 2), is("Available", "True", 2)}, state: rollout.Progressing, since: noon},
		{name: "complete", conditions: []metav1.Condition{is("Complete", "True", 2), is("Applied", "True", 2), is("Progressing", "False", 2)},
			state: rollout.Succeeded, since: after},
		{name: "complete before", conditions: []metav1.Condition{is("Complete", "True", 1), is("Applied", "True", 1),
			is("Progressing", "False", 1)}, state: rollout.Skip},
		{name: "complete before, reported again", conditions: []metav1.Condition{is("Complete", "True", 2), is("Applied", "True", 1)},
			state: rollout.Skip},
		{name: "not complete before", conditions: []metav1.Condition{is("Complete", "False", 1), is("Applied", "True", 1)},
			state: rollout.Progressing, since: noon},
		{name: "of another hub", edit: func(w *workv1.ManifestWork) { w.Annotations = nil }, state: rollout.Progressing,
			since: noon.Add(-time.Hour)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := &workv1.ManifestWork{
				ObjectMeta: metav1.ObjectMeta{Generation: 2, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
					Annotations: map[string]string{fleet.AnnotationTemplateWrittenAt: noon.Format(time.RFC3339Nano)}},
				Spec: template("1"), Status: workv1.ManifestWorkStatus{Conditions: test.conditions},
			}
			if test.edit != nil {
				test.edit(w)
			}
			if test.template.Workload.Manifests == nil {
				test.template = template("1")
			}
			if state, since := stateOf(&work{ManifestWork: w}, &test.template, noon.Add(time.Hour)); state != test.state ||
				!since.Equal(test.since) {
				t.Errorf("%s since %s, want %s since %s", state, since, test.state, test.since)
			}
		})
	}
}

// MR-04: the clock of a cluster neither moves the beginning of a state before the work was written nor into the future.
func TestStateOfClusterWithAnotherClock(t *testing.T) {
	t.Parallel()
	now := noon.Add(time.Hour)
	states := map[string][]metav1.Condition{
		"not applied":   {{Type: "Applied", Status: "False"}},
		"progressing":   {{Type: "Applied", Status: "True"}, {Type: "Progressing", Status: "True"}},
		"degraded":      {{Type: "Applied", Status: "True"}, {Type: "Progressing", Status: "True"}, {Type: "Degraded", Status: "True"}},
		"done":          {{Type: "Applied", Status: "True"}, {Type: "Progressing", Status: "False"}},
		"available":     {{Type: "Applied", Status: "True"}, {Type: "Available", Status: "True"}},
		"not available": {{Type: "Applied", Status: "True"}, {Type: "Available", Status: "False"}},
	}
	for name, clock := range map[string]struct{ says, since time.Time }{
		"a day behind":   {now.AddDate(0, 0, -1), noon},
		"right":          {now, now},
		"a little ahead": {now.Add(clockTolerance), now.Add(clockTolerance)},
		"too far ahead":  {now.Add(clockTolerance + time.Second), noon},
		"a day ahead":    {now.AddDate(0, 0, 1), noon},
	} {
		for state, conditions := range states {
			t.Run(name+", "+state, func(t *testing.T) {
				t.Parallel()
				w := &workv1.ManifestWork{
					ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleet.AnnotationTemplateWrittenAt: noon.Format(time.RFC3339Nano)}},
					Spec:       template("1"), Status: workv1.ManifestWorkStatus{Conditions: slices.Clone(conditions)},
				}
				for i := range w.Status.Conditions {
					w.Status.Conditions[i].LastTransitionTime = metav1.NewTime(clock.says)
				}
				if _, since := stateOf(&work{ManifestWork: w}, &w.Spec, now); !since.Equal(clock.since) {
					t.Errorf("since %s, want %s", since, clock.since)
				}
			})
		}
	}
}
