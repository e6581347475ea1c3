package conditions

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/manifest/objecthealth"
)

// appliedManifest is an applied one with the conditions.
func appliedManifest(ordinal int32, conditions ...metav1.Condition) workv1.ManifestCondition {
	return workv1.ManifestCondition{
		ResourceMeta: workv1.ManifestResourceMeta{Ordinal: ordinal, Kind: "Thing", Name: fmt.Sprintf("thing%d", ordinal)},
		Conditions: append([]metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, Reason: "AppliedManifestComplete"}},
			conditions...),
	}
}

func ruled(kind string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "ConditionRuleEvaluated", Message: kind + " is " + string(status)}
}

// WK-30: which status wins, and what the message says.
func TestAggregateRules(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, statuses string
		want           metav1.ConditionStatus
	}{
		{"Complete", "True True", "True"}, {"Complete", "True False Unknown", "False"}, {"Complete", "True Unknown", "Unknown"},
		{"Custom", "Unknown False", "False"}, {"Degraded", "True False", "False"},
		{"Progressing", "False True Unknown", "True"}, {"Progressing", "False Unknown", "Unknown"}, {"Progressing", "False False", "False"},
	} {
		var manifests []workv1.ManifestCondition
		for i, status := range strings.Fields(test.statuses) {
			manifests = append(manifests, appliedManifest(int32(i), ruled(test.kind, metav1.ConditionStatus(status))))
		}
		got := meta.FindStatusCondition(ofManifests(manifests, sets.New(test.kind), nil), test.kind)
		message := fmt.Sprintf("Aggregated from %d manifest conditions", len(manifests))
		if got == nil || got.Status != test.want || got.Reason != "ConditionRulesAggregated" || got.Message != message {
			t.Errorf("%s of %s: %+v, want %s", test.kind, test.statuses, got, test.want)
		}
	}
	single := []workv1.ManifestCondition{appliedManifest(0), appliedManifest(1, ruled("Custom", "True"))}
	if got := meta.FindStatusCondition(ofManifests(single, sets.New("Custom"), nil), "Custom"); got == nil || got.Message != "Custom is True" {
		t.Errorf("the message of a single source: %+v", got)
	}
}

// WK-30, WK-16: a work is not complete, and left alone, while rules about one of its objects could not be evaluated under its present
// generation, whatever they say of the others.
func TestOpenRules(t *testing.T) {
	t.Parallel()
	const group, cel, wellKnown = "batch", workv1.CelConditionExpressionsType, workv1.WellKnownConditionsType
	named := func(resource, kind, name string) workv1.ManifestResourceMeta {
		return workv1.ManifestResourceMeta{Group: group, Version: "v1", Kind: kind, Resource: resource, Namespace: "default", Name: name}
	}
	about := func(condition string, kind workv1.ConditionRuleType) Query {
		return Query{ConditionRules: []workv1.ConditionRule{{Condition: condition, Type: kind}}}
	}
	says := func(conditions ...metav1.Condition) *Reading { return &Reading{Conditions: conditions} }
	job, widget, unknown := named("jobs", "Job", "b"), named("widgets", "Widget", "b"), named("", "Widget", "b")
	for name, test := range map[string]struct {
		kind, first   string // of the condition, and what it says of the first object
		second        Result
		want, message string
	}{
		"evaluated": {"Complete", "True", Result{Manifest: job, Query: about("Complete", wellKnown), Reading: says(ruled("Complete", "True"))},
			"True", "Aggregated from 2 manifest conditions"},
		"not read yet": {"Complete", "True", Result{Manifest: job, Query: about("Complete", wellKnown)}, "Unknown",
			"The rules could not be evaluated yet for 1 resource: Job default/b"},
		"not there": {"Complete", "True", Result{Manifest: job, Err: errBroken, Query: about("Complete", cel),
			Reading: NotFound(about("Complete", cel))}, "Unknown", "Job default/b"},
		"of an unknown kind":         {"Complete", "True", Result{Manifest: unknown, Err: errBroken}, "Unknown", "Widget default/b"},
		"of a kind without progress": {"Complete", "True", Result{Manifest: widget, Query: about("", wellKnown)}, "True", "Complete is True"},
		"without a rule":             {"Complete", "True", Result{Manifest: job}, "True", "Complete is True"},
		"another condition": {"Complete", "True", Result{Manifest: job, Query: about("Other", cel)}, "True",
			"Complete is True"},
		"not complete anyway": {"Complete", "False", Result{Manifest: job, Query: about("Complete", cel)}, "False", "Complete is False"},
		"on its way anyway":   {"Progressing", "True", Result{Manifest: job, Query: about("Progressing", cel)}, "True", "Progressing is True"},
		"not known to be there": {"Progressing", "False", Result{Manifest: job, Query: about("Progressing", cel)}, "Unknown",
			"Job default/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: "widgetry", Namespace: "*", Name: "*"},
				ConditionRules:     about("Complete", cel).ConditionRules,
			}}
			first := Result{Manifest: named("jobs", "Job", "a"), Presence: Present, Query: about(test.kind, cel),
				Reading: says(ruled(test.kind, metav1.ConditionStatus(test.first)))}
			before := Result{Manifest: test.second.Manifest, Query: test.second.Query, Reading: says(ruled(test.kind, "False"))}
			before.Manifest.Ordinal, test.second.Manifest.Ordinal = 1, 1
			Update(work, []Result{first, before}, time.Unix(1000, 0))
			work.Generation = 3
			Update(work, []Result{first, test.second}, time.Unix(2000, 0))
			if Update(work, []Result{first, test.second}, time.Unix(3000, 0)) {
				t.Error("the same is news")
			}
			got := meta.FindStatusCondition(work.Status.Conditions, test.kind)
			if got == nil || string(got.Status) != test.want || got.Reason != "ConditionRulesAggregated" ||
				!strings.Contains(got.Message, test.message) {
				t.Errorf("%+v, want %s: %s", got, test.want, test.message)
			}
		})
	}
}

