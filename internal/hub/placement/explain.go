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

// explainer is a debug.Explainer. It asks the scheduler of the controller. Where that knows nothing, because another replica
// of the hub leads or nobody has placed anything yet, it asks one that it makes for the occasion.
type explainer struct {
	controller *Controller
	api        client.Reader
	options    scheduler.Options
}

// open lets the endpoint answer with what the explainer says.
func (e *explainer) open(endpoint *debug.Endpoint, mgr ctrl.Manager) error {
	// What was saved a moment ago is there at once, other than in the manager's cache.
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

// Explain tells why a placement selects what it does. It need not exist.
func (e *explainer) Explain(ctx context.Context, placement *clusterv1beta1.Placement) (*scheduler.Explanation, error) {
	if e.controller.restored.Load() {
		e.controller.scheduler.AdvanceBudget(e.controller.clock.Now())
		return e.controller.scheduler.Explain(placement), nil
	}
	s, err := e.schedulerFromAPI(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the fleet: %w", err)
	}
	return s.Explain(placement), nil
}

// schedulerFromAPI is a scheduler that knows what the API says now.
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
