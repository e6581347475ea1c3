package realcluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The inventory has the certificate requests of agents, which a hub leaves or removes, and not those of the node.
func TestCertificateRequestsOfKubernetes(t *testing.T) {
	t.Parallel()
	ofCluster := map[string]string{fleet.LabelClusterName: "cluster1"}
	for name, test := range map[string]struct {
		resource schema.GroupResource
		labels   map[string]string
		want     bool
	}{
		"of the node":      {certificateRequests, nil, true},
		"of an agent":      {certificateRequests, ofCluster, false},
		"another resource": {schema.GroupResource{Resource: "namespaces"}, nil, false},
	} {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: test.labels}}
		if got := isOfKubernetes(test.resource, object); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
