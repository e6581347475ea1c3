// Package placement is the scheduler: which clusters a Placement selects, and why. It is pure. Whoever watches the API
// feeds events in and writes decisions out:
//
//	scheduler := placement.New(placement.Options{})
//	keys := scheduler.SetCluster(cluster)  // and SetClusterSet, SetBinding, SetScore, SetPlacement, Delete…, Advance
//	for each key: result, ok := scheduler.Schedule(key); write result (see package decisions)
//
// # Events
//
// The scheduler keeps a model of the fleet. An event updates it and returns the keys of the placements whose selection
// the event may change, and only those: scheduling any other placement yields the same after the event as before.
// Time is an event, too: NextTime tells when a toleration or a score expires, and Advance lets that time come. Until
// then the scheduler decides as of the last Advance.
//
// What is no event: the decisions of other placements. Balance reads them when a placement is scheduled for some
// other reason. Were each decision to reschedule all others, they would chase one another.
//
// # How it is fast
//
//   - Placements with the same cluster sets, predicates, tolerations and prioritizers are of one class. Candidates, and
//     the scores that do not depend on decisions, are found once for a class (see class and standing), and brought up to
//     date cluster by cluster.
//   - Balance and Steady, which do depend on decisions, are never stored. A class keeps its candidates in one sorted list
//     for each number of decisions a cluster has (see board). Within such a list Balance is the same for all, so that the
//     best of all lists is found from their heads: the cost of a schedule grows with the number of clusters selected, not
//     with the number there are.
//   - A cluster that ranks behind all that a placement could select, before an event and after it, cannot change that
//     placement (see reassess). This takes one comparison for each placement.
//
// # Concurrency
//
// All methods of Scheduler may be called from several goroutines. One mutex guards the whole model and is held for the
// time of a call: microseconds for Schedule and most events, milliseconds when a class of thousands of clusters is
// built or explained, or spread by constraints. Workers so decide one after the other, each seeing the decisions of those before, and
// write at the same time. Objects that are passed in are kept and must not be changed after; results belong to the caller.
//
// CEL expressions, which may take seconds, are applied by Evaluate, which does not hold the mutex. Until it has been through with those
// of a placement, Schedule says that the placement is pending; and until it has looked at a cluster that has changed, the cluster
// matches as it did before. What that may cost is limited for each namespace, on average over time, and for all clusters together (see
// evaluation).
package placement
