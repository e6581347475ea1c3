// Package placement is the scheduler: it selects clusters for Placements, and says why. It has no client. The caller passes it the events
// of the API and writes its results:
//
//	scheduler := placement.New(placement.Options{})
//	keys := scheduler.SetCluster(cluster)  // and SetClusterSet, SetBinding, SetScore, SetPlacement, Delete…, Advance
//	for each key: result, ok := scheduler.Schedule(key); write result (see package decisions)
//
// docs/placement-internals.md has the whole way from an event to a decision, and which file has which step.
//
// # Events
//
// The scheduler keeps a snapshot of the fleet. An event updates the snapshot and returns the keys of the placements whose selection it may
// change, and no others: the result of any other placement is the same before and after the event. A key is to be scheduled once after it
// was returned; until then, further events may leave it out. The passing of time is an event, too: NextAdvance is when the next toleration
// or score expires, and Advance sets the time. Until then, the scheduler uses the time of the last Advance.
//
// Decisions of other placements are no events. Balance reads them when a placement is scheduled for another reason. If every decision
// rescheduled all other placements, they would reschedule each other without end.
//
// # What is cached
//
//   - Placements with the same cluster sets, predicates, tolerations and prioritizers are one equivalenceClass. It filters and scores the
//     clusters once for all its placements (candidateSet), and afterwards again only those that change.
//   - Balance and Steady depend on decisions and are not cached: a schedule adds them to the scores of the class (cycle), and keeps the
//     best in one pass over the candidates.
//   - A cluster that ranks behind all that a placement can select, before and after an event, does not affect the placement (updateClass).
//     This is one comparison for each candidate, and one for each placement.
//
// # Concurrency
//
// All methods of Scheduler may be called concurrently. One mutex guards the snapshot. Schedule and most events hold it for a fraction of a
// millisecond; filtering or explaining a class of thousands of clusters, and spread constraints, for milliseconds. So workers select
// clusters one after the other, each with the decisions of those before, and write them at the same time. Objects that are passed in are
// kept and must not be changed; results belong to the caller.
//
// Evaluate runs CEL expressions, which may take seconds, without holding the mutex. Until it has evaluated all clusters for a placement,
// Schedule returns that the placement is pending; until it has evaluated a cluster that has changed, the cluster matches as it did before.
// The cost of expressions is limited for each namespace, on average over time, and for all clusters together (see celEvaluation).
package placement
