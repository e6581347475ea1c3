// Package gitops makes clusters known to Argo CD: for each cluster that the Placement of a GitOpsCluster selects, it keeps a Secret in the
// namespace of the Argo CD, of the kind that Argo CD has for the clusters it deploys to.
//
// Whoever may write GitOpsClusters in a namespace has credentials of clusters copied. So a cluster counts only if one of its sets is bound
// in that namespace, and in that of the Argo CD if it is another one: nobody's clusters get into a namespace to which they are not given.
package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/placement/decided"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
	"github.com/capstan-io/capstan/internal/rollout"
)

const (
	workers = 5
	// retryInterval is when what blocks a registration, and what is copied, is read again, as not all of it is watched.
	retryInterval = time.Minute

	kindPlacement = "Placement"
)

// Options configure the controller.
type Options struct {
	// Access is where clusters are reached through the hub.
	Access accessprovider.Options
	// TrustDecisions makes the controller act on all clusters that PlacementDecisions name, without checking them against the bindings.
	TrustDecisions bool
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Clients are those of the controller.
type Clients struct {
	// Client has the objects of the hub, from a cache.
	client.Client
	// Live reads and writes what is in no cache.
	Live client.Client
	// Tokens reads the Secrets of ManagedServiceAccounts.
	Tokens client.Reader
	// Secrets reads and writes the Secrets of clusters of all Argo CDs. It has to see what it has written.
	Secrets client.Client
	// Applications returns where Applications are read; nil while the hub has not the kind.
	Applications func() client.Reader
}

// Controller reconciles GitOpsClusters.
type Controller struct {
	Options
	c        Clients
	recorder events.EventRecorder
	selected selected.Reader
	absences *debounce.Tracker[types.NamespacedName, types.NamespacedName]
}

// New returns a Controller that works through the clients.
func New(c Clients, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{
		Options: o, c: c, recorder: recorder, selected: selected.Reader{Client: c.Client, Trust: o.TrustDecisions},
		absences: debounce.NewTracker[types.NamespacedName, types.NamespacedName](),
	}
}

// Reconcile has a Secret for each cluster that the Placement of a GitOpsCluster selects, and none of its own for others.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &appsv1beta1.GitOpsCluster{}
	err := c.c.Get(ctx, req.NamespacedName, g)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get GitOpsCluster %s: %w", req, err)
	}
	if err != nil || !g.DeletionTimestamp.IsZero() {
		c.absences.Forget(req.NamespacedName)
		return ctrl.Result{}, c.removeAll(ctx, req.NamespacedName)
	}
	r := newRegistration(g)
	wait, err := c.register(ctx, g, r)
	if retry.IsConflict(err) { // somebody else has written meanwhile, which is no failure: the status says what was before
		return ctrl.Result{}, err
	}
	if err := errors.Join(err, c.report(ctx, g, r)); err != nil {
		return ctrl.Result{}, err
	}
	if !r.successful() || r.copies {
		wait = retry.Soonest(wait, retryInterval)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// argoNamespace is the namespace of the Argo CD.
func argoNamespace(g *appsv1beta1.GitOpsCluster) string {
	if named := g.Spec.ArgoServer.ArgoNamespace; named != "" {
		return named
	}
	return g.Namespace
}

// register brings the Secrets in line with the decisions, as far as the registration then says, and returns when that is due again.
func (c *Controller) register(ctx context.Context, g *appsv1beta1.GitOpsCluster, r *registration) (wait time.Duration, err error) {
	if r.placement = checkRef(g); r.placement != nil {
		return 0, c.removeRevoked(ctx, g, r)
	}
	clusters, err := c.clusters(ctx, g, r)
	if err != nil {
		return 0, err
	}
	if r.argo, err = c.verifyArgo(ctx, g); err != nil || r.argo != nil || r.undecided() {
		return 0, errors.Join(err, c.removeRevoked(ctx, g, r))
	}
	index, err := c.indexSecrets(ctx, argoNamespace(g))
	if err != nil {
		return 0, err
	}
	kept := map[string]bool{}
	var failed []error
	for _, cluster := range clusters {
		names, err := c.ensureSecret(ctx, g, cluster, index, r)
		for _, name := range names {
			kept[name] = true
		}
		if err == nil {
			r.registered = append(r.registered, cluster)
			continue
		}
		r.refused[cluster] = err
		if !errors.As(err, new(*obstacleError)) {
			failed = append(failed, fmt.Errorf("register cluster %s: %w", cluster, err))
		}
	}
	wait, err = c.removeOthers(ctx, g, kept, r)
	// Where no cluster is registered, no set need be bound, and whoever writes the GitOpsCluster may have no say in the namespace.
	if len(r.registered) > 0 {
		r.generator = c.ensureGenerator(ctx, argoNamespace(g))
	}
	return wait, errors.Join(append(failed, err, r.generator)...)
}

// checkRef says why a reference can lead to no Placement.
func checkRef(g *appsv1beta1.GitOpsCluster) *obstacleError {
	invalid := func(format string, args ...any) *obstacleError {
		return obstacle(reasonInvalidPlacementRef, format, args...)
	}
	ref := g.Spec.PlacementRef
	switch {
	case ref == nil || ref.Name == "":
		return invalid("spec.placementRef.name is empty; name a Placement in the namespace of the GitOpsCluster")
	case ref.Kind != "" && ref.Kind != kindPlacement:
		return invalid("spec.placementRef.kind is %q; it has to be %s", ref.Kind, kindPlacement)
	case ref.APIVersion != "" && !strings.HasPrefix(ref.APIVersion, clusterv1beta1.GroupVersion.Group+"/"):
		return invalid("spec.placementRef.apiVersion is %q; it has to be %s", ref.APIVersion, clusterv1beta1.GroupVersion)
	case ref.Namespace != "" && ref.Namespace != g.Namespace:
		return invalid("spec.placementRef.namespace is %q; it has to be %s, the namespace of the GitOpsCluster", ref.Namespace, g.Namespace)
	}
	return nil
}

// clusters are those to register with the Argo CD. Without the Placement, these are none, and before it has decided, none are known.
func (c *Controller) clusters(ctx context.Context, g *appsv1beta1.GitOpsCluster, r *registration) (names []string, err error) {
	key, placement := client.ObjectKey{Namespace: g.Namespace, Name: g.Spec.PlacementRef.Name}, &clusterv1beta1.Placement{}
	if err := c.c.Get(ctx, key, placement); apierrors.IsNotFound(err) {
		r.placement = obstacle(reasonPlacementNotFound, "There is no Placement %s in namespace %s", key.Name, key.Namespace)
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Placement %s: %w", key, err)
	}
	decisions, err := c.decisions(ctx, g)
	if err != nil {
		return nil, err
	}
	if !decided.All(placement, decisions) {
		r.placement = obstacle(reasonPlacementNotDecided, "Placement %s has not been decided on yet; its conditions say why, if that lasts", key)
		return nil, nil
	}
	for _, namespace := range []string{argoNamespace(g), g.Namespace} {
		_, passedOver, err := c.selected.Clusters(ctx, namespace, decisions)
		if err != nil {
			return nil, err
		}
		for cluster, reason := range passedOver {
			if r.passedOver[cluster] == "" || !passedOver.Keeps(cluster) {
				r.passedOver[cluster] = reason
			}
		}
	}
	for _, cluster := range rollout.Selected(decisions) {
		if r.passedOver[cluster.Name] == "" {
			names = append(names, cluster.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// decisions are those of the Placement that a GitOpsCluster names.
func (c *Controller) decisions(ctx context.Context, g *appsv1beta1.GitOpsCluster) ([]clusterv1beta1.PlacementDecision, error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	placement := g.Spec.PlacementRef.Name
	err := c.c.List(ctx, list, client.InNamespace(g.Namespace), client.MatchingLabels{fleet.LabelPlacement: placement})
	if err != nil {
		return nil, fmt.Errorf("list the decisions of Placement %s/%s: %w", g.Namespace, placement, err)
	}
	return list.Items, nil
}

// verifyArgo checks that the namespace has the server of an Argo CD. An API without Services, as that of a standalone hub, has nothing to
// check.
func (c *Controller) verifyArgo(ctx context.Context, g *appsv1beta1.GitOpsCluster) (*obstacleError, error) {
	if g.Annotations[fleet.AnnotationSkipArgoVerify] == fleet.LabelTrue {
		return nil, nil
	}
	namespace := argoNamespace(g)
	list := &corev1.ServiceList{}
	server := client.MatchingLabels{"app.kubernetes.io/component": "server", "app.kubernetes.io/part-of": "argocd"}
	err := c.c.Live.List(ctx, list, client.InNamespace(namespace), server, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for Argo CD in namespace %s: %w", namespace, err)
	case len(list.Items) > 0:
		return nil, nil
	}
	return obstacle(reasonArgoServerNotFound, "There is no Argo CD in namespace %s: no Service has the labels "+
		"app.kubernetes.io/component=server and app.kubernetes.io/part-of=argocd; set spec.argoServer.argoNamespace to its namespace, or the "+
		"annotation %s to %q", namespace, fleet.AnnotationSkipArgoVerify, fleet.LabelTrue), nil
}
