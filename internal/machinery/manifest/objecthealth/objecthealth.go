// Package objecthealth reads from an object whether its desired state is reached, in progress, or failed. It is pure: the object is
// all it reads, never the time.
//
// The kinds of Kubernetes that do something in the cluster are known one by one. Of custom resources the conventions are known:
// status.observedGeneration, and the conditions Ready, Reconciling and Stalled. What only has to exist, such as a ConfigMap, is
// not evaluated at all.
//
// It is not kstatus, which calls a Job Current as soon as it runs, and a Pod that cannot be scheduled failed by the clock: what waits for a
// Job would go on before its end, and a status would change without an event of the object.
package objecthealth

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Phase is how far an object has come.
type Phase string

const (
	// Current objects are as their spec says.
	Current Phase = "Current"
	// InProgress objects are on their way there.
	InProgress Phase = "InProgress"
	// Failed objects are not, and do not get there by waiting.
	Failed Phase = "Failed"
)

// Health of an object. The message says what it is waiting for or why it failed, in one line.
type Health struct {
	Phase   Phase
	Message string
}

// Known reports whether the health of a kind depends on more than that the object exists.
func Known(kind schema.GroupKind) bool {
	return kinds[kind] != nil || isCustom(kind)
}

// Of is the health of an object of a known kind.
func Of(object *unstructured.Unstructured) Health {
	o := reading{object.Object}
	if deleted := object.GetDeletionTimestamp(); deleted != nil {
		return inProgress("it is being deleted since %s", deleted.UTC().Format("2006-01-02T15:04:05Z"))
	}
	if observed, ok := o.number("status", "observedGeneration"); ok && observed < object.GetGeneration() {
		return inProgress("its controller has not seen the latest change yet")
	}
	if of := kinds[object.GroupVersionKind().GroupKind()]; of != nil {
		return of(o)
	}
	return customHealth(o)
}

// kinds that are known one by one.
var kinds = map[schema.GroupKind]func(reading) Health{
	{Group: "apps", Kind: "Deployment"}:                               deploymentHealth,
	{Group: "apps", Kind: "StatefulSet"}:                              statefulSetHealth,
	{Group: "apps", Kind: "DaemonSet"}:                                daemonSetHealth,
	{Group: "apps", Kind: "ReplicaSet"}:                               replicaSetHealth,
	{Group: "batch", Kind: "Job"}:                                     jobHealth,
	{Group: "batch", Kind: "CronJob"}:                                 existing,
	{Kind: "Pod"}:                                                     podHealth,
	{Kind: "Service"}:                                                 serviceHealth,
	{Kind: "PersistentVolumeClaim"}:                                   claimHealth,
	{Kind: "Namespace"}:                                               namespaceHealth,
	{Group: "networking.k8s.io", Kind: "Ingress"}:                     existing,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: definitionHealth,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             apiServiceHealth,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:           autoscalerHealth,
	{Group: "policy", Kind: "PodDisruptionBudget"}:                    budgetHealth,
}

// isCustom reports whether the kind belongs to neither Kubernetes itself nor an API whose objects only have to exist.
func isCustom(kind schema.GroupKind) bool {
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// customHealth goes by the conventions of custom resources.
func customHealth(o reading) Health {
	if c := o.condition("Stalled"); c.isTrue() {
		return failed("%s", c)
	}
	if c := o.condition("Reconciling"); c.isTrue() {
		return inProgress("%s", c)
	}
	if c := o.condition("Ready"); c.exists() && !c.isTrue() {
		return inProgress("it is not ready: %s", c)
	}
	return current("it is there")
}

// existing is the health of kinds that are Current when they exist: a CronJob waits for its time, and whether an Ingress ever has
// an address depends on its controller.
func existing(reading) Health { return current("it is there") }

func current(format string, args ...any) Health {
	return Health{Phase: Current, Message: fmt.Sprintf(format, args...)}
}

func inProgress(format string, args ...any) Health {
	return Health{Phase: InProgress, Message: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) Health {
	return Health{Phase: Failed, Message: fmt.Sprintf(format, args...)}
}
