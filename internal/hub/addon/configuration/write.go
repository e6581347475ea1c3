package configuration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/rollout"
)

// write writes the desired references and the condition about them.
func (c *Controller) write(ctx context.Context, s *snapshot) error {
	return s.forEachAddOn(func(cluster *clusterState) error {
		after, condition := cluster.after()
		if after == nil {
			return nil
		}
		return c.writeOne(ctx, s, cluster, after, condition)
	})
}

// recordSuccess notes on the add-ons with which configurations a rollout has succeeded there: what becomes of them later is no failure of
// it.
func (c *Controller) recordSuccess(ctx context.Context, s *snapshot) error {
	return s.forEachAddOn(func(cluster *clusterState) error {
		if !cluster.succeeds() {
			return nil
		}
		after := cluster.addOn.DeepCopy()
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, fleet.AnnotationRolledOut, digest(after.UID, cluster.desired))
		_, err := patch.Object(ctx, c.client, after, cluster.addOn)
		return client.IgnoreNotFound(err)
	})
}

// succeeds reports whether the cluster has, and is done with, its desired configurations: with those that a rollout gave it, or that it got
// at once because no placement selects it.
func (c *clusterState) succeeds() bool {
	return c.phase == rollout.Done ||
		c.placement == nil && progress.IsDone(c.addOn) && hasDesired(c.addOn.Status.ConfigReferences, c.desired)
}

// withdrawSuccess takes off the note of an earlier success with the configurations that the add-on is to get back: it has had others since.
func (c *Controller) withdrawSuccess(ctx context.Context, cluster *clusterState, after *addonv1beta1.ManagedClusterAddOn) error {
	unproven := cluster.addOn.DeepCopy()
	delete(unproven.Annotations, fleet.AnnotationRolledOut)
	if _, err := patch.Object(ctx, c.client, unproven, cluster.addOn); err != nil {
		return err
	}
	cluster.addOn = unproven
	after.Annotations, after.ResourceVersion = unproven.Annotations, unproven.ResourceVersion
	return nil
}

// forEachAddOn writes the add-ons of many clusters at once, except those that are being deleted. An error for one does not delay the
// others; it returns the first one.
func (s *snapshot) forEachAddOn(write func(*clusterState) error) error {
	var mu sync.Mutex
	var first error
	var group errgroup.Group
	group.SetLimit(writers)
	for _, cluster := range s.states {
		if cluster.addOn == nil || !cluster.addOn.DeletionTimestamp.IsZero() {
			continue
		}
		group.Go(func() error {
			err := write(cluster)
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
			return nil
		})
	}
	_ = group.Wait() // the error is in first
	return first
}

// after returns the add-on with its desired references, and the condition about them. The add-on is nil if nothing has to be written.
func (c *clusterState) after() (*addonv1beta1.ManagedClusterAddOn, metav1.Condition) {
	references, before := c.references(), c.addOn.Status.ConfigReferences
	condition := c.configured(references)
	has := meta.FindStatusCondition(c.addOn.Status.Conditions, condition.Type)
	recorded := has != nil && has.Status == condition.Status && has.Reason == condition.Reason && has.Message == condition.Message &&
		has.ObservedGeneration == c.addOn.Generation
	if recorded && equality.Semantic.DeepEqual(references, before) {
		return nil, condition
	}
	after := c.addOn.DeepCopy()
	after.Status.ConfigReferences = references
	return after, condition
}

// references returns the desired references for the status. A configuration that the add-on may not get yet is listed as pending if
// nothing is in its place: without it, a manager would deploy the add-on with defaults. An add-on that has been deployed with defaults
// keeps them until the rollout reaches it.
func (c *clusterState) references() []addonv1beta1.ConfigReference {
	have := c.addOn.Status.ConfigReferences
	switch deployed := meta.FindStatusCondition(c.addOn.Status.Conditions, fleet.ConditionManifestApplied) != nil; {
	case c.phase.GetsChange() && hasDesired(have, c.desired) && generationsSeen(have, c.desired):
		return have
	case c.phase.GetsChange():
		return merge(have, c.desired)
	case c.kept, len(c.desired) == 0, deployed && c.problem == nil:
		return have
	default:
		return announce(have, c.desired)
	}
}

func generationsSeen(have, desired []addonv1beta1.ConfigReference) bool {
	for i := range have {
		if have[i].LastObservedGeneration != desired[i].LastObservedGeneration {
			return false
		}
	}
	return true
}

// configured returns the condition that reports whether the add-on has its desired configurations. While it is not decided which these are,
// those that it has count: managers stop deploying an add-on, and forget what runs before its deletion, if the condition is False.
func (c *clusterState) configured(references []addonv1beta1.ConfigReference) metav1.Condition {
	no := func(message string) metav1.Condition {
		return metav1.Condition{
			Type: fleet.ConditionConfigured, Status: metav1.ConditionFalse, Reason: fleet.ReasonConfigurationsNotConfigured, Message: message,
		}
	}
	switch {
	case c.problem != nil:
		return no(c.problem.Error())
	case c.phase == rollout.Waiting && !c.kept:
		// The progress is in the status of the ClusterManagementAddOn only, not on each cluster that waits.
		return no(fmt.Sprintf("Waiting for the rollout: its turn has not come; the status of ClusterManagementAddOn %s tells how far it is",
			c.addOn.Name))
	case slices.ContainsFunc(references, config.IsPending):
		return no(cmp.Or(c.undecided, "The configurations are not known yet"))
	default:
		return metav1.Condition{
			Type: fleet.ConditionConfigured, Status: metav1.ConditionTrue, Reason: fleet.ReasonConfigurationsConfigured,
			Message: cmp.Or(c.undecided, "Configurations configured"),
		}
	}
}

// writeOne writes the references and what follows from them, including the progress, in one patch.
func (c *Controller) writeOne(
	ctx context.Context, s *snapshot, cluster *clusterState, after *addonv1beta1.ManagedClusterAddOn, condition metav1.Condition,
) error {
	starts := cluster.phase.GetsChange() && !hasDesired(cluster.addOn.Status.ConfigReferences, after.Status.ConfigReferences)
	if starts && isProven(after, after.Status.ConfigReferences) {
		if err := c.withdrawSuccess(ctx, cluster, after); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	progress.Set(after, condition, s.now)
	works, err := lookup.Works(ctx, c.client, after)
	if err != nil {
		return err
	}
	progress.Record(after, works, s.now)
	if starts {
		// Its deadline starts now, whatever was in progress before.
		meta.FindStatusCondition(after.Status.Conditions, fleet.ConditionProgressing).LastTransitionTime = metav1.NewTime(s.now)
	}
	before := cluster.addOn
	if _, err := patch.Status(ctx, c.client, after, before); err != nil {
		return client.IgnoreNotFound(err)
	}
	progress.RecordEvents(c.recorder, after, before)
	cluster.addOn = after
	if cluster.phase == rollout.Start && starts {
		cluster.phase = rollout.InProgress
	}
	had := meta.FindStatusCondition(before.Status.Conditions, condition.Type)
	if cluster.problem != nil && !errors.Is(cluster.problem, hashes.ErrNotYet) && (had == nil || had.Message != condition.Message) {
		c.recorder.Eventf(after, nil, corev1.EventTypeWarning, condition.Reason, "UpdateCondition", "%s", condition.Message)
	}
	return nil
}
