package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// strategy reads the YAML of a rolloutStrategy.
func strategy(t testing.TB, text string) clusterv1alpha1.RolloutStrategy {
	t.Helper()
	var s clusterv1alpha1.RolloutStrategy
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// clusters parses "name group state age", of which all but the name may be missing; the group is an index or index/name,
// the age how long ago the cluster came into its state. Gone stands for a cluster that is not selected any more.
func clusters(t testing.TB, text string) []Cluster {
	t.Helper()
	var all []Cluster
	for line := range strings.SplitSeq(text, ",") {
		words := append(strings.Fields(line), make([]string, 3)...)
		c := Cluster{Name: words[0], State: State(words[2])}
		index, name, _ := strings.Cut(words[1], "/")
		number, _ := strconv.ParseInt(index, 10, 32)
		c.Group = Group{Index: int32(number), Name: name}
		if c.State == "Gone" {
			c.State, c.Deselected = Succeeded, true
		}
		if words[3] != "" {
			age, err := time.ParseDuration(words[3])
			if err != nil {
				t.Fatal(err)
			}
			c.Since = now.Add(-age)
		}
		all = append(all, c)
	}
	return all
}

// phasesOf writes "name=phase" of all clusters, in their order.
func phasesOf(p Plan) string {
	var all []string
	for _, c := range p.Clusters {
		all = append(all, c.Name+"="+string(c.Phase))
	}
	return strings.Join(all, " ")
}

// SD-06
func TestDecide(t *testing.T) {
	t.Parallel()
	const (
		two  = `{type: Progressive, progressive: {maxConcurrency: 2}}`
		soak = `{type: Progressive, progressive: {maxConcurrency: 1, minSuccessTime: 5m}}`
		late = `{type: Progressive, progressive: {maxConcurrency: 1, progressDeadline: 10m, maxFailures: 1}}`
		perG = `{type: ProgressivePerGroup}`
	)
	for name, test := range map[string]struct {
		strategy string
		clusters string
		want     string
		phase    Phase
		next     time.Duration // From now.
		reason   string        // Of those that wait.
	}{
		// AM-20: All.
		"no type is All": {strategy: `{}`, clusters: "a, b, c", want: "a=Start b=Start c=Start", phase: Rolling},
		"All ignores failures": {strategy: `{type: All, all: {maxFailures: 0}}`, clusters: "a 0 Failed, b, c 0 TimeOut",
			want: "a=Failed b=Start c=TimedOut", phase: Rolling},
		"All ignores the soak": {strategy: `{type: All, all: {minSuccessTime: 1h}}`, clusters: "a 0 Succeeded 1s", want: "a=Done",
			phase: Complete},
		"All has a deadline": {strategy: `{type: All, all: {progressDeadline: 10m}}`, clusters: "a 0 Progressing 4m, b 0 Progressing 10m",
			want: "a=InProgress b=TimedOut", phase: Rolling, next: 6 * time.Minute},
		"All is over in spite of failures": {strategy: `{}`, clusters: "a 0 Failed, b 0 Succeeded", want: "a=Failed b=Done", phase: Complete},
		"All takes no heed of groups":      {strategy: `{}`, clusters: "a 1 Progressing, b 2", want: "a=InProgress b=Start", phase: Rolling},

		// AM-20: Progressive, maxConcurrency.
		"by name, whatever the order": {strategy: two, clusters: "d, c, b, a", want: "d=Waiting c=Waiting b=Start a=Start", phase: Rolling,
			reason: "maxConcurrency: no more than 2 clusters at a time"},
		"by name, whatever the group": {strategy: two, clusters: "d 0, c 1, b 2, a 3", want: "d=Waiting c=Waiting b=Start a=Start",
			phase: Rolling},
		"those in progress have slots": {strategy: two, clusters: "a, b, c 0 Progressing", want: "a=Start b=Waiting c=InProgress",
			phase: Rolling},
		"all slots taken": {strategy: two, clusters: "a, b 0 Progressing, c 0 Progressing",
			want: "a=Waiting b=InProgress c=InProgress", phase: Rolling},
		"more in progress than slots": {strategy: two, clusters: "a, b 0 Progressing, c 0 Progressing, d 0 Progressing",
			want: "a=Waiting b=InProgress c=InProgress d=InProgress", phase: Rolling, reason: "maxConcurrency: no more than 2 clusters at a time"},
		"success frees a slot": {strategy: two, clusters: "a 0 Succeeded, b 0 Progressing, c, d", want: "a=Done b=InProgress c=Start d=Waiting",
			phase: Rolling},
		"the percentage is rounded up": {strategy: `{type: Progressive, progressive: {maxConcurrency: 25%}}`, clusters: "a, b, c, d, e",
			want: "a=Start b=Start c=Waiting d=Waiting e=Waiting", phase: Rolling},
		"the percentage is of the clusters outside of mandatory groups": {
			strategy: `{type: Progressive, progressive: {maxConcurrency: 50%, mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Succeeded, b 0 Succeeded, c 1, d 1, e 1, f 2",
			want:     "a=Done b=Done c=Start d=Start e=Waiting f=Waiting", phase: Rolling},
		"a number in a string": {strategy: `{type: Progressive, progressive: {maxConcurrency: "1"}}`, clusters: "a, b", want: "a=Start b=Waiting",
			phase: Rolling},
		"no maxConcurrency": {strategy: `{type: Progressive}`, clusters: "a 0, b 1, c 2", want: "a=Start b=Start c=Start", phase: Rolling},

		// AM-20: mandatory groups.
		"mandatory groups in their order": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupName: east}, {groupIndex: 0}]}}`,
			clusters: "a 0, b 1/east, c 2, d 1/east", want: "a=Waiting b=Start c=Waiting d=Start", phase: Rolling,
			reason: "first comes mandatory decision group 1 (east), with 2 clusters to go"},
		"the second after the first": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupName: east}, {groupIndex: 0}]}}`,
			clusters: "a 0, b 1/east Succeeded, c 2, d 1/east Succeeded", want: "a=Start b=Done c=Waiting d=Done", phase: Rolling},
		"maxConcurrency is not for mandatory groups": {
			strategy: `{type: Progressive, progressive: {maxConcurrency: 1, mandatoryDecisionGroups: [{groupIndex: 1}]}}`,
			clusters: "a 0, b 1, c 1", want: "a=Waiting b=Start c=Start", phase: Rolling},
		"a name goes before an index": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupName: east, groupIndex: 0}]}}`,
			clusters: "a 0, b 1/east", want: "a=Waiting b=Start", phase: Rolling},
		"a name that no group has is not index 0": {
			strategy: `{type: Progressive, progressive: {maxConcurrency: 1, mandatoryDecisionGroups: [{groupName: west}]}}`,
			clusters: "b 0, a 1", want: "b=Waiting a=Start", phase: Rolling},
		"a name is of several groups": { // PL-15
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupName: east}]}}`,
			clusters: "a 0/east Succeeded, b 1/east, c 2", want: "a=Done b=Start c=Waiting", phase: Rolling},
		"a group listed twice": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupName: east}, {groupIndex: 0}]}}`,
			clusters: "a 0/east, b 1", want: "a=Start b=Waiting", phase: Rolling},
		"mandatory groups tolerate no failure": {
			strategy: `{type: Progressive, progressive: {maxFailures: 100%, mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Failed, b 0 Progressing, c 1", want: "a=Failed b=InProgress c=Waiting", phase: Stopped,
			reason: "the rollout has stopped: 1 failure in mandatory decision group 0 (a), mandatory groups tolerate none"},
		"mandatory groups soak": {
			strategy: `{type: Progressive, progressive: {minSuccessTime: 5m, mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Succeeded 2m, b 1", want: "a=Soaking b=Waiting", phase: Rolling, next: 3 * time.Minute},
		"a newcomer in a mandatory group comes first": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Succeeded, b 0, c 1 Progressing, d 1", want: "a=Done b=Start c=InProgress d=Waiting", phase: Rolling},
		"a mandatory group of an absent cluster holds": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Absent, b 1", want: "a=Waiting b=Waiting", phase: Rolling},
		"one that is skipped is no proof": {
			strategy: `{type: ProgressivePerGroup, progressivePerGroup: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Absent, b 0 Skip, c 1", want: "a=Waiting b=Skipped c=Waiting", phase: Rolling},
		"nor is one of another mandatory group": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}, {groupIndex: 1}]}}`,
			clusters: "a 0 Succeeded, b 1 Absent, c 2", want: "a=Done b=Waiting c=Waiting", phase: Rolling},
		"one that is done is": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Absent, b 0 Succeeded, c 1", want: "a=Skipped b=Done c=Start", phase: Rolling},
		"absent clusters of other groups hold nothing": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Succeeded, b 1 Absent, c 1", want: "a=Done b=Skipped c=Start", phase: Rolling},
		"others of the group do not wait for an absent one": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Absent, b 0, c 1", want: "a=Waiting b=Start c=Waiting", phase: Rolling},
		"a failure stops what waits for an absent one": {
			strategy: `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Absent, b 0 Failed, c 1", want: "a=Waiting b=Failed c=Waiting", phase: Stopped},

		// AM-20: ProgressivePerGroup.
		"groups by index": {strategy: perG, clusters: "a 10, b 2, c 2, d 9", want: "a=Waiting b=Start c=Start d=Waiting", phase: Rolling,
			reason: "first comes decision group 2, with 2 clusters to go"},
		"a group waits until none is in flight": {strategy: perG, clusters: "a 0 Succeeded, b 0 Progressing, c 1",
			want: "a=Done b=InProgress c=Waiting", phase: Rolling},
		"then comes the next": {strategy: perG, clusters: "a 0 Succeeded, b 0 Succeeded, c 1, d 2",
			want: "a=Done b=Done c=Start d=Waiting", phase: Rolling},
		"mandatory groups before the others": {
			strategy: `{type: ProgressivePerGroup, progressivePerGroup: {mandatoryDecisionGroups: [{groupName: east}]}}`,
			clusters: "a 0, b 1, c 2/east", want: "a=Waiting b=Waiting c=Start", phase: Rolling},
		"failures are of each group": {strategy: `{type: ProgressivePerGroup, progressivePerGroup: {maxFailures: 1}}`,
			clusters: "a 0 Failed, b 0 Succeeded, c 1 Failed, d 1 Succeeded, e 2", want: "a=Failed b=Done c=Failed d=Done e=Start", phase: Rolling},
		"a percentage of failures is of the group": {strategy: `{type: ProgressivePerGroup, progressivePerGroup: {maxFailures: 25%}}`,
			clusters: "a 0 Failed, b 0 Failed, c 0 Succeeded, d 0 Succeeded, e 1, f 1, g 1, h 1",
			want:     "a=Failed b=Failed c=Done d=Done e=Waiting f=Waiting g=Waiting h=Waiting", phase: Stopped,
			reason: "the rollout has stopped: 2 failures in decision group 0 (a, b), maxFailures tolerates 1"},
		"a stop is for all groups": {strategy: perG, clusters: "a 0, b 1 Failed, c 2", want: "a=Waiting b=Failed c=Waiting", phase: Stopped},

		// AM-20: minSuccessTime.
		"a soaking cluster keeps its slot": {strategy: soak, clusters: "a 0 Succeeded 4m59s, b", want: "a=Soaking b=Waiting",
			phase: Rolling, next: time.Second},
		"the soak is over to the moment": {strategy: soak, clusters: "a 0 Succeeded 5m, b", want: "a=Done b=Start", phase: Rolling},
		"a rollout is over when the last soaked": {strategy: soak, clusters: "a 0 Succeeded 1m", want: "a=Soaking", phase: Rolling,
			next: 4 * time.Minute},
		"an unknown time is long ago": {strategy: soak, clusters: "a 0 Succeeded, b", want: "a=Done b=Start", phase: Rolling},

		// AM-20: progressDeadline.
		"a cluster in time keeps its slot": {strategy: late, clusters: "a 0 Progressing 9m, b", want: "a=InProgress b=Waiting",
			phase: Rolling, next: time.Minute},
		"a deadline passes to the moment": {strategy: late, clusters: "a 0 Progressing 10m, b", want: "a=TimedOut b=Start",
			phase: Rolling, next: 10 * time.Minute},
		"a failed cluster has until then": {strategy: late, clusters: "a 0 Failed 9m, b", want: "a=Failed b=Waiting",
			phase: Rolling, next: time.Minute},
		"a failed cluster times out": {strategy: late, clusters: "a 0 Failed 10m, b", want: "a=TimedOut b=Start",
			phase: Rolling, next: 10 * time.Minute},
		"a known timeout stays one": {strategy: late, clusters: "a 0 TimeOut 1m, b", want: "a=TimedOut b=Start",
			phase: Rolling, next: 10 * time.Minute},
		"success after the deadline is success": {strategy: late, clusters: "a 0 Succeeded 1h, b 0 Failed 1h", want: "a=Done b=TimedOut",
			phase: Complete},
		"without a deadline progress has no limit": {strategy: two, clusters: "a 0 Progressing 9999h, b 0 Progressing 9999h, c",
			want: "a=InProgress b=InProgress c=Waiting", phase: Rolling},
		"None is no deadline": {strategy: `{type: Progressive, progressive: {maxConcurrency: 1, progressDeadline: None}}`,
			clusters: "a 0 Progressing 9999h, b", want: "a=InProgress b=Waiting", phase: Rolling},
		"the earliest moment is next": {strategy: `{type: Progressive, progressive: {minSuccessTime: 5m, progressDeadline: 10m, maxFailures: 1}}`,
			clusters: "a 0 Progressing 1m, b 0 Failed 4m, c 0 Succeeded 2m, d 0 Succeeded 6m", want: "a=InProgress b=Failed c=Soaking d=Done",
			phase: Rolling, next: 3 * time.Minute},
		// Gap W22.
		"a failed cluster without a deadline frees its slot": {strategy: `{type: Progressive, progressive: {maxConcurrency: 1, maxFailures: 1}}`,
			clusters: "a 0 Failed, b", want: "a=Failed b=Start", phase: Rolling},

		// AM-20: maxFailures.
		"as many failures as tolerated": {strategy: `{type: Progressive, progressive: {maxFailures: 2}}`, clusters: "a 0 Failed, b 0 TimeOut, c",
			want: "a=Failed b=TimedOut c=Start", phase: Rolling},
		"one more stops the rollout": {strategy: `{type: Progressive, progressive: {maxFailures: 2}}`,
			clusters: "a 0 Failed, b 0 TimeOut, c, d 0 Failed, e 0 Progressing",
			want:     "a=Failed b=TimedOut c=Waiting d=Failed e=InProgress", phase: Stopped},
		"none is tolerated by default": {strategy: two, clusters: "a 0 Failed, b", want: "a=Failed b=Waiting", phase: Stopped},
		"stopped without waiting ones": {strategy: two, clusters: "a 0 Failed, b 0 Succeeded", want: "a=Failed b=Done", phase: Stopped},
		"over with tolerated failures": {strategy: `{type: Progressive, progressive: {maxFailures: 1}}`, clusters: "a 0 Failed, b 0 Succeeded",
			want: "a=Failed b=Done", phase: Complete},
		"a percentage of failures is of all clusters, rounded up": {
			strategy: `{type: Progressive, progressive: {maxFailures: 30%, mandatoryDecisionGroups: [{groupIndex: 0}]}}`,
			clusters: "a 0 Succeeded, b 0 Succeeded, c 1 Failed, d 1 Failed, e 1",
			want:     "a=Done b=Done c=Failed d=Failed e=Start", phase: Rolling},

		// AM-20, MR-05: the rest.
		"skipped clusters take no part":       {strategy: perG, clusters: "a 0 Skip, b 1", want: "a=Skipped b=Start", phase: Rolling},
		"deselected clusters":                 {strategy: two, clusters: "a 0 Gone, b", want: "a=Remove b=Start", phase: Rolling},
		"deselected clusters delay no others": {strategy: soak, clusters: "a 0 Gone 1s, b", want: "a=Remove b=Start", phase: Rolling},
		"all deselected":                      {strategy: two, clusters: "a 0 Gone", want: "a=Remove", phase: Complete},
		"all successful":                      {strategy: perG, clusters: "a 0 Succeeded, b 1 Succeeded", want: "a=Done b=Done", phase: Complete},
		"an unknown type begins nothing": {strategy: `{type: Canary}`, clusters: "a, b 0 Succeeded, c 0 Gone",
			want: "a=Waiting b=Done c=Remove", phase: Invalid, reason: "the rollout strategy cannot be read"},
		"unreadable numbers begin nothing": {strategy: `{type: Progressive, progressive: {maxConcurrency: abc}}`,
			clusters: "a 0 Progressing, b", want: "a=InProgress b=Waiting", phase: Invalid},
		"blocks of other types do not matter": {strategy: `{type: All, progressive: {maxConcurrency: abc}}`, clusters: "a", want: "a=Start",
			phase: Rolling},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := Decide(Input{Strategy: strategy(t, test.strategy), Clusters: clusters(t, test.clusters), Now: now})
			if diff := cmp.Diff(test.want, phasesOf(plan)); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			if plan.Phase != test.phase {
				t.Errorf("phase %s, want %s", plan.Phase, test.phase)
			}
			next := time.Duration(0)
			if !plan.Next.IsZero() {
				next = plan.Next.Sub(now)
			}
			if next != test.next {
				t.Errorf("next in %s, want %s", next, test.next)
			}
			for _, c := range plan.Clusters {
				switch {
				case (c.Phase == Waiting) != (c.Reason != ""):
					t.Errorf("%s is %s, the reason is %q", c.Name, c.Phase, c.Reason)
				case c.Phase == Waiting && test.reason != "" && c.Reason != test.reason:
					t.Errorf("%s waits because of %q, want %q", c.Name, c.Reason, test.reason)
				}
			}
		})
	}
}

// AM-20: what a mandatory group waits for that has only absent clusters, and what the others wait for.
func TestReasonsWhileClustersAreAbsent(t *testing.T) {
	t.Parallel()
	plan := Decide(Input{Strategy: strategy(t, `{type: Progressive, progressive: {mandatoryDecisionGroups: [{groupIndex: 0}]}}`),
		Clusters: clusters(t, "a 0 Absent, b 1"), Now: now})
	want := []ClusterPlan{
		{"a", Waiting, "it cannot be given the change; mandatory decision group 0 waits until one of its clusters has succeeded"},
		{"b", Waiting, "first comes mandatory decision group 0, with 1 cluster to go"},
	}
	if diff := cmp.Diff(want, plan.Clusters); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// AM-20: add-ons without a maxConcurrency take clustersPerDecisionGroup of the placement.
func TestDefaultMaxConcurrency(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ strategy, size, want string }{
		{`{type: Progressive}`, "2", "a=Start b=Start c=Waiting d=Waiting"},
		{`{type: Progressive}`, "25%", "a=Start b=Waiting c=Waiting d=Waiting"},
		{`{type: Progressive}`, "100%", "a=Start b=Start c=Start d=Start"},
		{`{type: Progressive}`, "7", "a=Start b=Start c=Start d=Start"},
		{`{type: Progressive, progressive: {maxConcurrency: 3}}`, "2", "a=Start b=Start c=Start d=Waiting"},
		{`{type: ProgressivePerGroup}`, "2", "a=Start b=Start c=Start d=Start"},
	} {
		size := intstr.Parse(test.size)
		plan := Decide(Input{Strategy: strategy(t, test.strategy), DefaultMaxConcurrency: &size, Clusters: clusters(t, "a, b, c, d"), Now: now})
		if got := phasesOf(plan); got != test.want {
			t.Errorf("%s by default %s: %s, want %s", test.strategy, test.size, got, test.want)
		}
		if len(plan.Notes) > 0 {
			t.Errorf("%s by default %s: the user of the strategy is bothered with %q", test.strategy, test.size, plan.Notes)
		}
	}
}

// The rollout of the text on add-ons: two canary groups, then 25 % at a time, with soak, deadline and two failures.
func TestCanaryGroupsThenAQuarterAtATime(t *testing.T) {
	t.Parallel()
	s := strategy(t, `{type: Progressive, progressive: {
		mandatoryDecisionGroups: [{groupName: prod-canary-west}, {groupName: prod-canary-east}],
		maxConcurrency: 25%, minSuccessTime: 5m, progressDeadline: 10m, maxFailures: 2}}`)
	all := clusters(t, "w1 0/prod-canary-west, w2 0/prod-canary-west, e1 1/prod-canary-east, a 2, b 2, c 2, d 2, e 3, f 3, g 3, h 3")
	at := now
	// step puts clusters into a state at the time, starts those that the plan starts, and returns their names.
	step := func(after time.Duration, state State, names ...string) (started string, plan Plan) {
		at = at.Add(after)
		for i := range all {
			if slices.Contains(names, all[i].Name) {
				all[i].State, all[i].Since = state, at
			}
		}
		plan = Decide(Input{Strategy: s, Clusters: all, Now: at})
		for i := range all {
			if plan.Clusters[i].Phase == Start {
				all[i].State, all[i].Since = Progressing, at
			}
		}
		return strings.Join(plan.Names(Start), " "), plan
	}
	for i, test := range []struct {
		after  time.Duration
		state  State
		names  []string
		starts string
		phase  Phase
	}{
		{starts: "w1 w2", phase: Rolling},
		{after: time.Minute, state: Succeeded, names: []string{"w1", "w2"}, phase: Rolling},
		{after: 5 * time.Minute, starts: "e1", phase: Rolling},
		{after: time.Minute, state: Succeeded, names: []string{"e1"}, phase: Rolling},
		{after: 5 * time.Minute, starts: "a b", phase: Rolling}, // 25 % of 8
		{after: time.Minute, state: Succeeded, names: []string{"a"}, phase: Rolling},
		{after: 5 * time.Minute, starts: "c", phase: Rolling},
		{after: 4 * time.Minute, starts: "d", phase: Rolling}, // b has timed out
		{after: time.Minute, state: Succeeded, names: []string{"c"}, phase: Rolling},
		{state: Failed, names: []string{"d"}, phase: Rolling}, // keeps its slot until 10 minutes from here
		{after: 5 * time.Minute, starts: "e", phase: Rolling}, // c has soaked
		{after: time.Minute, state: Failed, names: []string{"e"}, phase: Stopped},
		{after: 20 * time.Minute, phase: Stopped},
		{state: Succeeded, names: []string{"b", "d"}, phase: Rolling},
		{after: 5 * time.Minute, starts: "f g", phase: Rolling},
		{after: time.Minute, state: Succeeded, names: []string{"f", "g"}, phase: Rolling},
		{after: 5 * time.Minute, starts: "h", phase: Rolling},
		{after: time.Minute, state: Succeeded, names: []string{"h"}, phase: Rolling},
		{after: 5 * time.Minute, phase: Complete},
	} {
		started, plan := step(test.after, test.state, test.names...)
		if started != test.starts || plan.Phase != test.phase {
			t.Fatalf("step %d: %s, begins %q, want %s, %q\n%s", i, plan.Phase, started, test.phase, test.starts, plan.Message)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	const canary = `{type: Progressive, progressive: {maxConcurrency: 2, maxFailures: 1, mandatoryDecisionGroups: [{groupName: canary}]}}`
	for _, test := range []struct{ strategy, clusters, want string }{
		{`{}`, "a 0 Gone", "no clusters are selected"},
		{`{}`, "a 0 Succeeded", "complete: 1 of 1 cluster successful"},
		{`{}`, "a 0 Succeeded, b 0 Failed, c 0 TimeOut, d 0 Skip",
			"no more clusters begin: 1 of 4 clusters successful, 1 failed, 1 timed out, 1 skipped; repair the failed clusters (b, c), or roll out another change"},
		{canary, "a 0/canary, b 1, c 1",
			"0 of 3 clusters successful, 1 beginning, 2 waiting; now: mandatory decision group 0 (canary), at most 1 at a time"},
		{canary, "a 0/canary Succeeded, b 1, c 1, d 1 Progressing, e 1", "1 of 5 clusters successful, 1 beginning, 1 in progress, 2 waiting; " +
			"now: the rest of the placement, at most 2 at a time"},
		{canary, "a 0/canary Failed, b 1", "stopped: 1 failure in mandatory decision group 0 (canary) (a), mandatory groups tolerate none; " +
			"0 of 2 clusters successful, 1 waiting; repair the failed clusters, or roll out another change"},
		{canary, "a 1 Failed, b 1 Failed, c 1 TimeOut, d 1 TimeOut, e 1 Failed, f 1",
			"stopped: 5 failures in the whole placement (a, b, c and 2 more), " +
				"maxFailures tolerates 1; 0 of 6 clusters successful, 1 waiting; repair the failed clusters, roll out another change, or raise maxFailures"},
		{`{type: Progressive, progressive: {maxFailures: many}}`, "a", "nothing is rolled out until the strategy is corrected: " +
			`rolloutStrategy.progressive.maxFailures: Invalid value: "many": write a number of clusters such as 3, or a percentage such as 25%`},
	} {
		plan := Decide(Input{Strategy: strategy(t, test.strategy), Clusters: clusters(t, test.clusters), Now: now})
		if plan.Message != test.want {
			t.Errorf("%s of %s:\ngot  %s\nwant %s", test.strategy, test.clusters, plan.Message, test.want)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	plan := Decide(Input{Strategy: strategy(t, `{type: Progressive, progressive: {maxConcurrency: 3, maxFailures: 1}}`),
		Clusters: clusters(t, "a, b, c, d 0 Progressing, e 0 Failed, f 0 Gone"), Now: now})
	want := map[ClusterPhase]int{Start: 2, Waiting: 1, InProgress: 1, HasFailed: 1, Remove: 1}
	if diff := cmp.Diff(want, plan.Count); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := plan.Names(Start); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("to begin: %v", names)
	}
	gets := ""
	for _, c := range plan.Clusters {
		gets += fmt.Sprintf("%s=%t ", c.Name, c.Phase.GetsChange())
	}
	if gets != "a=true b=true c=false d=true e=true f=false " {
		t.Error("who gets the change: " + gets)
	}
}
