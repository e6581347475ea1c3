// Package rollout decides which clusters get a change now, and which ones wait. A change is a new template of a
// ManifestWorkReplicaSet or a new configuration of an add-on; both use this engine. It is pure: it calls
// no API, keeps no state and takes the time as an argument.
//
// Decide is called after each change of a cluster, and again at Plan.Next. Its input is the present state of each cluster, and nothing
// about earlier plans: after a restart, a lost event or a change of the strategy, the next plan is right again. It takes one pass over the
// clusters.
//
// # Stages
//
// The strategy divides the clusters into stages. A stage begins when all stages before it are done.
//
//	All                  one stage of all clusters
//	Progressive          a stage for each mandatory decision group, then one stage of all other clusters
//	ProgressivePerGroup  a stage for each mandatory decision group, then one for each other group, by its index
//
// Mandatory groups come in the order in which the strategy lists them. A groupName stands for all groups of that name: a Placement splits a
// named group that is larger than clustersPerDecisionGroup. Without a groupName, groupIndex counts.
//
// # Slots
//
// A cluster that gets the change takes a slot of its stage. A stage has a slot for each of its clusters, so that all begin at once; only
// the last stage of Progressive has maxConcurrency slots. Clusters get slots in the order of their names. A slot is free again when the
// cluster
//
//   - has been successful for minSuccessTime, the soak time;
//   - has not become successful within progressDeadline: it is timed out;
//   - has failed, if there is no progressDeadline. Otherwise it may recover until then.
//
// A stage is done when no cluster waits and no slot is taken. Clusters that are Absent do not wait, except in a mandatory group in which no
// other one is Done, and do not begin either.
//
// # Failures
//
// Failed and timed-out clusters are failures. Mandatory groups tolerate none, the other stages maxFailures. When there are more, the
// whole rollout stops: no further cluster begins, not even one of an earlier stage that was just selected. Clusters that have begun
// continue; when enough of them recover, so does the rollout. The type All has no soak time and never stops.
//
// # Numbers that do not fit
//
// A number out of its range counts as the nearest one within the range, and Plan.Notes says so, for the conditions of the object: a
// maxFailures of 10 tolerates all failures of 5 clusters, and a maxConcurrency of 0 is 1. Text that is no number or duration has no nearest
// value. Validate rejects both; if it was not called, the plan is Invalid and no cluster begins.
package rollout
