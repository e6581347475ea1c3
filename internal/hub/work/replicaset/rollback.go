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

// chooseTemplate is the template of the set, or, once that has failed in a set with rollback, the last good one.
// The spec is left as its author wrote it, who may be a machine that would write it again at once.
func (c *Controller) chooseTemplate(ctx context.Context, s *situation) (err error) {
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
	// Without a revision to restore, the failed one stays where it is, and is given to no cluster that does not have it.
	s.held = true
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
	s.template, s.held = template, false
	s.rollback = fmt.Sprintf("revision %d has failed: %s; revision %d is restored: change the template to try again", now.Number, now.Message,
		before.Number)
	for _, p := range s.placements {
		// What was good is not rolled out with care again: the sooner the better.
		p.RolloutStrategy = clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}
	}
	return nil
}

// judge notes in the history how the present revision turns out. One that has failed is not rolled out any further from the
// next reconcile on, which the note brings about.
func (c *Controller) judge(ctx context.Context, s *situation) error {
	if s.history == nil {
		return nil
	}
	now := s.history.current()
	switch stopped := s.stopped(); {
	case now.State != "":
		// Once it is good, a cluster that fails later is no reason to change all others.
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

// stopped is a placement with more failures than are tolerated.
func (s *situation) stopped() *placement {
	for _, p := range s.placements {
		if p.plan.Phase == rollout.Stopped {
			return p
		}
	}
	return nil
}

// complete tells whether all clusters have the template and are well with it, but for the failures that are tolerated.
func (s *situation) complete() bool {
	done := 0
	for _, p := range s.placements {
		if !p.known() || p.plan.Phase != rollout.Complete {
			return false
		}
		done += p.plan.Count[rollout.Done]
	}
	return done > 0
}
