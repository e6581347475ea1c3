package rollout

import "time"

// Plan is the result of Decide.
type Plan struct {
	// Phase of the whole rollout.
	Phase Phase
	// Clusters has the phase of each cluster, in the order of the input.
	Clusters []ClusterPlan
	// Count is the number of clusters by phase.
	Count map[ClusterPhase]int
	// Next is when to call Decide again if nothing happens before: the next end of a minSuccessTime or progressDeadline. Zero is
	// never.
	Next time.Time
	// Effective are the limits that apply.
	Effective Effective
	// Notes say which values of the strategy do not fit and what is used instead: a sentence each, with the field, for a condition.
	Notes []string
	// Message describes the state of the rollout for users, and what to do if it has stopped.
	Message string
}

// Succeeded tells whether every selected cluster is Done. A rollout that is Complete may have failed clusters.
func (p Plan) Succeeded() bool {
	return p.Phase == Complete && p.Count[Done]+p.Count[Remove] == len(p.Clusters)
}

// Names lists the clusters in a phase, in the order of the input.
func (p Plan) Names(phase ClusterPhase) []string {
	var names []string
	for i := range p.Clusters {
		if p.Clusters[i].Phase == phase {
			names = append(names, p.Clusters[i].Name)
		}
	}
	return names
}

// ClusterPlan is the phase of one cluster.
type ClusterPlan struct {
	Name  string
	Phase ClusterPhase
	// Reason is why a Waiting cluster waits.
	Reason string
}

// ClusterPhase is how far a cluster is in the rollout, and so what is due on it.
type ClusterPhase string

const (
	// Start is a cluster that is to get the change now.
	Start ClusterPhase = "Start"
	// InProgress is a cluster that has got the change, and has not reached its deadline.
	InProgress ClusterPhase = "InProgress"
	// Soaking is a cluster that is successful, but not yet for as long as minSuccessTime.
	Soaking ClusterPhase = "Soaking"
	// Done is a cluster that was successful for minSuccessTime.
	Done ClusterPhase = "Done"
	// HasFailed is a cluster that has failed with the change. It may recover.
	HasFailed ClusterPhase = "Failed"
	// TimedOut is a cluster that has missed its deadline. It may still become successful.
	TimedOut ClusterPhase = "TimedOut"
	// Waiting is a cluster that is to get the change later: what it has, if anything, stays as it is.
	Waiting ClusterPhase = "Waiting"
	// Skipped is a cluster that the rollout leaves out.
	Skipped ClusterPhase = "Skipped"
	// Remove is a cluster that is not selected any more: what it has is to be deleted.
	Remove ClusterPhase = "Remove"
)

// GetsChange tells whether the cluster is to get the change, or to keep it, now.
func (v ClusterPhase) GetsChange() bool {
	switch v {
	case Start, InProgress, Soaking, Done, HasFailed, TimedOut:
		return true
	default:
		return false
	}
}

// Phase is how far a rollout is.
type Phase string

const (
	// Rolling is a rollout with clusters in flight or waiting.
	Rolling Phase = "Rolling"
	// Complete is a rollout without clusters in flight or waiting. Some may have failed, as many as are tolerated, or were skipped:
	// see Succeeded.
	Complete Phase = "Complete"
	// Stopped is a rollout with more failures than are tolerated. It continues when clusters recover or the strategy tolerates
	// more.
	Stopped Phase = "Stopped"
	// Invalid is a strategy that cannot be parsed; Message says why. No cluster begins; those that have begun continue.
	Invalid Phase = "Invalid"
)

// Effective are the limits that apply, with percentages as numbers and values that do not fit replaced.
type Effective struct {
	// Stage is the current stage, or the one that has stopped the rollout. Empty for none.
	Stage string
	// MaxConcurrency is how many clusters of the stage may be in flight.
	MaxConcurrency int
	// MaxFailures is how many clusters of the stage may fail before the rollout stops.
	MaxFailures int
	// MinSuccessTime is how long a cluster has to be successful.
	MinSuccessTime time.Duration
	// ProgressDeadline is how long a cluster may take. 0 is without limit.
	ProgressDeadline time.Duration
}
