package replicaset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// chooseTemplate sets the template to roll out: that of the set, or, once that has failed in a set with rollback, the last good one.
// The spec of the set is not changed, because its author may be an automation that would write it again at once.
func (c *Controller) chooseTemplate(ctx context.Context, s *snapshot) (err error) {
	if s.set.Annotations[fleet.AnnotationRollback] != fleet.LabelTrue {
		return nil
	}
	if s.history, err = historyOf(s.set); err != nil {
		return err
	}
	now, before := s.history.current(), s.history.lastGood()
	if now.State != failed {
		return nil
	}
	// Without a revision to roll back to, the works keep the failed template, and no other cluster gets it.
	s.suspended = true
	if before == nil {
		s.rollback = fmt.Sprintf("revision %d has failed: %s; there is no good revision to restore", now.Number, now.Message)
		return nil
	}
	template, err := c.templates.load(ctx, s.set, before)
	if err != nil {
		s.rollback = fmt.Sprintf("revision %d has failed: %s; revision %d cannot be restored: %v", now.Number, now.Message, before.Number, err)
		if lost := (*lostTemplateError)(nil); !errors.As(err, &lost) {
			s.again = fmt.Errorf("read revision %d of ManifestWorkReplicaSet %s/%s: %w", before.Number, s.set.Namespace, s.set.Name, err)
		}
		return nil
	}
	s.template, s.suspended = template, false
	s.rollback = fmt.Sprintf("revision %d has failed: %s; revision %d is restored: change the template to try again", now.Number, now.Message,
		before.Number)
	for _, p := range s.placements {
		// The good template is rolled out to all clusters at once.
		p.RolloutStrategy = clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}
	}
	return nil
}

// recordOutcome records in the history whether the present revision has succeeded or failed. The record enqueues the set, and a failed
// revision is rolled out no further.
func (c *Controller) recordOutcome(ctx context.Context, s *snapshot) error {
	if s.history == nil {
		return nil
	}
	now := s.history.current()
	switch stopped := s.stopped(); {
	case now.State != "":
		// Once a revision is good, a cluster that fails later is no reason to change all others.
	case stopped != nil:
		if s.history.lastGood() != nil {
			now.State, now.Message = failed, stopped.plan.Message
			c.recorder.Eventf(s.set, nil, corev1.EventTypeWarning, fleet.EventRolledBack, "RollBack",
				"Revision %d has failed and revision %d is restored: %s", now.Number, s.history.lastGood().Number, now.Message)
		}
	case s.complete():
		now.State = good
		if err := c.templates.keep(ctx, s.set, s.history); err != nil {
			now.State = ""
			s.warning = fmt.Sprintf("there can be no rollback to this template: %v", err)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsRequestEntityTooLargeError(err) {
				s.again = err
			}
		}
	}
	return s.history.write(ctx, c.client, s.set)
}

// stopped returns a placement with more failures than its strategy tolerates, or nil.
func (s *snapshot) stopped() *placement {
	for _, p := range s.placements {
		if p.plan.Phase == rollout.Stopped {
			return p
		}
	}
	return nil
}

// complete reports whether all clusters have the template and are healthy, except for tolerated failures. Of clusters with frozen works,
// and of absent ones, that is not known.
func (s *snapshot) complete() bool {
	done := 0
	for _, p := range s.placements {
		if !p.known() || p.plan.Phase != rollout.Complete || len(p.frozen()) > 0 || len(p.absent) > 0 {
			return false
		}
		done += p.plan.Count[rollout.Done]
	}
	return done > 0
}
