package chart

import (
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/chart/common"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/values"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// capabilitiesOf returns the capabilities of a cluster, as far as it reports its version.
func capabilitiesOf(cluster *clusterv1.ManagedCluster) (*common.Capabilities, error) {
	capabilities := common.DefaultCapabilities.Copy()
	version := cluster.Status.Version.Kubernetes
	if version == "" {
		return capabilities, nil
	}
	parsed, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes version %q of ManagedCluster %q: %w", version, cluster.Name, err)
	}
	capabilities.KubeVersion = *parsed
	return capabilities, nil
}

// HostingCapabilities returns the Source of the value hostingClusterCapabilities for add-ons in hosted mode. Its KubeVersion has
// Version, Major and Minor, as in .Capabilities.
func HostingCapabilities(c client.Reader) values.Source {
	return func(ctx context.Context, installation addon.Installation) (values.Values, error) {
		if installation.Mode() != addon.Hosted {
			return nil, nil
		}
		cluster := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: installation.HostingCluster}, cluster); err != nil {
			return nil, fmt.Errorf("read the hosting cluster %q: %w", installation.HostingCluster, err)
		}
		capabilities, err := capabilitiesOf(cluster)
		if err != nil {
			return nil, err
		}
		version := capabilities.KubeVersion
		return values.Values{"hostingClusterCapabilities": values.Values{
			"KubeVersion": values.Values{"Version": version.Version, "Major": version.Major, "Minor": version.Minor},
		}}, nil
	}
}
