package hub

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	appsv1alpha1 "github.com/capstan-io/capstan/api/apps/v1alpha1"
	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	proxyv1alpha1 "github.com/capstan-io/capstan/api/proxy/v1alpha1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/registration/availability"
	"github.com/capstan-io/capstan/internal/hub/work/replicaset"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// ManagerOptions returns the options of a manager for the chosen controllers: their types, and caches that hold only objects of the
// controllers. Metrics, health and leader election are left to the caller.
func ManagerOptions(o Options) ctrl.Options {
	// No reconcile takes nearly as long. One that waits for its cache without an end is a fault that would block a worker unnoticed.
	const longestReconcile = 10 * time.Minute
	ofClusters := cache.ByObject{Label: hasLabel(fleet.LabelClusterName)}
	byObject := map[client.Object]cache.ByObject{
		&corev1.Namespace{}:                         ofClusters,
		&rbacv1.ClusterRoleBinding{}:                ofClusters,
		&rbacv1.RoleBinding{}:                       ofClusters,
		&rbacv1.Role{}:                              ofClusters,
		&corev1.ServiceAccount{}:                    ofClusters,
		&coordinationv1.Lease{}:                     {Label: hasLabel(fleet.LabelClusterName), Transform: availability.StripLease},
		&certificatesv1.CertificateSigningRequest{}: ofClusters,
	}
	// For each kind here the cache discovers whether it is namespaced, and so needs its CRD.
	if o.reads(placementDecisions) {
		byObject[&clusterv1beta1.PlacementDecision{}] = cache.ByObject{Transform: decisions.Strip}
	}
	if o.reads(manifestWorks) && o.WorkTransport == nil { // the transport compares whole statuses
		byObject[&workv1.ManifestWork{}] = cache.ByObject{Transform: replicaset.Strip}
	}
	return ctrl.Options{
		Scheme:     newScheme(),
		Cache:      cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: byObject},
		Controller: config.Controller{ReconciliationTimeout: longestReconcile},
		NewClient:  repairclient.NewClient,
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme,
		eventsv1.AddToScheme, authenticationv1.AddToScheme,
		clusterv1.AddToScheme, clusterv1alpha1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme,
		multiclusterv1alpha1.AddToScheme,
		workv1.AddToScheme, workv1alpha1.AddToScheme, addonv1beta1.AddToScheme, authenticationv1beta1.AddToScheme,
		proxyv1alpha1.AddToScheme, appsv1alpha1.AddToScheme, appsv1beta1.AddToScheme,
		permissionv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

func hasLabel(key string) labels.Selector {
	exists, err := labels.NewRequirement(key, selection.Exists, nil)
	utilruntime.Must(err)
	return labels.NewSelector().Add(*exists)
}
