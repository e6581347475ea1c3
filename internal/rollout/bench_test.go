package rollout

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDecide plans for 10,000 clusters in 100 groups, some of them in each state.
func BenchmarkDecide(b *testing.B) {
	states := []State{ToApply, ToApply, ToApply, Succeeded, Progressing}
	fleet := make([]Cluster, 10_000)
	for i := range fleet {
		fleet[i] = Cluster{
			Name: fmt.Sprintf("cluster-%05d", (i*7919)%len(fleet)), Group: Group{Index: int32(i / 100)},
			State: states[i%len(states)], Since: now.Add(-time.Minute),
		}
	}
	for name, text := range map[string]string{
		"All":                 `{}`,
		"Progressive":         `{type: Progressive, progressive: {maxConcurrency: 30%, progressDeadline: 10m, minSuccessTime: 10s, maxFailures: 5%}}`,
		"ProgressivePerGroup": `{type: ProgressivePerGroup, progressivePerGroup: {progressDeadline: 10m, mandatoryDecisionGroups: [{groupIndex: 7}]}}`,
	} {
		input := Input{Strategy: strategy(b, text), Clusters: fleet, Now: now}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(input)
			}
		})
	}
}
