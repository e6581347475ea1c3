// Package rollout decides which clusters get a change now and which ones wait. A change is a new template of a
// ManifestWorkReplicaSet or a new configuration of an add-on; both use this engine. It is pure: it calls
// no API, keeps no state and takes the time as an argument.
//
// Decide is asked whenever something has happened to a cluster, and again when Plan.Next comes. It is told where each
// cluster stands as of now, and nothing about earlier plans, so a restart, a lost event or a changed strategy needs no
// care: the next plan is right again. It costs one pass over the clusters.
//
// # Stages
//
// The strategy cuts the clusters into stages. A stage begins when all before it are done.
//
//	All                  one stage of all clusters
//	Progressive          a stage for each mandatory decision group, then one stage of all other clusters
//	ProgressivePerGroup  a stage for each mandatory decision group, then one for each other group, by its index
//
// Mandatory groups come in the order in which the strategy lists them. A groupName stands for all groups of that name:
// a Placement cuts a named group into several when it is larger than clustersPerDecisionGroup. Without a
// groupName, groupIndex counts.
//
// # Slots
//
// A cluster that is given the change takes a slot of its stage. A stage has a slot for each of its clusters, so that all
// begin at once; only the last stage of Progressive has maxConcurrency. They are given away by the names of the clusters.
// A slot is free again when the cluster
//
//   - has been successful for minSuccessTime, the soak;
//   - has not become successful within progressDeadline: it is timed out then;
//   - has failed, if there is no progressDeadline. With one, it has until then to recover.
//
// A stage is done when nobody waits and no slot is taken.
//
// # Failures
//
// Failed and timed-out clusters are failures. Mandatory groups tolerate none, the other stages maxFailures. When there are
// more, the whole rollout stops: no further cluster begins, not even one of an earlier stage that has just been
// selected. Those that have begun go on; and when enough of them recover, so does the rollout.
// The type All has no soak and never stops.
//
// # Numbers that do not fit
//
// A number out of its range counts as the nearest one within, and Plan.Notes says so, for the conditions of the
// object: a maxFailures of 10 tolerates all failures of 5 clusters, and a maxConcurrency of 0 is 1. Text that is no number
// or duration has no nearest value. Validate refuses both; if it was not asked, the plan is Invalid and nothing begins.
package rollout
