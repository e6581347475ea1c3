package clusterprofile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
)

// RG-46: claims that a ManagedCluster may have and a ClusterProfile may not are no properties, and change nothing else.
func TestProperties(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		claims []clusterv1.ManagedClusterClaim
		want   []multiclusterv1alpha1.Property
	}{
		"none": {},
		"several": {[]clusterv1.ManagedClusterClaim{{Name: "b", Value: "1"}, {Name: "a", Value: "1"}},
			[]multiclusterv1alpha1.Property{{Name: "b", Value: "1"}, {Name: "a", Value: "1"}}},
		"the same name": {[]clusterv1.ManagedClusterClaim{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}, {Name: "a", Value: "3"}},
			[]multiclusterv1alpha1.Property{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}},
		"no value, then one": {[]clusterv1.ManagedClusterClaim{{Name: "a"}, {Name: "a", Value: "1"}},
			[]multiclusterv1alpha1.Property{{Name: "a", Value: "1"}}},
		"no name": {[]clusterv1.ManagedClusterClaim{{Value: "1"}}, nil},
	} {
		cluster, profile := &clusterv1.ManagedCluster{}, &multiclusterv1alpha1.ClusterProfile{}
		cluster.Status.ClusterClaims, cluster.Status.Version.Kubernetes = test.claims, "v1.34.0"
		profile.Status.Properties = []multiclusterv1alpha1.Property{{Name: "gone", Value: "1"}}
		presentStatus(profile, cluster)
		if diff := cmp.Diff(test.want, profile.Status.Properties); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(profile.Status.Conditions) != 2 || profile.Status.Version.Kubernetes != "v1.34.0" {
			t.Errorf("%s: %+v", name, profile.Status)
		}
	}
}
