package hub

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// served is an API server with these resources.
type served struct {
	resources []schema.GroupVersionResource
	broken    string
}

func (s served) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	if version == s.broken {
		return nil, errors.New("no answer")
	}
	list := &metav1.APIResourceList{GroupVersion: version}
	for _, resource := range s.resources {
		if resource.GroupVersion().String() == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource.Resource},
				metav1.APIResource{Name: resource.Resource + "/status"})
		}
	}
	if len(list.APIResources) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	return list, nil
}

// Controllers need the CRDs of what they read, and no others. What is missing is named, with who needs it.
func TestCheckServed(t *testing.T) {
	t.Parallel()
	ofPlacement := []schema.GroupVersionResource{managedClusters, managedClusterSets, managedClusterSetBindings, placements,
		placementDecisions, addOnPlacementScores}
	ofRegistration := append(slices.Clone(ofPlacement[:3]), managedClusterAddOns)
	older := schema.GroupVersionResource{Group: placements.Group, Version: "v1alpha1", Resource: placements.Resource}
	for name, test := range map[string]struct {
		api   served
		o     Options
		wants []string
	}{
		"placement":    {served{resources: ofPlacement}, Options{Groups: []string{"placement"}}, nil},
		"registration": {served{resources: ofRegistration}, Options{Groups: []string{"registration"}}, nil},
		"registration without add-ons": {served{resources: ofPlacement[:3]}, Options{Groups: []string{"registration"}},
			[]string{"managedclusteraddons.addon.open-cluster-management.io with version v1beta1, for the controllers of registration"}},
		"registration with profiles": {served{resources: ofRegistration},
			Options{Groups: []string{"registration"}, Gates: set(t, "ClusterProfile=true")},
			[]string{"clusterprofiles.multicluster.x-k8s.io with version v1alpha1, for the controllers of registration"}},
		"another version": {served{resources: append(slices.Delete(slices.Clone(ofPlacement), 3, 4), older)},
			Options{Groups: []string{"placement"}},
			[]string{"placements.cluster.open-cluster-management.io with version v1beta1, for the controllers of placement"}},
		"several groups": {served{resources: ofPlacement}, Options{Groups: []string{"work", "placement"}}, []string{
			"manifestworks.work.open-cluster-management.io with version v1, for the controllers of work",
			"manifestworkreplicasets.work.open-cluster-management.io with version v1alpha1, for the controllers of work",
		}},
		"nothing, all groups": {served{}, Options{}, []string{
			"managedclusters.cluster.open-cluster-management.io with version v1, for the controllers of registration, placement, work, addon",
			"addontemplates.addon.open-cluster-management.io with version v1beta1, for the controllers of addon",
		}},
		"no answer": {served{broken: "cluster.open-cluster-management.io/v1"}, Options{},
			[]string{"cluster.open-cluster-management.io/v1: no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckServed(test.api, test.o)
			if len(test.wants) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("nothing is missing")
			}
			if wanted := test.api.broken == ""; strings.Contains(err.Error(), "install the CRDs") != wanted {
				t.Errorf("what to do is not as expected: %v", err)
			}
			for _, want := range test.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}
