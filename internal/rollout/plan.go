package rollout

import "time"

// Plan is what Decide makes of a rollout as it stands now.
type Plan struct {
	// Phase is how far the rollout is as a whole.
	Phase Phase
	// Clusters has the verdict on each cluster of the input, in the same order.
	Clusters []ClusterPlan
	// Count is how many clusters have each verdict.
	Count map[Verdict]int
	// Next is when to ask again even if nothing happens: the first end of a soak or deadline. Zero is never.
	Next time.Time
	// Effective are the limits in force.
	Effective Effective
	// Notes say which values of the strategy do not fit and what is used instead, a sentence each, for a condition. They
	// name the field.
	Notes []string
	// Message tells people how the rollout stands, and what to do about it if it has stopped.
	Message string
}

// Succeeded tells whether every selected cluster is through. A rollout that is Complete may have left failures behind.
func (p Plan) Succeeded() bool {
	return p.Phase == Complete && p.Count[Done]+p.Count[Remove] == len(p.Clusters)
}

// Names lists the clusters with a verdict, in the order of the input.
func (p Plan) Names(verdict Verdict) []string {
	var names []string
	for i := range p.Clusters {
		if p.Clusters[i].Verdict == verdict {
			names = append(names, p.Clusters[i].Name)
		}
	}
	return names
}

// ClusterPlan is the verdict on one cluster.
type ClusterPlan struct {
	Name    string
	Verdict Verdict
	// Reason is why a Waiting cluster waits.
	Reason string
}

// Verdict is what is due on a cluster.
type Verdict string

const (
	// Begin is a cluster to give the change to now.
	Begin Verdict = "Begin"
	// InProgress is a cluster that has been given the change and has time left.
	InProgress Verdict = "InProgress"
	// Soaking is a cluster that is successful, but not yet for as long as minSuccessTime.
	Soaking Verdict = "Soaking"
	// Done is a cluster that is through.
	Done Verdict = "Done"
	// HasFailed is a cluster that has failed with the change. It may recover.
	HasFailed Verdict = "Failed"
	// TimedOut is a cluster that has missed its deadline. It may still become successful.
	TimedOut Verdict = "TimedOut"
	// Waiting is a cluster whose turn has not come: what it has, if anything, stays as it is.
	Waiting Verdict = "Waiting"
	// Skipped is a cluster that the rollout passes over.
	Skipped Verdict = "Skipped"
	// Remove is a cluster that is not selected any more: what it has is to be deleted.
	Remove Verdict = "Remove"
)

// Gets says whether the cluster is to have the change, or to keep it, as of now.
func (v Verdict) Gets() bool {
	switch v {
	case Begin, InProgress, Soaking, Done, HasFailed, TimedOut:
		return true
	default:
		return false
	}
}

// Phase is how far a rollout is.
type Phase string

const (
	// Rolling is a rollout with clusters under way or waiting.
	Rolling Phase = "Rolling"
	// Complete is a rollout that is over: nothing waits and nothing is under way. Some clusters may have failed, as
	// many as are tolerated, or have been skipped; Succeeded tells.
	Complete Phase = "Complete"
	// Stopped is a rollout with more failures than are tolerated. It goes on when clusters recover or the strategy
	// tolerates more.
	Stopped Phase = "Stopped"
	// Invalid is a strategy that cannot be read, Message says why. Nothing begins; what has begun goes on.
	Invalid Phase = "Invalid"
)

// Effective are the limits in force, once percentages are counted out and values that do not fit are replaced.
type Effective struct {
	// Stage is the one under way, or the one that has stopped the rollout, in words. Empty when there is none.
	Stage string
	// MaxConcurrency is how many clusters of the stage may be in flight.
	MaxConcurrency int
	// MaxFailures is how many clusters of the stage may fail before the rollout stops.
	MaxFailures int
	// MinSuccessTime is the soak.
	MinSuccessTime time.Duration
	// ProgressDeadline is how long a cluster may take. 0 is for ever.
	ProgressDeadline time.Duration
}
