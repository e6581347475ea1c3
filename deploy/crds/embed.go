// Package crds holds the CustomResourceDefinitions of the API. They are generated from the types in api; run
// `make generate` after changing those.
package crds

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// Hub returns what a hub serves. The add-on kinds with two versions that differ, ClusterManagementAddOn and
// ManagedClusterAddOn, are converted by the service cluster-manager-addon-webhook.
//
// Every call decodes them again, so callers may change what they get.
func Hub() []*apiextensionsv1.CustomResourceDefinition {
	return decode(
		"addon.open-cluster-management.io_addondeploymentconfigs.yaml",
		"addon.open-cluster-management.io_addontemplates.yaml",
		"addon.open-cluster-management.io_clustermanagementaddons.yaml",
		"addon.open-cluster-management.io_managedclusteraddons.yaml",
		"apps.open-cluster-management.io_gitopsclusters.yaml",
		"apps.open-cluster-management.io_multiclusterapplicationsetreports.yaml",
		"authentication.open-cluster-management.io_managedserviceaccounts.yaml",
		"cluster.open-cluster-management.io_addonplacementscores.yaml",
		"cluster.open-cluster-management.io_managedclusters.yaml",
		"cluster.open-cluster-management.io_managedclustersetbindings.yaml",
		"cluster.open-cluster-management.io_managedclustersets.yaml",
		"cluster.open-cluster-management.io_placementdecisions.yaml",
		"cluster.open-cluster-management.io_placements.yaml",
		"multicluster.x-k8s.io_clusterprofiles.yaml",
		"multicluster.x-k8s.io_placementdecisions.yaml",
		// Clients look for ClusterManagers on every hub, also on those without one.
		"operator.open-cluster-management.io_clustermanagers.yaml",
		"proxy.open-cluster-management.io_clustergatewayconfigurations.yaml",
		"rbac.open-cluster-management.io_clusterpermissions.yaml",
		"work.open-cluster-management.io_manifestworkreplicasets.yaml",
		"work.open-cluster-management.io_manifestworks.yaml",
	)
}

// ManagedCluster returns what an agent installs on its managed cluster.
//
// Every call decodes them again, so callers may change what they get.
func ManagedCluster() []*apiextensionsv1.CustomResourceDefinition {
	return decode(
		"cluster.open-cluster-management.io_clusterclaims.yaml",
		"work.open-cluster-management.io_appliedmanifestworks.yaml",
	)
}

// ClusterProperties returns what an agent installs, too, that reports ClusterProperties. The kind belongs to the Kubernetes SIG
// Multicluster, so it may be on a cluster already.
//
// Every call decodes them again, so callers may change what they get.
func ClusterProperties() []*apiextensionsv1.CustomResourceDefinition {
	return decode("about.k8s.io_clusterproperties.yaml")
}

// decode panics on a file that is missing or broken, because that is an error of the build.
func decode(names ...string) []*apiextensionsv1.CustomResourceDefinition {
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(names))
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("read embedded CRD: %v", err))
		}
		crd := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			panic(fmt.Sprintf("decode embedded CRD %s: %v", name, err))
		}
		crds = append(crds, crd)
	}
	return crds
}
