package placement

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// explainer implements debug.Explainer with the scheduler of the controller. While that is not running, because another replica is the
// leader or no placement was reconciled yet, it makes a scheduler for each request, one at a time: each takes the memory of a fleet, and
// all share their budgets.
type explainer struct {
	controller *Controller
	api        client.Reader
	options    scheduler.Options
	slot       chan struct{} // has an element while a request has its own scheduler
}

func newExplainer(c *Controller, api client.Reader, options scheduler.Options) *explainer {
	options.ExplainBudgets = scheduler.ExplainBudgets{}
	return &explainer{controller: c, api: api, options: options, slot: make(chan struct{}, 1)}
}

// RegisterExplainer opens the debug endpoint without the controller, for a process that explains placements and writes nothing. It reads
// the fleet for each explanation.
func RegisterExplainer(mgr ctrl.Manager, o Options) error {
	options := scheduler.Options{TieBreak: o.TieBreak, TrustDecisions: o.TrustDecisions}
	idle := New(mgr.GetClient(), nil, o.Clock, scheduler.New(options))
	return newExplainer(idle, mgr.GetAPIReader(), options).open(o.Debug, mgr)
}

// open opens the endpoint.
func (e *explainer) open(endpoint *debug.Endpoint, mgr ctrl.Manager) error {
	// This client reads from the API server: the cache of the manager may not have a Placement yet that was just created.
	api, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	reviews, err := authorizationv1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	return endpoint.Open(api, reviews, e)
}

// Explain explains what a placement selects. The placement need not exist.
func (e *explainer) Explain(ctx context.Context, placement *clusterv1beta1.Placement) (*scheduler.Explanation, error) {
	if e.controller.restored.Load() {
		return e.explainWith(ctx, e.controller.scheduler, placement)
	}
	select {
	case e.slot <- struct{}{}:
		defer func() { <-e.slot }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s, err := e.schedulerFromAPI(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the fleet: %w", err)
	}
	return e.explainWith(ctx, s, placement)
}

func (e *explainer) explainWith(ctx context.Context, s *scheduler.Scheduler, placement *clusterv1beta1.Placement,
) (*scheduler.Explanation, error) {
	s.AdvanceBudget(e.controller.clock.Now())
	explanation := s.Explain(ctx, placement)
	return explanation, ctx.Err()
}

// schedulerFromAPI returns a scheduler with all objects that the API has now.
func (e *explainer) schedulerFromAPI(ctx context.Context) (*scheduler.Scheduler, error) {
	s := scheduler.New(e.options)
	s.Advance(e.controller.clock.Now())
	var (
		clusters   clusterv1.ManagedClusterList
		sets       clusterv1beta2.ManagedClusterSetList
		bindings   clusterv1beta2.ManagedClusterSetBindingList
		scores     clusterv1alpha1.AddOnPlacementScoreList
		placements clusterv1beta1.PlacementList
	)
	for _, list := range []client.ObjectList{&clusters, &sets, &bindings, &scores, &placements} {
		if err := e.api.List(ctx, list); err != nil {
			return nil, err
		}
	}
	setAll(clusters.Items, s.SetCluster)
	setAll(sets.Items, s.SetClusterSet)
	setAll(bindings.Items, s.SetBinding)
	setAll(scores.Items, s.SetScore)
	setAll(placements.Items, s.SetPlacement)
	return s, restore(ctx, e.api, s)
}

func setAll[T any](objects []T, set func(*T) []scheduler.Key) {
	for i := range objects {
		set(&objects[i])
	}
}
