package builtin

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Catalogue keeps the ClusterManagementAddOns of add-ons that users find on a new hub.
type Catalogue struct {
	client client.Client
	names  []string
}

// NewCatalogue returns a Catalogue of the add-ons with these names.
func NewCatalogue(c client.Client, names []string) *Catalogue {
	return &Catalogue{client: c, names: names}
}

func (c *Catalogue) register(mgr ctrl.Manager) error {
	// Add-ons that never existed have no event.
	atStart := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for _, name := range c.names {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("addon-clustermanagementaddon-builtin").
		For(&addonv1beta1.ClusterManagementAddOn{}, builder.WithPredicates(gone())).
		WatchesRawSource(atStart).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

func gone() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}

// Reconcile creates a ClusterManagementAddOn that does not exist. One that is there may be that of another manager, and stays.
func (c *Catalogue) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !slices.Contains(c.names, req.Name) {
		return ctrl.Result{}, nil
	}
	err := c.client.Get(ctx, req.NamespacedName, &addonv1beta1.ClusterManagementAddOn{})
	if err == nil {
		return ctrl.Result{}, nil
	}
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("get ClusterManagementAddOn %s: %w", req.Name, err)
	}
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{
		Name: req.Name, Annotations: map[string]string{fleet.AnnotationBuiltIn: fleet.LabelTrue},
	}}
	entry.Spec.AddOnMeta.DisplayName, entry.Spec.AddOnMeta.Description = addOns[req.Name].displayName, addOns[req.Name].description
	if err := c.client.Create(ctx, entry); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, fmt.Errorf("create ClusterManagementAddOn %s: %w", req.Name, err)
	}
	return ctrl.Result{}, nil
}
