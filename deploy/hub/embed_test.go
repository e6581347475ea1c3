package hub_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/hub"
)

// All objects are for the hub that is asked for, and nothing of them names another one.
func TestNames(t *testing.T) {
	t.Parallel()
	names := hub.Names{Namespace: "blue", ClusterManager: "indigo"}
	for kind, objects := range map[string][]client.Object{
		"rights": hub.Rights(names), "policies": hub.Policies(names), "webhooks": hub.Webhooks(names),
		"grpc": hub.GRPC(names),
	} {
		if len(objects) == 0 {
			t.Errorf("no %s", kind)
		}
		for _, object := range objects {
			content, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range []string{"open-cluster-management-hub", "cluster-manager"} {
				if strings.Contains(string(content), other) {
					t.Errorf("%s %s names %s", kind, object.GetName(), other)
				}
			}
		}
	}
}

// What clusters join with is not the operator's to remove.
func TestRightsWithoutJoining(t *testing.T) {
	t.Parallel()
	for _, object := range hub.Rights(hub.Names{Namespace: "open-cluster-management-hub", ClusterManager: "cluster-manager"}) {
		if strings.Contains(object.GetName(), "bootstrap") || object.GetNamespace() == "open-cluster-management" {
			t.Errorf("%T %s", object, object.GetName())
		}
	}
}
