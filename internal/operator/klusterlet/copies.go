package klusterlet

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// copiesRequest stands for all copies, which are made in one reconcile.
const copiesRequest = "copies"

// copies gives the namespaces of the agents of add-ons what their pods need from the namespace of the operator: the Secret to pull images
// with, and the TLS profile. A namespace that is no longer marked keeps them.
type copies struct{ *Controller }

// Reconcile implements reconcile.Reconciler.
func (c copies) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !c.management.WaitForCacheSync(ctx) {
		return ctrl.Result{}, errors.New("what is installed is not known yet")
	}
	secret, err := c.secrets.get(ctx, c.Namespace, fleet.SecretImagePullCredentials)
	if err != nil {
		return ctrl.Result{}, err
	}
	profile, err := c.tlsProfile(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	namespaces := &corev1.NamespaceList{}
	if err := c.client.List(ctx, namespaces); err != nil {
		return ctrl.Result{}, err
	}
	var objects []client.Object
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		if namespace.DeletionTimestamp != nil || namespace.Name == c.Namespace {
			continue
		}
		if secret != nil {
			objects = append(objects, copyOfSecret(secret, namespace.Name))
		}
		if profile != nil {
			objects = append(objects, copyOfConfigMap(profile, namespace.Name))
		}
	}
	return ctrl.Result{}, c.management.Apply(ctx, sharedInstallation, objects...)
}

func registerCopies(mgr ctrl.Manager, c *Controller, queue *queue) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{requestOf(copiesRequest)}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("operator-klusterlet-copies").
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, one).
		WatchesRawSource(source.Func(queue.start)).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(copies{c}))
}
