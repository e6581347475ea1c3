package hub

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	"github.com/capstan-io/capstan/internal/featuregates"
)

// The resources of the hub's own API that the controllers watch.
var (
	managedClusters              = clusterv1.GroupVersion.WithResource("managedclusters")
	managedClusterSets           = clusterv1beta2.GroupVersion.WithResource("managedclustersets")
	managedClusterSetBindings    = clusterv1beta2.GroupVersion.WithResource("managedclustersetbindings")
	placements                   = clusterv1beta1.GroupVersion.WithResource("placements")
	placementDecisions           = clusterv1beta1.GroupVersion.WithResource("placementdecisions")
	addOnPlacementScores         = clusterv1alpha1.GroupVersion.WithResource("addonplacementscores")
	sigPlacementDecisions        = multiclusterv1alpha1.GroupVersion.WithResource("placementdecisions")
	clusterProfiles              = multiclusterv1alpha1.GroupVersion.WithResource("clusterprofiles")
	manifestWorks                = workv1.GroupVersion.WithResource("manifestworks")
	manifestWorkReplicaSets      = workv1alpha1.GroupVersion.WithResource("manifestworkreplicasets")
	managedClusterAddOns         = addonv1beta1.GroupVersion.WithResource("managedclusteraddons")
	clusterManagementAddOns      = addonv1beta1.GroupVersion.WithResource("clustermanagementaddons")
	managedServiceAccounts       = authenticationv1beta1.GroupVersion.WithResource("managedserviceaccounts")
	clusterGatewayConfigurations = proxyv1alpha1.GroupVersion.WithResource("clustergatewayconfigurations")
	clusterPermissions           = permissionv1alpha1.GroupVersion.WithResource("clusterpermissions")
	addOnTemplates               = addonv1beta1.GroupVersion.WithResource("addontemplates")
	addOnDeploymentConfigs       = addonv1beta1.GroupVersion.WithResource("addondeploymentconfigs")
	gitOpsClusters               = appsv1beta1.GroupVersion.WithResource("gitopsclusters")
	applicationSetReports        = appsv1alpha1.GroupVersion.WithResource("multiclusterapplicationsetreports")
)

func reading(resources ...schema.GroupVersionResource) func(Options) []schema.GroupVersionResource {
	return func(Options) []schema.GroupVersionResource { return resources }
}

func registrationReads(o Options) []schema.GroupVersionResource {
	reads := []schema.GroupVersionResource{managedClusters, managedClusterSets, managedClusterSetBindings, managedClusterAddOns}
	if o.enabled(featuregates.ClusterProfile) {
		reads = append(reads, clusterProfiles)
	}
	return reads
}

func placementReads(o Options) []schema.GroupVersionResource {
	reads := []schema.GroupVersionResource{managedClusters, managedClusterSets, managedClusterSetBindings, placements, placementDecisions,
		addOnPlacementScores}
	if o.enabled(featuregates.SIGPlacementDecision) {
		reads = append(reads, sigPlacementDecisions)
	}
	return reads
}

func serviceAccountReads(o Options) []schema.GroupVersionResource {
	reads := []schema.GroupVersionResource{managedClusters, manifestWorks, managedClusterAddOns, clusterManagementAddOns,
		addOnDeploymentConfigs, managedServiceAccounts, clusterPermissions}
	return append(reads, profileReads(o)...)
}

// profileReads are the resources by which tokens are copied to ClusterProfiles.
func profileReads(o Options) []schema.GroupVersionResource {
	if !o.enabled(featuregates.ClusterProfile) {
		return nil
	}
	return []schema.GroupVersionResource{clusterProfiles, managedClusterSets, managedClusterSetBindings}
}

func accessReads(o Options) []schema.GroupVersionResource {
	reads := []schema.GroupVersionResource{managedClusters, managedClusterAddOns}
	if hasAccess(o) {
		reads = append(reads, clusterProfiles)
	}
	if hasGitOps(o) {
		reads = append(append(reads, placements, placementDecisions, gitOpsClusters), decisionReads(o)...)
	}
	return reads
}

func workReads(o Options) []schema.GroupVersionResource {
	reads := []schema.GroupVersionResource{manifestWorks, managedClusters}
	if o.enabled(featuregates.ManifestWorkReplicaSet) {
		reads = append(reads, manifestWorkReplicaSets, placements, placementDecisions)
		reads = append(reads, decisionReads(o)...)
	}
	return reads
}

func addOnReads(o Options) []schema.GroupVersionResource {
	reads := []schema.GroupVersionResource{managedClusters, placements, placementDecisions, manifestWorks,
		managedClusterAddOns, clusterManagementAddOns, addOnTemplates, addOnDeploymentConfigs}
	switch {
	case hasServiceAccounts(o):
		reads = append(append(reads, managedServiceAccounts, clusterPermissions), profileReads(o)...)
	case o.enabled(featuregates.ManagedServiceAccountEphemeralIdentity):
		reads = append(reads, managedServiceAccounts)
	}
	if hasGitOps(o) {
		reads = append(reads, gitOpsClusters)
	}
	if o.enabled(featuregates.GitOpsCluster) {
		reads = append(reads, applicationSetReports, managedClusterSets, managedClusterSetBindings)
	}
	return append(reads, decisionReads(o)...)
}

// decisionReads are the resources that decisions are checked against.
func decisionReads(o Options) []schema.GroupVersionResource {
	if o.TrustPlacementDecisions {
		return nil
	}
	return []schema.GroupVersionResource{managedClusterSets, managedClusterSetBindings}
}

// reads reports whether any of the chosen controllers needs the resource.
func (o Options) reads(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(o.chosen(), func(g group) bool { return slices.Contains(g.reads(o), resource) })
}

// Served returns what an API server serves of an API version. A discovery client implements it.
type Served interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// CheckServed fails if CRDs are missing that the chosen controllers need, which would otherwise wait for them without an end. The error
// names each CRD and the groups of controllers that need it.
func CheckServed(api Served, o Options) error {
	var resources []schema.GroupVersionResource
	readers := map[schema.GroupVersionResource][]string{}
	for _, g := range o.chosen() {
		for _, resource := range g.reads(o) {
			if readers[resource] == nil {
				resources = append(resources, resource)
			}
			readers[resource] = append(readers[resource], g.name)
		}
	}
	served := map[schema.GroupVersion][]string{}
	var missing []error
	for _, resource := range resources {
		version := resource.GroupVersion()
		if _, found := served[version]; !found {
			names, err := resourcesOf(api, version)
			if err != nil {
				return err
			}
			served[version] = names
		}
		if !slices.Contains(served[version], resource.Resource) {
			missing = append(missing, fmt.Errorf("the CRD %s with version %s, for the controllers of %s",
				resource.GroupResource(), resource.Version, strings.Join(readers[resource], ", ")))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("it lacks what the controllers read; install the CRDs of the hub there first (kubectl apply --server-side -f "+
		"deploy/crds):\n%w", errors.Join(missing...))
}

// resourcesOf returns the names of the served resources of a version; none if it is not served at all.
func resourcesOf(api Served, version schema.GroupVersion) ([]string, error) {
	list, err := api.ServerResourcesForGroupVersion(version.String())
	if apierrors.IsNotFound(err) {
		return []string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask what it serves of %s: %w", version, err)
	}
	names := []string{}
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	return names, nil
}
