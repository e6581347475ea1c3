package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
)

// report writes the status of a Klusterlet.
type report struct {
	klusterlet *operatorv1.Klusterlet
	// advice says what a user may do though all is applied; empty if nothing.
	advice string
}

func newReport(k *operatorv1.Klusterlet) *report {
	k.Status.ObservedGeneration = k.Generation
	return &report{klusterlet: k}
}

func (r *report) set(condition metav1.Condition) {
	condition.ObservedGeneration, condition.Message = r.klusterlet.Generation, text.Stable(condition.Message)
	meta.SetStatusCondition(&r.klusterlet.Status.Conditions, condition)
}

// gates reports whether the feature gates exist.
func (r *report) gates(l layout) { r.set(frame.ValidFeatureGates(l.registrationGates, l.workGates)) }

// failed says why the Klusterlet is not applied, and returns that.
func (r *report) failed(reason string, err error) error {
	r.set(metav1.Condition{Type: fleet.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: err.Error()})
	return err
}

// prepared reports whether a hosted Klusterlet can be applied.
func (r *report) prepared(err error) {
	condition := metav1.Condition{Type: fleet.ConditionReadyToApply, Status: metav1.ConditionTrue, Reason: fleet.ReasonKlusterletPrepared,
		Message: "The managed cluster can be reached with the kubeconfig of Secret " + fleet.SecretExternalManagedKubeconfig}
	if err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, fleet.ReasonKlusterletPrepareFailed, err.Error()
	}
	r.set(condition)
}

// notHosted removes what is only said of hosted Klusterlets.
func (r *report) notHosted() {
	meta.RemoveStatusCondition(&r.klusterlet.Status.Conditions, fleet.ConditionReadyToApply)
}

// connection reports the connection to the hub, once something is known about it. It logs when the agent starts to fail, and when it
// reaches the hub again.
func (r *report) connection(ctx context.Context, condition *metav1.Condition) {
	if condition == nil {
		return
	}
	failed := hubaccess.AgentFails(meta.FindStatusCondition(r.klusterlet.Status.Conditions, condition.Type))
	switch fails := hubaccess.AgentFails(condition); {
	case fails && !failed:
		log.FromContext(ctx).Error(errors.New(condition.Message), "The agent does not reach its hub", "klusterlet", r.klusterlet.Name)
	case failed && !fails:
		log.FromContext(ctx).Info("The agent reaches its hub again", "klusterlet", r.klusterlet.Name)
	}
	r.set(*condition)
}

// applied says that all stages have succeeded. What is kept of where the agent ran before belongs to the Klusterlet, too.
func (r *report) applied(scheme *runtime.Scheme, p plan, before former) error {
	objects := slices.Concat(p.shared, p.managed, p.management, p.deployments, before.kept())
	for _, crd := range p.crds {
		objects = append(objects, crd)
	}
	related, err := frame.Related(scheme, objects...)
	if err != nil {
		return err
	}
	r.klusterlet.Status.RelatedResources = related
	r.klusterlet.Status.Generations = frame.Generations(p.deployments...)
	message := "The agent is applied"
	if r.advice != "" {
		message += "; " + r.advice
	}
	r.set(metav1.Condition{Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, Reason: fleet.ReasonKlusterletApplied,
		Message: message})
	return nil
}

// deployments reports how the Deployments of the agents do. get reads one of them.
func (r *report) deployments(ctx context.Context, reader client.Reader, get frame.GetDeployment, l layout) {
	var states []deploymentState
	for _, name := range l.deploymentNames() {
		states = append(states, stateOf(ctx, reader, get, types.NamespacedName{Namespace: l.agents, Name: name}))
	}
	r.set(degraded(fleet.ConditionRegistrationDesiredDegraded, states[0]))
	r.set(degraded(fleet.ConditionWorkDesiredDegraded, states[len(states)-1]))
	r.set(available(states))
}

// deploymentState is how a Deployment does.
type deploymentState struct {
	key types.NamespacedName
	// err is why it could not be read.
	err error
	// desired and available are numbers of pods, and problem is why some are missing, or are former ones.
	desired, available int32
	problem            string
}

func stateOf(ctx context.Context, reader client.Reader, get frame.GetDeployment, key types.NamespacedName) deploymentState {
	deployment, err := get(ctx, key)
	if err != nil {
		return deploymentState{key: key, err: err}
	}
	return deploymentState{key: key, desired: ptr.Deref(deployment.Spec.Replicas, 1), available: deployment.Status.AvailableReplicas,
		problem: frame.RolloutProblem(ctx, reader, deployment)}
}

func degraded(kind string, state deploymentState) metav1.Condition {
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: fleet.ReasonDeploymentsFunctional,
		Message: fmt.Sprintf("All %d pods of Deployment %s are available", state.desired, state.key)}
	switch {
	case state.err != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, fleet.ReasonGetDeploymentFailed, state.err.Error()
	case state.problem != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, fleet.ReasonUnavailablePods, state.problem
	case state.desired == 0:
		condition.Message = noPods(state.key)
	}
	return condition
}

// noPods says why the work agent has no pods.
func noPods(key types.NamespacedName) string {
	return fmt.Sprintf("Deployment %s has no pods until the agent has joined the hub: see the condition %s", key,
		fleet.ConditionHubConnectionDegraded)
}

func available(states []deploymentState) metav1.Condition {
	condition := metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, Reason: fleet.ReasonKlusterletAvailable,
		Message: "The agent runs"}
	var unknown, without []string
	for _, state := range states {
		switch {
		case state.err != nil:
			unknown = append(unknown, state.err.Error())
		case state.desired == 0:
			without = append(without, noPods(state.key))
		case state.available == 0:
			without = append(without, state.problem)
		}
	}
	switch {
	case len(unknown) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, fleet.ReasonGetDeploymentFailed
		condition.Message = strings.Join(unknown, "; ")
	case len(without) > 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, fleet.ReasonNoAvailablePods, strings.Join(without, "; ")
	}
	return condition
}
