// Package accessprovider writes into ClusterProfiles how the clusters are reached through the hub, for clients that know the inventory API
// of the Kubernetes SIG Multicluster: as one of the access providers, next to those of others. It says where a cluster is, and has no
// credential.
package accessprovider

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	// Name is that of the access provider, and of the cluster manager of the profiles that have it.
	Name = fleet.ClusterManagerOfProfiles
	// extensionExec is the key of what client-go hands to a credential plugin.
	extensionExec = "client.authentication.k8s.io/exec"

	// fieldOwner owns the entry. The rest of the status, and the other entries, have other owners.
	fieldOwner = "capstan-cluster-proxy"
	// indexCluster finds profiles by their cluster, whose name they have.
	indexCluster = "accessprovider.cluster"

	workers = 5
)

// Options configure the controller.
type Options struct {
	// Address is where the clusters of the hub are.
	Address *Address
	// Server is the URL of a cluster below that of the address.
	Server func(url, cluster string) string
}

// Controller reconciles the access provider of ClusterProfiles.
type Controller struct {
	Options
	client client.Client
}

// New returns a Controller that works through the client, whose cache has the index of Register.
func New(c client.Client, o Options) *Controller { return &Controller{Options: o, client: c} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), o)
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	profile := &multiclusterv1alpha1.ClusterProfile{}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), profile, indexCluster, byName); err != nil {
		return err
	}
	ofAddOn := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return c.profiles(ctx, client.MatchingFields{indexCluster: o.GetNamespace()})
	})
	ofCluster := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return c.profiles(ctx, client.MatchingFields{indexCluster: o.GetName()})
	})
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return c.profiles(ctx) })
	return ctrl.NewControllerManagedBy(mgr).Named("registration-clusterprofile-access").
		For(&multiclusterv1alpha1.ClusterProfile{}, builder.WithPredicates(providersChanged())).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, ofAddOn, builder.WithPredicates(
			predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == fleet.AddOnClusterProxy }),
			predicate.Or(predicates.Generation(), predicate.Predicate(predicate.AnnotationChangedPredicate{})))).
		Watches(&clusterv1.ManagedCluster{}, ofCluster, builder.WithPredicates(RegistrationChanged())).
		WatchesRawSource(source.Channel(o.Address.Changes(), all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// RegistrationChanged matches updates by which a cluster registers in a way that makes tunnels, or no longer does: see [IsReached].
func RegistrationChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return eks.Claims(e.ObjectOld.GetAnnotations()) != eks.Claims(e.ObjectNew.GetAnnotations())
	}}
}

// providersChanged matches profiles whose access providers differ after a change. Reports of the clusters do not matter.
func providersChanged() predicate.Predicate {
	return predicate.Or(predicates.Generation(), predicate.Predicate(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*multiclusterv1alpha1.ClusterProfile)
		after, too := e.ObjectNew.(*multiclusterv1alpha1.ClusterProfile)
		return ok && too && !reflect.DeepEqual(before.Status.AccessProviders, after.Status.AccessProviders)
	}}))
}

func (c *Controller) profiles(ctx context.Context, which ...client.ListOption) (requests []reconcile.Request) {
	list := &multiclusterv1alpha1.ClusterProfileList{}
	if err := c.client.List(ctx, list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ClusterProfiles whose access has changed")
		return nil
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile writes how the cluster of a profile is reached, or takes it out if it is not.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	profile := &multiclusterv1alpha1.ClusterProfile{}
	if err := c.client.Get(ctx, req.NamespacedName, profile); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	url, ca, known := c.Address.Get()
	if !known || profile.Spec.ClusterManager.Name != Name || !profile.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	reached, err := c.isReached(ctx, profile.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	var want []multiclusterv1alpha1.AccessProvider
	if reached {
		entry, err := provider(c.Server(url, profile.Name), ca, profile.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		want = append(want, entry)
	}
	if same, err := isWritten(profile, want); same || err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, c.apply(ctx, profile, want)
}

func (c *Controller) isReached(ctx context.Context, name string) (bool, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return IsReached(ctx, c.client, cluster)
}

// IsReached reports whether a cluster has the add-on with the tunnel, and of this hub. Agents that register by AWS IAM make no tunnels.
func IsReached(ctx context.Context, c client.Reader, cluster *clusterv1.ManagedCluster) (bool, error) {
	if eks.Claims(cluster.Annotations) {
		return false, nil
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	key := client.ObjectKey{Namespace: cluster.Name, Name: fleet.AddOnClusterProxy}
	err := c.Get(ctx, key, addOn)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get ManagedClusterAddOn %s: %w", key, err)
	}
	return fleet.IsBuiltIn(addOn) && addOn.DeletionTimestamp.IsZero(), nil
}

// provider is the entry for a cluster. A credential plugin of a client learns from the extension whose credential it is to return.
func provider(server string, ca []byte, cluster string) (multiclusterv1alpha1.AccessProvider, error) {
	entry := multiclusterv1alpha1.AccessProvider{Name: Name}
	extension, err := json.Marshal(map[string]string{"clusterName": cluster})
	if err != nil {
		return entry, err
	}
	entry.Cluster.Raw, err = json.Marshal(clientcmdv1.Cluster{
		Server: server, CertificateAuthorityData: ca,
		Extensions: []clientcmdv1.NamedExtension{{Name: extensionExec, Extension: runtime.RawExtension{Raw: extension}}},
	})
	return entry, err
}

// isWritten reports whether the profile has the entry as it is desired, or none if none is.
func isWritten(profile *multiclusterv1alpha1.ClusterProfile, want []multiclusterv1alpha1.AccessProvider) (bool, error) {
	var have []multiclusterv1alpha1.AccessProvider
	for _, entry := range profile.Status.AccessProviders {
		if entry.Name == Name {
			have = append(have, entry)
		}
	}
	before, err := plain(have)
	if err != nil {
		return false, err
	}
	after, err := plain(want)
	return reflect.DeepEqual(before, after), err
}

// apply writes the entry alone, and takes out the one from before without another.
func (c *Controller) apply(ctx context.Context, profile *multiclusterv1alpha1.ClusterProfile,
	want []multiclusterv1alpha1.AccessProvider) error {
	applied := &unstructured.Unstructured{}
	applied.SetGroupVersionKind(multiclusterv1alpha1.GroupVersion.WithKind("ClusterProfile"))
	applied.SetNamespace(profile.Namespace)
	applied.SetName(profile.Name)
	applied.SetUID(profile.UID) // one of the same name that is made meanwhile is another
	providers, err := plain(want)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(applied.Object, providers, "status", "accessProviders"); err != nil {
		return err
	}
	err = c.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.ForceOwnership,
		client.FieldOwner(fieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("apply the access provider of ClusterProfile %s: %w", client.ObjectKeyFromObject(profile), err)
	}
	return nil
}

// plain are entries as JSON has them.
func plain(entries []multiclusterv1alpha1.AccessProvider) ([]any, error) {
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	decoded := []any{}
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, err
	}
	return append([]any{}, decoded...), nil
}
