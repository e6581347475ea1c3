package resources

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// All returns the services for all data types. The first one has to be started: it follows what the hub decides about clusters.
func All(o Options) (clusters broker.Source, all []broker.Service) {
	first := newClusters(o)
	return first, []broker.Service{first, newSigningRequests(o), newAddOns(o), newAddOnsOfAlphaAPI(o), newLeases(o), &events{o}, newWorks(o),
		newTokens(o)}
}

// NewScheme returns the kinds that are read and written.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, eventsv1.AddToScheme, authenticationv1.AddToScheme,
		clusterv1.AddToScheme, workv1.AddToScheme, addonv1alpha1.AddToScheme, addonv1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// CacheOptions keep out of the cache what no agent is told of.
func CacheOptions() cache.Options {
	ofClusters, err := labels.NewRequirement(fleet.LabelClusterName, selection.Exists, nil)
	utilruntime.Must(err)
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{
		&certificatesv1.CertificateSigningRequest{}: {Label: labels.NewSelector().Add(*ofClusters)},
		&coordinationv1.Lease{}:                     {Field: fields.OneTermEqualSelector(nameField, fleet.ClusterNamespaceLease)},
	}}
}

// AddIndexes adds the indexes that the services read through.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &clusterv1.ManagedCluster{}, nameField, func(o client.Object) []string {
		return []string{o.GetName()}
	}); err != nil {
		return fmt.Errorf("index ManagedClusters by name: %w", err)
	}
	if err := indexer.IndexField(ctx, &workv1.ManifestWork{}, uidField, func(o client.Object) []string {
		return []string{string(o.GetUID())}
	}); err != nil {
		return fmt.Errorf("index ManifestWorks by UID: %w", err)
	}
	return nil
}

// NotBefore returns from when on the certificates of a cluster hold, by a reader of ManagedClusters; the zero time stands for always.
func NotBefore(reader client.Reader) func(context.Context, string) (time.Time, error) {
	return func(ctx context.Context, name string) (time.Time, error) {
		cluster := &clusterv1.ManagedCluster{}
		if err := reader.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			if apierrors.IsNotFound(err) {
				return time.Time{}, nil
			}
			return time.Time{}, err
		}
		return fleet.CredentialsNotBefore(cluster.Annotations)
	}
}
