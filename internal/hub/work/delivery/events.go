package delivery

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// mostHashes is how many works one request for statuses is about: brokers limit the size of messages.
const mostHashes = 1000

// receive keeps what an agent says until it is reconciled. An agent speaks for its own cluster alone.
func (c *Controller) receive(ctx context.Context, cluster string, received *cloudevents.Event) {
	if err := c.keep(ctx, cluster, received); err != nil {
		log.FromContext(ctx).Info("An event is left out", "cluster", cluster, "event", received.ID, "type", received.Type, "reason", err.Error())
	}
}

func (c *Controller) keep(ctx context.Context, cluster string, received *cloudevents.Event) error {
	eventType, err := cloudevents.ParseType(received.Type)
	switch {
	case err != nil:
		return err
	case eventType.DataType != cloudevents.ManifestBundles:
		return fmt.Errorf("it is about %s, want %s", eventType.DataType, cloudevents.ManifestBundles)
	case cluster == "" || received.Text(cloudevents.ExtensionClusterName) != cluster:
		return fmt.Errorf("it is for cluster %q, and comes from cluster %q", received.Text(cloudevents.ExtensionClusterName), cluster)
	case eventType.SubResource == cloudevents.Spec && eventType.Action == cloudevents.Resync:
		return c.keepRequest(ctx, cluster, received)
	case eventType.SubResource == cloudevents.Status &&
		(eventType.Action == cloudevents.Update || eventType.Action == cloudevents.ResyncResponse):
		return c.keepStatus(ctx, received)
	}
	return errors.New("agents report statuses and ask for specs, and nothing else")
}

func (c *Controller) keepRequest(ctx context.Context, cluster string, received *cloudevents.Event) error {
	versions := cloudevents.ResourceVersions{}
	if err := received.ReadData(&versions); err != nil {
		return err
	}
	c.mu.Lock()
	c.resyncs[cluster] = versions
	c.mu.Unlock()
	go c.enqueue(ctx, types.NamespacedName{Namespace: cluster})
	return nil
}

