package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// startTimeout is how long an agent waits for a hub that has just started to know its clusters. Then it is told to try again.
const startTimeout = 10 * time.Second

// clusters are those of the hub, with the add-on that lets users of the hub in.
type clusters struct {
	// changed is called with the name of a cluster that may have a tunnel no longer.
	changed func(name string)
	// synced is closed when reader has all of them, and ended when run has.
	synced, ended chan struct{}
	reader        client.Reader
}

func newClusters(changed func(string)) *clusters {
	return &clusters{changed: changed, synced: make(chan struct{}), ended: make(chan struct{})}
}

// run follows the clusters until the context ends. It runs once.
func (c *clusters) run(ctx context.Context, config *rest.Config) error {
	defer close(c.ended)
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(addonv1beta1.AddToScheme(scheme))
	followed, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&clusterv1.ManagedCluster{}: {Transform: keepDecisions},
		&addonv1beta1.ManagedClusterAddOn{}: {
			Field: fields.OneTermEqualSelector("metadata.name", fleet.AddOnClusterProxy), Transform: keepDecisions,
		},
	}})
	if err != nil {
		return fmt.Errorf("follow the clusters that have tunnels: %w", err)
	}
	for object, nameOf := range map[client.Object]func(metav1.Object) string{
		&clusterv1.ManagedCluster{}:         metav1.Object.GetName,
		&addonv1beta1.ManagedClusterAddOn{}: metav1.Object.GetNamespace,
	} {
		informer, err := followed.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("follow the clusters that have tunnels: %w", err)
		}
		if _, err := informer.AddEventHandler(c.handler(ctx, nameOf)); err != nil {
			return err
		}
	}
	c.reader = followed
	go func() {
		if followed.WaitForCacheSync(ctx) {
			close(c.synced)
		}
	}()
	return followed.Start(ctx)
}

// handler is notified of clusters that may have a tunnel no longer.
func (c *clusters) handler(ctx context.Context, nameOf func(metav1.Object) string) toolscache.ResourceEventHandler {
	check := func(object any) {
		if unknown, deleted := object.(toolscache.DeletedFinalStateUnknown); deleted {
			object = unknown.Obj
		}
		if object, is := object.(metav1.Object); is && c.allow(ctx, nameOf(object)) != nil {
			c.changed(nameOf(object))
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: check, UpdateFunc: func(_, object any) { check(object) }, DeleteFunc: check,
	}
}

// keepDecisions strips objects of what does not decide whether there may be a tunnel: there may be thousands.
func keepDecisions(object any) (any, error) {
	switch o := object.(type) {
	case *clusterv1.ManagedCluster:
		kept := &clusterv1.ManagedCluster{ObjectMeta: keepMeta(o.ObjectMeta)}
		kept.Spec.HubAcceptsClient = o.Spec.HubAcceptsClient
		return kept, nil
	case *addonv1beta1.ManagedClusterAddOn:
		kept := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: keepMeta(o.ObjectMeta)}
		kept.Annotations = map[string]string{fleet.AnnotationBuiltIn: o.Annotations[fleet.AnnotationBuiltIn]}
		return kept, nil
	}
	return object, nil
}

func keepMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp}
}

// await returns when the clusters are known, as they soon are after the start of a hub, or will not be: after a while, when the hub ends,
// or with the context.
func (c *clusters) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-c.synced:
	case <-c.ended:
	case <-ctx.Done():
	}
}

// allow says why a cluster may have no tunnel; nil if it may.
func (c *clusters) allow(ctx context.Context, name string) error {
	select {
	case <-c.synced:
	default:
		return refuse(name, "the hub has just started and does not know its clusters yet; try again in a second")
	}
	managed := &clusterv1.ManagedCluster{}
	if err := c.reader.Get(ctx, client.ObjectKey{Name: name}, managed); err != nil {
		return c.notFound(name, err)
	}
	if !managed.Spec.HubAcceptsClient || managed.DeletionTimestamp != nil {
		return refuse(name, "cluster %s is not accepted or is being deleted, and is not reached through the hub", name)
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: name, Name: fleet.AddOnClusterProxy}, addOn)
	switch {
	case apierrors.IsNotFound(err), err == nil && addOn.DeletionTimestamp != nil:
		return refuse(name, "cluster %s does not have the add-on %s, which lets users of the hub in; enable it with: "+
			"capstan addon enable --names %s --clusters %s", name, fleet.AddOnClusterProxy, fleet.AddOnClusterProxy, name)
	case err != nil:
		return err
	case !fleet.IsBuiltIn(addOn):
		return refuse(name, "the add-on %s of cluster %s is not the one that the hub has built in; its ClusterManagementAddOn does not have the "+
			"annotation %s=%s", fleet.AddOnClusterProxy, name, fleet.AnnotationBuiltIn, fleet.LabelTrue)
	}
	return nil
}

func (c *clusters) notFound(name string, err error) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(managedClusters, name)
	}
	return err
}

func refuse(name, format string, args ...any) error {
	return api.Unreached(name, fmt.Sprintf(format, args...))
}

// explain says why a request does not reach a cluster, as a client of the API reads it. If it has ended with the right or the credential of
// its sender, the cause of that is the answer.
func (c *clusters) explain(ctx context.Context, name string, cause error) error {
	var refused *apierrors.StatusError
	if errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	if err := c.allow(ctx, name); err != nil {
		return err
	}
	var notConnected *NotConnectedError
	if errors.As(cause, &notConnected) {
		return refuse(name, "%v; kubectl describe managedclusteraddon -n %s %s says more", cause, name, fleet.AddOnClusterProxy)
	}
	return refuse(name, "the tunnel to cluster %s: %v", name, cause)
}
