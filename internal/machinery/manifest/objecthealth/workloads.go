package objecthealth

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// onDelete is the update strategy under which pods become new only when users delete the old ones.
const onDelete = "OnDelete"

func deploymentHealth(o reading) Health {
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	if c := o.condition("Progressing"); c.reason == "ProgressDeadlineExceeded" {
		return failed("%s", c)
	}
	if c := o.condition("ReplicaFailure"); c.isTrue() {
		return failed("%s", c)
	}
	desired, all := o.desired(), o.count("status", "replicas")
	updated, available := o.count("status", "updatedReplicas"), o.count("status", "availableReplicas")
	switch {
	case o.isTrue("spec", "paused"): // as a suspended Job: it requests no rollout, and waiting changes nothing
		return current("it is paused; %d of %d replicas are available", available, desired)
	case updated < desired:
		return inProgress("%d of %d replicas are updated", updated, desired)
	case all > updated:
		return inProgress("%d old replicas are still there", all-updated)
	case available < desired:
		return inProgress("%d of %d replicas are available", available, desired)
	}
	return current("%d of %d replicas are available", available, desired)
}

func statefulSetHealth(o reading) Health {
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	desired, ready := o.desired(), o.count("status", "readyReplicas")
	if ready < desired {
		return inProgress("%d of %d replicas are ready", ready, desired)
	}
	if o.text("spec", "updateStrategy", "type") == onDelete {
		return current("%d of %d replicas are ready", ready, desired)
	}
	// Replicas below the partition stay as they are.
	updated, toUpdate := o.count("status", "updatedReplicas"), max(0, desired-o.count("spec", "updateStrategy", "rollingUpdate", "partition"))
	switch {
	case o.text("status", "updateRevision") != o.text("status", "currentRevision") && updated < toUpdate:
		return inProgress("%d of %d replicas are updated", updated, toUpdate)
	case o.count("status", "replicas") > desired:
		return inProgress("%d replicas too many are still there", o.count("status", "replicas")-desired)
	}
	return current("%d of %d replicas are ready", ready, desired)
}

func daemonSetHealth(o reading) Health {
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	desired, available := o.count("status", "desiredNumberScheduled"), o.count("status", "numberAvailable")
	updated := o.count("status", "updatedNumberScheduled")
	switch {
	case o.text("spec", "updateStrategy", "type") != onDelete && updated < desired:
		return inProgress("the pods of %d of %d nodes are updated", updated, desired)
	case available < desired:
		return inProgress("the pods of %d of %d nodes are available", available, desired)
	}
	return current("the pods of %d of %d nodes are available", available, desired)
}

func replicaSetHealth(o reading) Health {
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	if c := o.condition("ReplicaFailure"); c.isTrue() {
		return failed("%s", c)
	}
	desired, all, available := o.desired(), o.count("status", "replicas"), o.count("status", "availableReplicas")
	switch {
	case available < desired:
		return inProgress("%d of %d replicas are available", available, desired)
	case all > desired:
		return inProgress("%d replicas too many are still there", all-desired)
	}
	return current("%d of %d replicas are available", available, desired)
}

// HasEnded reports whether an object is a Job that is complete or has failed.
func HasEnded(object *unstructured.Unstructured) bool {
	o := reading{object.Object}
	return object.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"} &&
		(o.condition("Complete").isTrue() || o.condition("Failed").isTrue())
}

// jobHealth calls a Job in progress until it has completed: what comes after a migration must wait for its end.
func jobHealth(o reading) Health {
	if c := o.condition("Failed"); c.isTrue() {
		return failed("%s", c)
	}
	if o.condition("Complete").isTrue() {
		return current("the job is complete")
	}
	if c := o.condition("Suspended"); c.isTrue() {
		return current("the job is suspended")
	}
	return inProgress("the job is not complete: %d pods are active, %d succeeded, %d failed",
		o.count("status", "active"), o.count("status", "succeeded"), o.count("status", "failed"))
}

func podHealth(o reading) Health {
	switch phase := o.text("status", "phase"); phase {
	case "Succeeded":
		return current("the pod has succeeded")
	case "Failed":
		return failed("the pod has failed: %s", cmp.Or(o.text("status", "message"), o.text("status", "reason"),
			"its containers ended with errors"))
	}
	if o.condition("Ready").isTrue() {
		return current("the pod is ready")
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, container := range o.list("status", list) {
			if reason := container.text("state", "waiting", "reason"); hopeless[reason] {
				return failed("the container %s waits: %s", container.text("name"), cmp.Or(container.text("state", "waiting", "message"), reason))
			}
		}
	}
	if c := o.condition("PodScheduled"); c.isFalse() {
		return inProgress("the pod is not scheduled: %s", c)
	}
	return inProgress("the pod is not ready")
}

// hopeless are reasons for which containers wait until users change something.
var hopeless = map[string]bool{
	"CrashLoopBackOff": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
}