// keepStatus keeps the newest status of a work. The name is what the agent says; the UID is checked when the status is written.
func (c *Controller) keepStatus(ctx context.Context, received *cloudevents.Event) error {
	work, err := manifestbundle.DecodeStatus(received)
	switch {
	case err != nil:
		return err
	case work.Name == "":
		return fmt.Errorf("extension %s has no name of the work", cloudevents.ExtensionMetadata)
	}
	key := client.ObjectKeyFromObject(work)
	if err := c.client.Get(ctx, key, &workv1.ManifestWork{}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	c.mu.Lock()
	newest := !before(received, c.reported[key])
	if newest {
		c.reported[key] = received
	}
	c.mu.Unlock()
	if newest {
		go c.enqueue(ctx, key)
	}
	return nil
}

// before reports whether an event was sent before another one, which may be nil. Agents number statuses in the order of time.
func before(one, other *cloudevents.Event) bool {
	if other == nil {
		return false
	}
	first, err := one.Integer(cloudevents.ExtensionSequenceID)
	second, otherErr := other.Integer(cloudevents.ExtensionSequenceID)
	return err == nil && otherErr == nil && first < second
}

// enqueue queues a work, or the answer to a cluster.
func (c *Controller) enqueue(ctx context.Context, key types.NamespacedName) {
	work := &workv1.ManifestWork{}
	work.Namespace, work.Name = key.Namespace, key.Name
	select {
	case c.enqueued <- event.GenericEvent{Object: work}:
	case <-ctx.Done():
	}
}

// report writes the status that the agent has reported of the work. With the first one it puts the finalizer of agents on it, by which the
// work waits for its removal from the cluster, and takes that off again when the agent says that it is done. A status of another generation
// says nothing of this one.
func (c *Controller) report(ctx context.Context, work *workv1.ManifestWork) error {
	key := client.ObjectKeyFromObject(work)
	c.mu.Lock()
	received := c.reported[key]
	c.mu.Unlock()
	if received == nil {
		return nil
	}
	if err := c.write(ctx, work, received); err != nil {
		return fmt.Errorf("report on ManifestWork %s: %w", key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[key] == received {
		delete(c.reported, key)
	}
	return nil
}

func (c *Controller) write(ctx context.Context, work *workv1.ManifestWork, received *cloudevents.Event) error {
	reported, err := manifestbundle.DecodeStatus(received)
	if err != nil {
		return err
	}
	if reported.Generation > work.Generation { // the cache may be behind
		work = &workv1.ManifestWork{}
		if err := c.reader.Get(ctx, client.ObjectKeyFromObject(reported), work); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	deleting := !work.DeletionTimestamp.IsZero()
	switch {
	case reported.UID != work.UID:
		return nil
	case deleting && meta.IsStatusConditionTrue(reported.Status.Conditions, manifestbundle.ConditionDeleted):
		return patch.RemoveFinalizer(ctx, c.client, work, fleet.FinalizerManifestWorkCleanup)
	case reported.Generation != work.Generation:
		return nil
	}
	if !deleting && !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup) {
		if err := patch.AddFinalizer(ctx, c.client, work, fleet.FinalizerManifestWorkCleanup); err != nil {
			return err
		}
	}
	before := work.DeepCopy()
	work.Status = reported.Status
	if err := checkSize(work, before); err != nil {
		log.FromContext(ctx).Info("A status is left out", "cluster", work.Namespace, "work", work.Name, "reason", err.Error())
		return nil
	}
	_, err = patch.Status(ctx, c.client, work, before)
	return err
}

// checkSize applies to an agent the limit of those that write to the API, where admission knows them.
func checkSize(work, before *workv1.ManifestWork) error {
	now, err := runtime.DefaultUnstructuredConverter.ToUnstructured(work)
	old, errOld := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err := errors.Join(err, errOld); err != nil {
		return err
	}
	return admission.ValidateManifestWorkStatus(&unstructured.Unstructured{Object: now}, &unstructured.Unstructured{Object: old},
		admission.Sender{Behind: []string{work.Namespace}})
}

// answer sends to the agent of a cluster what it does not know in its present generation, what is being deleted, and what has gone. A
// restored backup sets generations back. A work that is too large to be sent holds up no other.
func (c *Controller) answer(ctx context.Context, cluster string) error {
	c.mu.Lock()
	versions, pending := c.resyncs[cluster]
	delete(c.resyncs, cluster)
	c.mu.Unlock()
	if !pending {
		return nil
	}
	if err := c.sendChanged(ctx, cluster, versions); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, again := c.resyncs[cluster]; !again {
			c.resyncs[cluster] = versions
		}
		return fmt.Errorf("answer the agent of cluster %s: %w", cluster, err)
	}
	return nil
}

func (c *Controller) sendChanged(ctx context.Context, cluster string, versions cloudevents.ResourceVersions) error {
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.InNamespace(cluster), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	has := map[types.UID]int64{}
	for _, version := range versions.Versions {
		has[types.UID(version.ResourceID)] = version.ResourceVersion
	}
	there := map[types.UID]bool{}
	for i := range works.Items {
		work := &works.Items[i]
		there[work.UID] = true
		if generation, known := has[work.UID]; known {
			if missed, err := c.isMissed(ctx, work, generation); err != nil {
				return err
			} else if !missed {
				continue
			}
		}
		err := c.send(ctx, cloudevents.ResyncResponse, work)
		if errors.Is(err, cloudevents.ErrTooLarge) {
			log.FromContext(ctx).Error(err, "A work is left out of the answer to an agent", "cluster", cluster)
		} else if err != nil {
			return err
		}
	}
	return c.sendDeleted(ctx, cluster, versions, there)
}

// isMissed reports whether an agent lacks a work that it knows in a generation. If it has not reported on that, it may have another one of
// the same number, from before a restore. If the generation is later than the present one, the API itself says whether that was restored:
// the cache may be behind.
func (c *Controller) isMissed(ctx context.Context, work *workv1.ManifestWork, known int64) (bool, error) {
	switch {
	case !work.DeletionTimestamp.IsZero(), known < work.Generation:
		return true, nil
	case known == work.Generation:
		return !manifestbundle.IsReported(work), nil
	}
	present := &metav1.PartialObjectMetadata{}
	present.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
	if err := c.reader.Get(ctx, client.ObjectKeyFromObject(work), present); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return present.UID == work.UID && present.Generation < known, nil
}

// sendDeleted sends what is not there any more, after all that is, and in the order of the request: so an agent knows the end of the
// answer.
func (c *Controller) sendDeleted(ctx context.Context, cluster string, versions cloudevents.ResourceVersions,
	there map[types.UID]bool) error {
	for _, version := range versions.Versions {
		if there[types.UID(version.ResourceID)] {
			continue
		}
		work := &workv1.ManifestWork{}
		work.Namespace, work.UID, work.Generation = cluster, types.UID(version.ResourceID), version.ResourceVersion
		if err := c.sendEvent(ctx, cloudevents.Delete, work); err != nil {
			return err
		}
	}
	return nil
}

// connected sends all agents all works again, and requests from them the statuses that the hub does not have: of what was sent before, in
// either direction, nobody knows what has arrived.
func (c *Controller) connected(ctx context.Context) {
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "The works cannot be listed to deliver them")
		return
	}
	c.mu.Lock()
	for i := range works.Items {
		delete(c.sent, client.ObjectKeyFromObject(&works.Items[i]))
	}
	c.mu.Unlock()
	for i := range works.Items {
		c.enqueue(ctx, client.ObjectKeyFromObject(&works.Items[i]))
	}
	if err := c.requestStatuses(ctx, works.Items); err != nil {
		log.FromContext(ctx).Error(err, "The agents cannot be asked for statuses; the hub has those that they report from now on")
	}
}

// askAgain sends the agent of a cluster all works, and requests from it the statuses that the hub does not have.
func (c *Controller) askAgain(ctx context.Context, cluster string) error {
	if err := c.sendChanged(ctx, cluster, cloudevents.ResourceVersions{}); err != nil {
		return err
	}
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.InNamespace(cluster), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	return c.requestStatuses(ctx, works.Items)
}

func (c *Controller) requestStatuses(ctx context.Context, works []workv1.ManifestWork) error {
	for len(works) > 0 {
		some := works[:min(mostHashes, len(works))]
		works = works[len(some):]
		hashes := cloudevents.StatusHashes{}
		for i := range some {
			hash, err := cloudevents.HashStatus(&some[i].Status)
			if err != nil {
				return err
			}
			hashes.Hashes = append(hashes.Hashes, cloudevents.StatusHash{ResourceID: string(some[i].UID), StatusHash: hash})
		}
		request := cloudevents.New(Source, cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Status,
			Action: cloudevents.Resync}, c.clock.Now())
		if err := request.SetData(hashes); err != nil {
			return err
		}
		if err := c.transport.Send(ctx, request); err != nil {
			return err
		}
	}
	return nil
}
