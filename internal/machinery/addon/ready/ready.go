// Package ready decides from what managed clusters report of Deployments and DaemonSets whether these are ready. It is pure.
package ready

import (
	"errors"
	"fmt"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Names under which values are reported.
const (
	readyReplicas      = "ReadyReplicas"          // well known
	replicas           = "Replicas"               // well known
	numberReady        = "NumberReady"            // well known
	numberDesired      = "DesiredNumberScheduled" // well known
	desiredReplicas    = "DesiredReplicas"
	observedGeneration = "ObservedGeneration"
)

// DeploymentFeedback returns the rules for the values that Deployment needs. The well-known values omit zeros: a Deployment that is
// scaled to zero would look like one that its controller has not seen.
func DeploymentFeedback() []workv1.FeedbackRule {
	return wellKnownAnd(desiredReplicas, ".spec.replicas")
}

// Deployment returns an error unless a Deployment has a ready replica, or is scaled to zero.
func Deployment(reported workv1.StatusFeedbackResult) error {
	desired, known := integer(reported, desiredReplicas)
	if !known {
		desired, known = integer(reported, replicas) // an agent may not have seen the rule for the other yet
	}
	if ready, _ := integer(reported, readyReplicas); ready >= 1 || known && desired == 0 {
		return nil
	}
	return fmt.Errorf("none of %s is ready", text.Count(int(desired), "replica"))
}

// DaemonSetFeedback returns the rules for the values that DaemonSet needs. A DaemonSet that its controller has not seen yet wants no
// pods, like one that matches no node.
func DaemonSetFeedback() []workv1.FeedbackRule {
	return wellKnownAnd(observedGeneration, ".status.observedGeneration")
}

// DaemonSet returns an error unless all pods are ready.
func DaemonSet(reported workv1.StatusFeedbackResult) error {
	if _, seen := integer(reported, observedGeneration); !seen {
		return errors.New("its controller has not seen it yet")
	}
	desired, _ := integer(reported, numberDesired)
	ready, _ := integer(reported, numberReady)
	if ready == desired {
		return nil
	}
	return fmt.Errorf("%d of %s are ready", ready, text.Count(int(desired), "pod"))
}

func wellKnownAnd(name, path string) []workv1.FeedbackRule {
	return []workv1.FeedbackRule{
		{Type: workv1.WellKnownStatusType},
		{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{{Name: name, Path: path}}},
	}
}

func integer(reported workv1.StatusFeedbackResult, name string) (int64, bool) {
	for _, value := range reported.Values {
		if value.Name == name && value.Value.Integer != nil {
			return *value.Value.Integer, true
		}
	}
	return 0, false
}
