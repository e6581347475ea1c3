package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// Input is the present state of a rollout.
type Input struct {
	// Strategy has the order and the pace.
	Strategy clusterv1alpha1.RolloutStrategy
	// DefaultMaxConcurrency is for strategies of type Progressive without a maxConcurrency: for add-ons it is
	// clustersPerDecisionGroup of the Placement. Without it all clusters may begin at once.
	DefaultMaxConcurrency *intstr.IntOrString
	// Clusters are the selected ones, and those that are not selected any more but still have what is rolled out, in any order.
	Clusters []Cluster
	// Now is the present time.
	Now time.Time
}

// Decide returns what is due on each cluster. It is deterministic.
func Decide(in Input) Plan {
	policy, problems := parseStrategy(field.NewPath("rolloutStrategy"), in.Strategy, in.DefaultMaxConcurrency)
	r := rollout{policy: policy, input: in, plan: Plan{Clusters: make([]ClusterPlan, len(in.Clusters))}}
	if len(problems.unreadable) > 0 {
		r.blockAll(problems.unreadable)
		return r.plan
	}
	stages := r.buildStages(problems.clamped)
	r.setClusterPhases()
	for _, stage := range stages {
		r.countStage(stage)
	}
	current := r.setPhase(stages)
	if r.plan.Phase == Rolling {
		r.startNext(current)
	}
	r.setMessage(stages, current)
	r.setEffective(current)
	return r.plan
}

// rollout is the state of one call of Decide.
type rollout struct {
	policy policy
	input  Input
	plan   Plan
}

// buildStages divides the clusters into stages, and notes which values do not fit.
func (r *rollout) buildStages(problems []clamped) []*stage {
	for _, problem := range problems {
		r.plan.Notes = append(r.plan.Notes, problem.String())
	}
	stages, notes := r.policy.buildStages(r.input.Clusters)
	r.plan.Notes = append(r.plan.Notes, notes...)
	return stages
}

// blockAll starts no cluster, as the strategy is invalid.
func (r *rollout) blockAll(problems field.ErrorList) {
	r.policy = policy{}
	r.setClusterPhases()
	r.plan.Phase = Invalid
	r.plan.Message = fmt.Sprintf("nothing is rolled out until the strategy is corrected: %v", problems.ToAggregate())
	for i := range r.plan.Clusters {
		if c := &r.plan.Clusters[i]; c.Phase == Waiting {
			c.Reason = "the rollout strategy cannot be read"
		}
	}
	r.countPhases()
}

// setClusterPhases gives every cluster the phase that follows from its own state and the time. Clusters without the change are Waiting.
func (r *rollout) setClusterPhases() {
	for i := range r.input.Clusters {
		cluster := &r.input.Clusters[i]
		phase, due := r.policy.phaseOf(cluster, r.input.Now)
		r.plan.Clusters[i] = ClusterPlan{Name: cluster.Name, Phase: phase}
		r.requeueBy(due)
	}
}

// requeueBy makes sure that Plan.Next is not after due; zero is never.
func (r *rollout) requeueBy(due time.Time) {
	if !due.IsZero() && (r.plan.Next.IsZero() || due.Before(r.plan.Next)) {
		r.plan.Next = due
	}
}

// phaseOf returns the phase of a cluster, and when it changes with time.
func (p policy) phaseOf(cluster *Cluster, now time.Time) (phase ClusterPhase, due time.Time) {
	if cluster.Deselected {
		return Remove, time.Time{}
	}
	switch cluster.State {
	case Progressing:
		return p.untilDeadline(InProgress, cluster.Since, now)
	case Failed:
		return p.untilDeadline(HasFailed, cluster.Since, now)
	case TimeOut:
		return TimedOut, time.Time{}
	case Succeeded:
		if soaked := cluster.Since.Add(p.soak); p.soak > 0 && now.Before(soaked) {
			return Soaking, soaked
		}
		return Done, time.Time{}
	case Skip, Absent:
		return Skipped, time.Time{}
	default:
		return Waiting, time.Time{}
	}
}

func (p policy) untilDeadline(phase ClusterPhase, since, now time.Time) (ClusterPhase, time.Time) {
	if p.deadline == 0 {
		return phase, time.Time{}
	}
	if deadline := since.Add(p.deadline); now.Before(deadline) {
		return phase, deadline
	}
	return TimedOut, time.Time{}
}

// inFlight tells whether a cluster in the phase takes a slot. A failed cluster takes one until its deadline, in which it may recover;
// without a deadline it takes none, as it would never free it.
func (p policy) inFlight(phase ClusterPhase) bool {
	switch phase {
	case InProgress, Soaking:
		return true
	case HasFailed:
		return p.deadline > 0
	default:
		return false
	}
}

// countStage counts the clusters of a stage that wait, take a slot or have failed.
func (r *rollout) countStage(s *stage) {
	for _, i := range s.clusters {
		phase := r.plan.Clusters[i].Phase
		if r.policy.inFlight(phase) {
			s.inFlight++
		}
		switch phase {
		case Waiting:
			s.waiting = append(s.waiting, i)
		case HasFailed, TimedOut:
			s.failed = append(s.failed, i)
		}
	}
	r.awaitAbsent(s)
}

// awaitAbsent has a mandatory group wait for its Absent clusters, unless another cluster of the group is Done. They do not begin before
// they are in another state: nothing can be given to them.
func (r *rollout) awaitAbsent(s *stage) {
	isDone := func(i int) bool { return r.plan.Clusters[i].Phase == Done }
	if !s.mandatory || slices.ContainsFunc(s.clusters, isDone) {
		return
	}
	for _, i := range s.clusters {
		if r.input.Clusters[i].State == Absent {
			r.plan.Clusters[i].Phase = Waiting
			s.absent = append(s.absent, i)
		}
	}
}

// setPhase returns the stage that has stopped the rollout, or else the first one that is not done. Too many failures in one stage stop
// the whole rollout: the change is then not good enough for more clusters of any group.
func (r *rollout) setPhase(stages []*stage) (current *stage) {
	for _, s := range stages {
		if s.stopped() {
			r.plan.Phase = Stopped
			return s
		}
	}
	for _, s := range stages {
		if !s.done() {
			r.plan.Phase = Rolling
			return s
		}
	}
	r.plan.Phase = Complete
	return nil
}

// startNext starts as many clusters of a stage as it has free slots.
func (r *rollout) startNext(s *stage) {
	next := s.nextClusters(r.input.Clusters)
	for _, i := range next {
		r.plan.Clusters[i].Phase = Start
	}
	if len(next) > 0 && r.policy.deadline > 0 {
		r.requeueBy(r.input.Now.Add(r.policy.deadline))
	}
	s.waiting = s.waiting[len(next):]
	s.inFlight += len(next)
}

// setEffective sets the limits that apply.
func (r *rollout) setEffective(current *stage) {
	r.plan.Effective.MinSuccessTime = r.policy.soak
	r.plan.Effective.ProgressDeadline = r.policy.deadline
	if current != nil {
		r.plan.Effective.Stage = current.name
		r.plan.Effective.MaxConcurrency = current.slots
		r.plan.Effective.MaxFailures = current.tolerated
	}
}

func (r *rollout) countPhases() {
	r.plan.Count = map[ClusterPhase]int{}
	for i := range r.plan.Clusters {
		r.plan.Count[r.plan.Clusters[i].Phase]++
	}
}