// Gap W6: without rules, works are Progressing and Degraded by what is in them. WK-31: with a rule, it decides alone.
func TestAggregateHealth(t *testing.T) {
	t.Parallel()
	of := func(ordinal int32, phase objecthealth.Phase) workv1.ManifestCondition {
		return appliedManifest(ordinal, ofHealth(objecthealth.Health{Phase: phase, Message: "so it is"})...)
	}
	unapplied := appliedManifest(0)
	unapplied.Conditions[0].Status = metav1.ConditionFalse
	for name, test := range map[string]struct {
		manifests             []workv1.ManifestCondition
		ruled                 sets.Set[string]
		progressing, degraded metav1.ConditionStatus
		message               string
	}{
		"nothing":           {nil, nil, "False", "False", "as they should be"},
		"things that exist": {[]workv1.ManifestCondition{appliedManifest(0), appliedManifest(1)}, nil, "False", "False", "as they should be"},
		"current": {[]workv1.ManifestCondition{appliedManifest(0), of(1, objecthealth.Current)}, nil, "False", "False",
			"as they should be"},
		"on its way": {[]workv1.ManifestCondition{of(0, objecthealth.Current), of(1, objecthealth.InProgress)}, nil, "True", "False",
			"1 of 2 resources are on their way: Thing thing1: so it is"},
		"failed": {[]workv1.ManifestCondition{of(0, objecthealth.Current), of(1, objecthealth.Failed)}, nil, "True", "True",
			"Thing thing1: so it is"},
		"not applied": {[]workv1.ManifestCondition{unapplied, of(1, objecthealth.Current)}, nil, "True", "False",
			"Thing thing0: it is not applied yet"},
		"several": {[]workv1.ManifestCondition{of(2, objecthealth.InProgress), of(0, objecthealth.InProgress),
			of(1, objecthealth.InProgress)}, nil, "True", "False", "3 of 3 resources are on their way: Thing thing0: so it is; and 2 more"},
		"a rule": {[]workv1.ManifestCondition{appliedManifest(0, ruled("Progressing", "False")), of(1, objecthealth.InProgress)},
			sets.New("Progressing"), "False", "False", "Progressing is False"},
		"a rule not yet run": {[]workv1.ManifestCondition{appliedManifest(0), of(1, objecthealth.Current)}, sets.New("Progressing"), "", "False",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ofManifests(test.manifests, test.ruled, nil)
			for kind, want := range map[string]metav1.ConditionStatus{"Progressing": test.progressing, "Degraded": test.degraded} {
				var status metav1.ConditionStatus
				if cond := meta.FindStatusCondition(got, kind); cond != nil {
					status = cond.Status
				}
				if status != want {
					t.Errorf("%s is %q, want %q", kind, status, want)
				}
			}
			if cond := meta.FindStatusCondition(got, "Progressing"); cond != nil && !strings.Contains(cond.Message, test.message) {
				t.Errorf("message %q, want %q", cond.Message, test.message)
			}
		})
	}
}

// Property: the order of the manifests does not matter.
func TestAggregateInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	statuses := []metav1.ConditionStatus{"True", "False", "Unknown"}
	phases := []objecthealth.Phase{objecthealth.Current, objecthealth.InProgress, objecthealth.Failed}
	for range 2000 {
		var manifests []workv1.ManifestCondition
		for i := range random.IntN(6) {
			m := appliedManifest(int32(i))
			for _, kind := range []string{"Complete", "Progressing", "Custom"} {
				if random.IntN(2) == 0 {
					m.Conditions = append(m.Conditions, ruled(kind, statuses[random.IntN(3)]))
				}
			}
			for _, cond := range ofHealth(objecthealth.Health{Phase: phases[random.IntN(3)], Message: fmt.Sprint(i)}) {
				if meta.FindStatusCondition(m.Conditions, cond.Type) == nil {
					m.Conditions = append(m.Conditions, cond)
				}
			}
			m.Conditions[0].Status = statuses[random.IntN(2)]
			manifests = append(manifests, m)
		}
		want := ofManifests(manifests, sets.New("Complete"), nil)
		random.Shuffle(len(manifests), func(i, j int) { manifests[i], manifests[j] = manifests[j], manifests[i] })
		if got := ofManifests(manifests, sets.New("Complete"), nil); !cmp.Equal(want, got) {
			t.Fatalf("another order, another result:\n%s", cmp.Diff(want, got))
		}
	}
}
