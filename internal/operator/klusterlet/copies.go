package klusterlet

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// copiesRequest stands for all copies, which are made in one reconcile.
const copiesRequest = "copies"

// copies gives the namespaces of the agents of add-ons what their pods need from the namespace of the operator: the Secret to pull images
// with, and the TLS profile. What is no longer there is deleted in these namespaces, too. A namespace that is no longer marked keeps them.
type copies struct{ *Controller }

// Reconcile implements reconcile.Reconciler.
func (c copies) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := c.CheckSynced(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, c.copyAll(ctx)
}

// copyAll makes the copies, and deletes those of what is gone. A Secret that may not be read may be there.
func (c copies) copyAll(ctx context.Context) error {
	secret, err := c.Secrets.Get(ctx, c.Namespace, c.PullSecret)
	secretGone := secret == nil && err == nil
	if err != nil && !apiclient.Denied(err) {
		return err
	}
	profile, err := c.TLSProfile(ctx)
	if err != nil {
		return err
	}
	marked := &corev1.NamespaceList{}
	if err := c.Client.List(ctx, marked, client.MatchingLabels{fleet.LabelAddOnAgentNamespace: "true"}); err != nil {
		return err
	}
	if err := c.Management.Apply(ctx, sharedInstallation, copiesFor(c.Namespace, marked.Items, secret, profile)...); err != nil {
		return err
	}
	if secretGone {
		err = c.deleteCopies(ctx, secrets, c.PullSecret, marked.Items)
	}
	if profile == nil {
		err = errors.Join(err, c.deleteCopies(ctx, configMaps, fleet.ConfigMapTLSProfile, marked.Items))
	}
	return err
}

// deleteCopies deletes the copy with a name in each of the namespaces. These are few, and their events many: listing all objects of the
// kind would cost more.
func (c copies) deleteCopies(ctx context.Context, kind schema.GroupVersionKind, name string, namespaces []corev1.Namespace) error {
	var failures []error
	for i := range namespaces {
		made := &metav1.PartialObjectMetadata{}
		made.SetGroupVersionKind(kind)
		err := c.Management.Client.Get(ctx, client.ObjectKey{Namespace: namespaces[i].Name, Name: name}, made)
		if installation, ours := made.Labels[c.Management.Label]; err == nil && ours && installation == sharedInstallation {
			err = c.Management.Delete(ctx, made)
		}
		if !apiclient.Denied(err) {
			failures = append(failures, client.IgnoreNotFound(err))
		}
	}
	return errors.Join(failures...)
}

// copiesFor are the copies for the namespaces, except that of the operator. The namespace of an agent has the Secret already, as part of
// its Klusterlet.
func copiesFor(operator string, namespaces []corev1.Namespace, secret *corev1.Secret, profile *corev1.ConfigMap) (objects []client.Object) {
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.DeletionTimestamp != nil || namespace.Name == operator {
			continue
		}
		if secret != nil && namespace.Labels[fleet.LabelKlusterlet] == "" {
			objects = append(objects, frame.CopyOf(secret, namespace.Name))
		}
		if profile != nil {
			objects = append(objects, copyOfConfigMap(profile, namespace.Name))
		}
	}
	return objects
}

func registerCopies(mgr ctrl.Manager, c *Controller, changed *frame.Source) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{frame.Request(copiesRequest)}
	})
	operator := ctrl.NewControllerManagedBy(mgr).Named("operator-klusterlet-copies").
		WatchesRawSource(changed).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()})
	if c.Watched(namespaces) {
		operator.Watches(&corev1.Namespace{}, one, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}))
	}
	if c.Watched(configMaps) {
		source := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == c.Namespace })
		operator.Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(source))
	}
	return operator.Complete(retry.Conflicts(copies{c}))
}
