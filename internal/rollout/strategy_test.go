package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

func TestHasDeadline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`:             false,
		`{type: Canary}`: false,
		`{type: All, all: {progressDeadline: 10m}}`:                                 true,
		`{type: Progressive, progressive: {progressDeadline: 10m}}`:                 true,
		`{type: ProgressivePerGroup, progressivePerGroup: {progressDeadline: 10m}}`: true,
		`{type: Progressive, progressive: {progressDeadline: None}}`:                false,
		`{type: Progressive, progressive: {progressDeadline: soon}}`:                false,
		`{type: Progressive, progressive: {}, all: {progressDeadline: 10m}}`:        false, // without effect
	} {
		if HasDeadline(strategy(t, text)) != want {
			t.Errorf("%s: it is not %t", text, want)
		}
	}
}

// AM-20.
func TestValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ strategy, want string }{
		{`{}`, ``},
		{`{type: All}`, ``},
		{`{type: Progressive}`, ``},
		{`{type: ProgressivePerGroup}`, ``},
		{`{type: All, all: {progressDeadline: None, minSuccessTime: "0", maxFailures: 0}}`, ``},
		{`{type: Progressive, progressive: {progressDeadline: 1h30m, minSuccessTime: 5m, maxFailures: 100%, maxConcurrency: 25%,
			mandatoryDecisionGroups: [{groupName: a}, {groupIndex: 3}, {groupName: a, groupIndex: -1}]}}`, ``},
		{`{type: Progressive, progressive: {maxFailures: "3", maxConcurrency: 1000000}}`, ``},
		{`{type: Progressive, progressive: {maxConcurrency: 0}}`, ``},
		{`{type: Progressive, progressive: {maxConcurrency: 0%}}`, ``},
		{`{type: All, progressive: {maxFailures: abc}}`, ``}, // without effect

		{`{type: Canary}`, `s.type: Unsupported value: "Canary": supported values: "All", "Progressive", "ProgressivePerGroup"`},
		{`{type: Progressive, progressive: {maxConcurrency: abc}}`,
			`s.progressive.maxConcurrency: Invalid value: "abc": write a number of clusters such as 3, or a percentage such as 25%`},
		{`{type: Progressive, progressive: {maxConcurrency: ""}}`,
			`s.progressive.maxConcurrency: Invalid value: "": write a number of clusters such as 3, or a percentage such as 25%`},
		{`{type: Progressive, progressive: {maxConcurrency: -1}}`,
			`s.progressive.maxConcurrency: Invalid value: "-1": a number of clusters is not negative`},
		{`{type: Progressive, progressive: {maxFailures: -10%}}`,
			`s.progressive.maxFailures: Invalid value: "-10%": a number of clusters is not negative`},
		{`{type: ProgressivePerGroup, progressivePerGroup: {maxFailures: 150%}}`,
			`s.progressivePerGroup.maxFailures: Invalid value: "150%": a percentage of clusters is at most 100%`},
		{`{type: ProgressivePerGroup, progressivePerGroup: {maxFailures: 99999999999999999999%}}`,
			`s.progressivePerGroup.maxFailures: Invalid value: "99999999999999999999%": write a number of clusters such as 3, or a percentage such as 25%`},
		{`{type: All, all: {progressDeadline: 5d}}`,
			`s.all.progressDeadline: Invalid value: "5d": write a time such as 10m or 2h, or None to wait without limit`},
		{`{type: All, all: {progressDeadline: 5mNone}}`,
			`s.all.progressDeadline: Invalid value: "5mNone": write a time such as 10m or 2h, or None to wait without limit`}, // the CRD takes it
		{`{type: All, all: {progressDeadline: 0s}}`,
			`s.all.progressDeadline: Invalid value: "0s": no cluster can keep a deadline of no time; write one such as 10m, or None to wait without limit`},
		{`{type: All, all: {minSuccessTime: soon}}`,
			`s.all.minSuccessTime: Invalid value: "soon": write a time such as 5m or 1h30m, or 0 for none`},
		{`{type: Progressive, progressive: {minSuccessTime: -5m}}`,
			`s.progressive.minSuccessTime: Invalid value: "-5m": a time is not negative; write one such as 5m, or 0 for none`},
		{`{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}, {groupIndex: -1}]}}`,
			`s.progressive.mandatoryDecisionGroups[1].groupIndex: Invalid value: -1: the indices of decision groups begin at 0`},
		{`{type: Progressive, progressive: {maxConcurrency: x, maxFailures: -1}}`, // both at once
			`s.progressive.maxConcurrency: Invalid value: "x": write a number of clusters such as 3, or a percentage such as 25%; ` +
				`s.progressive.maxFailures: Invalid value: "-1": a number of clusters is not negative`},
	} {
		var got []string
		for _, err := range Validate(field.NewPath("s"), strategy(t, test.strategy)) {
			got = append(got, err.Error())
		}
		if diff := cmp.Diff(test.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.strategy, diff)
		}
	}
}

// AM-20, gap W22: what does not fit is replaced by the nearest value that does, and the plan says so.
func TestValuesThatDoNotFitAreClampedAndNoted(t *testing.T) {
	t.Parallel()
	const none, hour = 0, time.Hour
	for _, test := range []struct {
		strategy, clusters string
		want               Effective
		notes              string
	}{
		// What fits is not noted.
		{`{type: Progressive, progressive: {maxConcurrency: 3, maxFailures: 3}}`, "a, b, c", Effective{wholePlacementName, 3, 3, none, none}, ``},
		{`{type: Progressive, progressive: {maxConcurrency: 100%, maxFailures: 100%}}`, "a, b, c",
			Effective{wholePlacementName, 3, 3, none, none},
			``},
		{`{type: Progressive, progressive: {minSuccessTime: 1h, progressDeadline: 1h}}`, "a, b, c",
			Effective{wholePlacementName, 3, 0, hour, hour},
			``},
		{`{type: ProgressivePerGroup, progressivePerGroup: {maxFailures: 34%}}`, "a, b, c", Effective{"decision group 0", 3, 2, none, none}, ``},
		{`{type: All, all: {minSuccessTime: 1h}}`, "a, b, c", Effective{wholePlacementName, 3, 3, none, none}, ``},
		{`{type: Progressive, progressive: {maxFailures: 3, mandatoryDecisionGroups: [{groupIndex: 1}]}}`, "a, b 1, c",
			Effective{"mandatory decision group 1", 1, 0, none, none}, ``},
		{`{type: Progressive, progressive: {maxConcurrency: 5, maxFailures: 5}}`, "a 0 Gone", Effective{}, ``},

		{`{type: Progressive, progressive: {maxConcurrency: 5}}`, "a, b, c", Effective{wholePlacementName, 3, 0, none, none},
			`rolloutStrategy.progressive.maxConcurrency: 5 is more than the 3 clusters it is about: 3 is used`},
		{`{type: Progressive, progressive: {maxConcurrency: 2, mandatoryDecisionGroups: [{groupIndex: 0}]}}`, "a 0 Succeeded, b 0 Succeeded, c 1",
			Effective{"the rest of the placement", 1, 0, none, none},
			`rolloutStrategy.progressive.maxConcurrency: 2 is more than the 1 cluster it is about: 1 is used`},
		{`{type: Progressive, progressive: {maxConcurrency: 0}}`, "a, b, c", Effective{wholePlacementName, 1, 0, none, none},
			`rolloutStrategy.progressive.maxConcurrency: 0 lets no cluster begin: 1 at a time is used`},
		{`{type: Progressive, progressive: {maxConcurrency: 0%}}`, "a, b, c", Effective{wholePlacementName, 1, 0, none, none},
			`rolloutStrategy.progressive.maxConcurrency: 0% lets no cluster begin: 1 at a time is used`},
		{`{type: Progressive, progressive: {maxConcurrency: 150%}}`, "a, b, c", Effective{wholePlacementName, 3, 0, none, none},
			`rolloutStrategy.progressive.maxConcurrency: 150% counts as 100%: a percentage of clusters is at most 100%`},
		{`{type: Progressive, progressive: {maxFailures: 7}}`, "a, b, c", Effective{wholePlacementName, 3, 3, none, none},
			`rolloutStrategy.progressive.maxFailures: 7 is more than the 3 clusters there are: 3 is used`},
		{`{type: Progressive, progressive: {maxFailures: -7}}`, "a, b, c", Effective{wholePlacementName, 3, 0, none, none},
			`rolloutStrategy.progressive.maxFailures: -7 counts as 0: a number of clusters is not negative`},
		{`{type: ProgressivePerGroup, progressivePerGroup: {maxFailures: 2}}`, "a, b, c, d 1, e 2, f 3/x, g 4, h 5, i 5",
			Effective{"decision group 0", 3, 2, none, none},
			`rolloutStrategy.progressivePerGroup.maxFailures: 2 is more than the clusters of decision group 1, decision group 2, decision group 3 (x) and 1 more: all of them may fail`},
		{`{type: Progressive, progressive: {minSuccessTime: -1h, progressDeadline: 0h}}`, "a, b, c",
			Effective{wholePlacementName, 3, 0, none, none},
			`rolloutStrategy.progressive.minSuccessTime: -1h counts as 0: a time is not negative; write one such as 5m, or 0 for none` +
				"\n" + `rolloutStrategy.progressive.progressDeadline: 0h counts as None: no cluster can keep a deadline of no time; write one such as 10m, or None to wait without limit`},
		{`{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupName: canry}, {groupIndex: 9}, {groupIndex: -2}]}}`,
			"a 0/canary, b, c",
			Effective{wholePlacementName, 3, 0, none, none},
			`rolloutStrategy.progressive.mandatoryDecisionGroups[2].groupIndex: -2 counts as no group: the indices of decision groups begin at 0` +
				"\n" +
				`rolloutStrategy.progressive.mandatoryDecisionGroups[0]: the placement has no clusters in a decision group named "canry": it is passed over` + "\n" +
				`rolloutStrategy.progressive.mandatoryDecisionGroups[1]: the placement has no clusters in a decision group with index 9: it is passed over`},
	} {
		plan := Decide(Input{Strategy: strategy(t, test.strategy), Clusters: clusters(t, test.clusters), Now: now})
		if diff := cmp.Diff(test.want, plan.Effective); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", test.strategy, test.clusters, diff)
		}
		if diff := cmp.Diff(test.notes, strings.Join(plan.Notes, "\n")); diff != "" {
			t.Errorf("%s of %s: notes (-want +got):\n%s", test.strategy, test.clusters, diff)
		}
	}
}

// oddValues are valid and invalid values.
var oddValues = []string{"0", "1", "-1", "5", "99999999999999999999", "0%", "-0%", "1%", "100%", "101%", "150%", "-5%", "%", "%%", "", " ",
	"1 %", "abc",
	"None", "none", "0.5", "50.5%", "+3", "1e3", "0x10", "5m", "5", "0s", "-1h", "1h1h", "9999999h", "99999999999h", "5|", "1d", "\x00", "½"}

// Whatever a strategy holds, either Validate refuses it or it can be rolled out; and every value that a rollout replaces
// is noted.
func TestUnreadableValues(t *testing.T) {
	t.Parallel()
	for _, kind := range []clusterv1alpha1.RolloutType{"", "All", "Progressive", "ProgressivePerGroup", "all", "x"} {
		for _, value := range oddValues {
			for _, number := range []intstr.IntOrString{intstr.FromString(value), intstr.Parse(value), intstr.FromInt32(-1),
				intstr.FromInt32(1 << 30)} {
				config := clusterv1alpha1.RolloutConfig{MinSuccessTime: value, ProgressDeadline: value, MaxFailures: &number}
				checkUsable(t, strategyOf(kind, config, &number))
				checkUsable(t, strategyOf(kind, clusterv1alpha1.RolloutConfig{MinSuccessTime: value}, nil))
				checkUsable(t, strategyOf(kind, clusterv1alpha1.RolloutConfig{ProgressDeadline: value}, nil))
				checkUsable(t, strategyOf(kind, clusterv1alpha1.RolloutConfig{}, &number))
			}
		}
	}
}

func FuzzStrategy(f *testing.F) {
	for _, value := range oddValues {
		f.Add("Progressive", value, value, value, value, int32(0))
		f.Add("ProgressivePerGroup", "5m", "10m", value, "25%", int32(-1))
	}
	f.Fuzz(func(t *testing.T, kind, soak, deadline, failures, concurrency string, group int32) {
		maxFailures, maxConcurrency := intstr.Parse(failures), intstr.Parse(concurrency)
		config := clusterv1alpha1.RolloutConfig{MinSuccessTime: soak, ProgressDeadline: deadline, MaxFailures: &maxFailures}
		s := strategyOf(clusterv1alpha1.RolloutType(kind), config, &maxConcurrency)
		s.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups = []clusterv1alpha1.MandatoryDecisionGroup{{GroupIndex: group}}
		checkUsable(t, s)
	})
}

func strategyOf(
	kind clusterv1alpha1.RolloutType, config clusterv1alpha1.RolloutConfig, concurrency *intstr.IntOrString,
) clusterv1alpha1.RolloutStrategy {
	return clusterv1alpha1.RolloutStrategy{
		Type:                kind,
		All:                 &clusterv1alpha1.RolloutAll{RolloutConfig: config},
		Progressive:         &clusterv1alpha1.RolloutProgressive{RolloutConfig: config, MaxConcurrency: concurrency},
		ProgressivePerGroup: &clusterv1alpha1.RolloutProgressivePerGroup{RolloutConfig: config},
	}
}

func checkUsable(t *testing.T, s clusterv1alpha1.RolloutStrategy) {
	t.Helper()
	errs := Validate(field.NewPath("rolloutStrategy"), s)
	plan := Decide(Input{Strategy: s, Clusters: []Cluster{{Name: "a"}, {Name: "b"}, {Name: "c", Group: Group{Index: 1}}}, Now: now})
	what := fmt.Sprintf("%s %+v %+v %+v", s.Type, s.All, s.Progressive, s.ProgressivePerGroup)
	if len(errs) == 0 && plan.Phase != Rolling {
		t.Errorf("%s: passes Validate and is %s: %s", what, plan.Phase, plan.Message)
	}
	if len(errs) > 0 && plan.Phase != Invalid && len(plan.Notes) == 0 {
		t.Errorf("%s: Validate refuses it (%v) and the rollout notes nothing", what, errs)
	}
	started, e := plan.Count[Start], plan.Effective
	switch {
	case plan.Phase == Invalid && started > 0:
		t.Errorf("%s: %d clusters begin although the strategy is invalid", what, started)
	case plan.Phase == Rolling && (started < 1 || started > e.MaxConcurrency || e.MaxConcurrency > 3):
		t.Errorf("%s: %d clusters begin, limit %d", what, started, e.MaxConcurrency)
	case e.MaxFailures < 0 || e.MaxFailures > 3 || e.MinSuccessTime < 0 || e.ProgressDeadline < 0:
		t.Errorf("%s: in force is %+v", what, e)
	}
}
