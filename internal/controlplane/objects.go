package controlplane

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// ensureObjects makes what the hub shows of itself, and what clusters join with. Agents and controllers do without.
func (h *hub) ensureObjects(ctx context.Context) error {
	return inParallel([]func() error{
		func() error { return ensureBootstrapServiceAccount(ctx, h.client) },
		func() error { return h.publishAddress(ctx) },
		func() error { return ensureHubInfo(ctx, h.client, h.Info) },
		func() error { return retry.OnRace(func() error { _, err := h.tokens.ensure(ctx); return err }) },
	})
}

// tryObjects reports whether all of them are there. A failure is logged once.
func (h *hub) tryObjects(ctx context.Context) bool {
	err := h.ensureObjects(ctx)
	if ctx.Err() == nil && h.objects.report(err) {
		klog.FromContext(ctx).Error(err, "Objects of the hub are missing; trying again")
	}
	return err == nil
}

// keepObjects tries until all are there, and again whenever one is deleted, also with its namespace, until ctx ends.
func (h *hub) keepObjects(ctx context.Context) error {
	deleted := make(chan struct{}, 1)
	err := h.watchObjects(ctx, func() {
		select {
		case deleted <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	for {
		_ = retry.Until(ctx, func(ctx context.Context) (bool, error) { return h.tryObjects(ctx), nil }) // it fails if ctx ends
		select {
		case <-ctx.Done():
			return nil
		case <-deleted:
		}
	}
}

// watchObjects calls back when one is deleted after it returned. With a namespace, all that is in it is deleted. The token has a keeper.
// The service account is made again with its namespace only: by itself, an administrator deletes it to end its tokens, and with it the
// binding, and who asks for the next token makes both.
func (h *hub) watchObjects(ctx context.Context, deleted func()) error {
	for _, informer := range []cache.SharedIndexInformer{
		h.named(metav1.NamespaceAll, fleet.NamespaceOperators).Core().V1().Namespaces().Informer(),
		h.named(metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo).Core().V1().ConfigMaps().Informer(),
		h.named(fleet.NamespaceHub, fleet.ConfigMapHubInfo).Core().V1().ConfigMaps().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { deleted() }}); err != nil {
			return err
		}
		go informer.RunWithContext(ctx)
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	}
	return nil
}

// named has informers of the objects of that name in a namespace.
func (h *hub) named(namespace, name string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(h.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
}
