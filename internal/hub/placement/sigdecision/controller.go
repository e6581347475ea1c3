// Package sigdecision shows each PlacementDecision of the hub as one of the Kubernetes SIG Multicluster, of the same name, for tools that
// know clusters by their ClusterProfiles.
package sigdecision

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	workers = 5
	// schedulerName is the name of the hub, as in ClusterProfiles.
	schedulerName = "open-cluster-management"

	kindDecision = "PlacementDecision"
)

// Labels of the API of the SIG.
const (
	labelDecisionKey   = "multicluster.x-k8s.io/decision-key"
	labelDecisionIndex = "multicluster.x-k8s.io/decision-index"
	labelPlacementKey  = "multicluster.x-k8s.io/placement-key"
)

// Controller reconciles PlacementDecisions.
type Controller struct{ client client.Client }

// New returns a Controller that works through the client.
func New(c client.Client) *Controller { return &Controller{c} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("placement-sigdecision-sync").
		For(&clusterv1beta1.PlacementDecision{}).
		Watches(&multiclusterv1alpha1.PlacementDecision{}, &handler.EnqueueRequestForObject{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient())))
}

// Reconcile brings the decision of the SIG in line with the one of the same name.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	decision := &clusterv1beta1.PlacementDecision{}
	err := c.client.Get(ctx, req.NamespacedName, decision)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get PlacementDecision %s: %w", req, err)
	}
	shown := &multiclusterv1alpha1.PlacementDecision{}
	missing := c.client.Get(ctx, req.NamespacedName, shown)
	if client.IgnoreNotFound(missing) != nil {
		return ctrl.Result{}, fmt.Errorf("get the PlacementDecision %s of the SIG: %w", req, missing)
	}
	exists := missing == nil
	desired := err == nil && decision.DeletionTimestamp.IsZero() && decision.Labels[fleet.LabelPlacement] != ""
	switch {
	case !exists && desired:
		shown.Namespace, shown.Name = decision.Namespace, decision.Name
		show(shown, decision)
		err := c.client.Create(ctx, shown)
		if apierrors.HasStatusCause(err, "NamespaceTerminating") {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	case !exists, !isOurs(shown):
		return ctrl.Result{}, nil
	case !desired:
		return ctrl.Result{}, client.IgnoreNotFound(c.client.Delete(ctx, shown, client.Preconditions{UID: &shown.UID}))
	}
	before := shown.DeepCopy()
	show(shown, decision)
	_, err = patch.Object(ctx, c.client, shown, before)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// isOurs reports whether a decision of the SIG was made for one of the hub, and by nobody else.
func isOurs(shown *multiclusterv1alpha1.PlacementDecision) bool {
	owner := metav1.GetControllerOfNoCopy(shown)
	return owner != nil && owner.Kind == kindDecision && owner.Name == shown.Name &&
		strings.HasPrefix(owner.APIVersion, clusterv1beta1.GroupVersion.Group+"/")
}

// show sets what a decision of the SIG has of one of the hub.
func show(shown *multiclusterv1alpha1.PlacementDecision, decision *clusterv1beta1.PlacementDecision) {
	placement := decision.Labels[fleet.LabelPlacement]
	if shown.Labels == nil {
		shown.Labels = map[string]string{}
	}
	maps.Copy(shown.Labels, map[string]string{
		labelDecisionKey: placement, labelPlacementKey: placement, labelDecisionIndex: strconv.Itoa(index(decision.Name)),
	})
	isController := true
	shown.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1beta1.GroupVersion.String(), Kind: kindDecision, Name: decision.Name,
		UID: decision.UID, Controller: &isController}}
	shown.SchedulerName = schedulerName
	shown.Decisions = make([]multiclusterv1alpha1.ClusterDecision, 0, len(decision.Status.Decisions))
	for _, chosen := range decision.Status.Decisions {
		shown.Decisions = append(shown.Decisions, multiclusterv1alpha1.ClusterDecision{
			ClusterProfileRef: multiclusterv1alpha1.ClusterProfileReference{Namespace: decision.Namespace, Name: chosen.ClusterName},
			Reason:            chosen.Reason,
		})
	}
}

// index is the place of a decision among those of its placement, from 0: its name ends in a number from 1.
func index(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	if err != nil || n < 1 {
		return 0
	}
	return n - 1
}
