package gitops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/placement/decided"
)

// Reasons of the conditions.
const (
	reasonPlacementFound      = "PlacementFound"
	reasonPlacementNotFound   = "PlacementNotFound"
	reasonPlacementNotDecided = "PlacementNotDecided"
	reasonInvalidPlacementRef = "InvalidPlacementRef"
	reasonArgoServerNotFound  = "ArgoServerNotFound"
	reasonRegistered          = "ClustersRegistered"
	reasonNotRegistered       = "ClustersNotRegistered"
	reasonNoGenerator         = "GeneratorNotMade"
	reasonReady               = "Ready"

	// Of a single cluster, in the condition only if it is that of all that are not registered.
	reasonNoCredential = "CredentialNotFound"
	reasonRefused      = "CredentialRefused"
	reasonNotReached   = "ClusterNotReached"
	reasonTaken        = "SecretOfAnother"
)

// obstacleError is what somebody has to do before a cluster can be registered.
type obstacleError struct {
	reason, message string
}

func (e *obstacleError) Error() string { return e.message }

// nothingToCopy reports whether a cluster has no credential, not even one that could be copied. A copy of an earlier one does not stay: it
// goes at once if the present one is refused, else after the retentionLimit.
func (e *obstacleError) nothingToCopy() bool {
	return e.reason == reasonNoCredential || e.reason == reasonRefused
}

func obstacle(reason, format string, args ...any) *obstacleError {
	return &obstacleError{reason, fmt.Sprintf(format, args...)}
}

// registration is how far the clusters of a GitOpsCluster are registered.
type registration struct {
	argoNamespace string
	// placement and argo block all clusters, or are nil.
	placement, argo *obstacleError
	passedOver      decided.PassedOver
	registered      []string
	// copies is true if some of the Secrets are copies of what somebody else keeps.
	copies  bool
	refused selected.Errors
	// generator is why what ApplicationSets need is not there, though clusters are registered.
	generator error
	// retained are the clusters that are no longer selected, and stay registered for a while.
	retained map[string]retention
	// added and removed are the clusters whose Secrets were made and deleted now.
	added, removed []string
}

func newRegistration(g *appsv1beta1.GitOpsCluster) *registration {
	return &registration{argoNamespace: argoNamespace(g), passedOver: decided.PassedOver{}, refused: selected.Errors{},
		retained: map[string]retention{}}
}

// undecided reports whether it is not known yet which clusters are selected.
func (r *registration) undecided() bool {
	return r.placement != nil && r.placement.reason == reasonPlacementNotDecided
}

// selects reports whether a cluster is one to register with the Argo CD.
func (r *registration) selects(cluster string) bool {
	_, refused := r.refused[cluster]
	return refused || slices.Contains(r.registered, cluster)
}

// hasNoCredential reports whether a cluster is selected, and there is no credential for it now.
func (r *registration) hasNoCredential(cluster string) bool {
	blocked := (*obstacleError)(nil)
	return errors.As(r.refused[cluster], &blocked) && blocked.reason == reasonNoCredential
}

// failure is what blocks the registration, nil if nothing does.
func (r *registration) failure() *obstacleError {
	switch {
	case r.placement != nil:
		return r.placement
	case r.argo != nil:
		return r.argo
	case len(r.refused) == 0 && r.generator != nil:
		return obstacle(reasonNoGenerator, "ApplicationSets cannot follow the Placement: %v", r.generator)
	case len(r.refused) == 0:
		return nil
	}
	reason := ""
	texts := make([]string, 0, len(r.refused))
	for _, cluster := range slices.Sorted(maps.Keys(r.refused)) {
		one := reasonNotRegistered
		if blocked := (*obstacleError)(nil); errors.As(r.refused[cluster], &blocked) {
			one = blocked.reason
		}
		if reason == "" {
			reason = one
		} else if reason != one {
			reason = reasonNotRegistered
		}
		texts = append(texts, cluster+": "+r.refused[cluster].Error())
	}
	return obstacle(reason, "%s not registered: %s", text.Count(len(texts), "cluster"), strings.Join(texts, "; "))
}

func (r *registration) successful() bool { return r.failure() == nil }

// report writes the status, and events about what has changed.
func (c *Controller) report(ctx context.Context, g *appsv1beta1.GitOpsCluster, r *registration) error {
	before := g.DeepCopy()
	c.setConditions(g, r)
	g.Status.Phase, g.Status.Message = appsv1beta1.GitOpsClusterSuccessful, text.Message(r.success())
	failure := r.failure()
	if failure != nil {
		g.Status.Phase, g.Status.Message = appsv1beta1.GitOpsClusterFailed, text.Message(r.withRetained(failure.message))
	}
	c.recordEvent(g, fleet.EventClusterRegistered, "Register", "known to the Argo CD in namespace "+r.argoNamespace, r.added)
	c.recordEvent(g, fleet.EventClusterDeregistered, "Deregister", "no longer known to the Argo CD in namespace "+r.argoNamespace, r.removed)
	if equality.Semantic.DeepEqual(before.Status, g.Status) {
		return nil
	}
	if failure != nil && before.Status.Message != g.Status.Message {
		note := failure.message
		if err := r.refused.AsError("Secret"); err != nil { // all of them may be more than an event may say
			note = err.Error()
		}
		c.recorder.Eventf(g, nil, corev1.EventTypeWarning, fleet.EventClusterNotRegistered, "Register", "%s", note)
	}
	g.Status.LastUpdateTime = metav1.NewTime(c.Clock.Now())
	_, err := patch.Status(ctx, c.c.Client, g, before)
	return client.IgnoreNotFound(err)
}

// success says which clusters are registered with the Argo CD.
func (r *registration) success() string {
	return r.withRetained(fmt.Sprintf("%s registered with the Argo CD in namespace %s: %s", text.Count(len(r.registered), "cluster"),
		r.argoNamespace, strings.Join(r.registered, " ")))
}

func (c *Controller) setConditions(g *appsv1beta1.GitOpsCluster, r *registration) {
	set := func(kind, reason, message string, failure *obstacleError) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: text.Message(message),
			ObservedGeneration: g.Generation, LastTransitionTime: metav1.NewTime(c.Clock.Now())}
		if failure != nil {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, failure.reason, text.Message(failure.message)
		}
		meta.SetStatusCondition(&g.Status.Conditions, condition)
	}
	found := text.Count(len(r.registered)+len(r.refused), "cluster") + " selected"
	if passedOver := r.passedOver.String(); passedOver != "" {
		found += "; " + passedOver
	}
	set(appsv1beta1.GitOpsClusterPlacementResolved, reasonPlacementFound, r.withRetained(found), r.placement)
	set(appsv1beta1.GitOpsClusterClustersRegistered, reasonRegistered, r.success(), r.failure())
	set(appsv1beta1.GitOpsClusterReady, reasonReady, r.success(), r.failure())
}

// recordEvent records one event about some clusters.
func (c *Controller) recordEvent(g *appsv1beta1.GitOpsCluster, reason, action, what string, clusters []string) {
	if len(clusters) == 0 {
		return
	}
	slices.Sort(clusters)
	c.recorder.Eventf(g, nil, corev1.EventTypeNormal, reason, action, "%s %s: %s", text.Count(len(clusters), "cluster"), what,
		text.FirstFew(clusters))
}
