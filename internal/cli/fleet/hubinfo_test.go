package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const (
	deploymentsPath = "/apis/apps/v1/namespaces/open-cluster-management-hub/deployments/"
	hubLeasesPath   = "/apis/coordination.k8s.io/v1/namespaces/open-cluster-management-hub/leases/"
)

func putCRDs(t *testing.T, h clitest.Hub, but string) {
	t.Helper()
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON(`{}`))
	for _, crd := range crds.Hub() {
		if crd.Name != but {
			h.Put(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+crd.Name, crd)
		}
	}
}

func putDeployment(t *testing.T, h clitest.Hub, path, namespace, name string, desired, available int32) {
	t.Helper()
	h.Put(t, path+name, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(desired), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Image: "example.com/" + name + ":v1"}},
		}}},
		Status: appsv1.DeploymentStatus{AvailableReplicas: available},
	})
}

func putLease(t *testing.T, h clitest.Hub, name, holder string, renewed time.Time) {
	t.Helper()
	h.Put(t, hubLeasesPath+name, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-hub", Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: &metav1.MicroTime{Time: renewed}},
	})
}

// CA-28: of a standalone hub.
func TestGetHubInfoStandalone(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putCRDs(t, h, "placements.cluster.open-cluster-management.io")
	h.Put(t, "/api/v1/namespaces/open-cluster-management-hub/configmaps/hub-info", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-hub", Name: "hub-info"},
		Data: map[string]string{"version": "v1.2.3", "controllers": "registration,work",
			"feature-gates": "ClusterProfile=false,DefaultClusterSet=true"},
	})
	h.Run(t, "", "get", "hub-info").Succeeds(t, `Hub: standalone, version v1.2.3
├── Registration Operator
│   ├── Controller: none found
│   └── CustomResourceDefinitions
│       └── clustermanagers.operator.open-cluster-management.io: installed [*v1]
├── Components
│   ├── Registration
`, `Controller: in the process of the hub
`, `Webhook: in the process of the hub
`, "managedclustersets.cluster.open-cluster-management.io: installed [*v1beta2]\n",
		"placements.cluster.open-cluster-management.io: absent\n",
		"ClusterProfile: false\n", "DefaultClusterSet: true\n")
	var info struct {
		Standalone struct{ Version string }
		Components []struct {
			Name       string
			Controller *struct{}
		}
	}
	if err := json.Unmarshal([]byte(h.Run(t, "", "get", "hub-info", "-o", "json").Out), &info); err != nil {
		t.Fatal(err)
	}
	var running []string
	for _, component := range info.Components {
		if component.Controller != nil {
			running = append(running, component.Name)
		}
	}
	if info.Standalone.Version != "v1.2.3" || strings.Join(running, " ") != "Registration Work" {
		t.Errorf("as JSON: %+v, running %v", info, running)
	}
}

// CA-28: of a hub in a Kubernetes cluster, by its Deployments, or by the Leases of processes.
func TestGetHubInfoInCluster(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putCRDs(t, h, "")
	manager := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	manager.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{
		FeatureGates: []operatorv1.FeatureGate{{Feature: "DefaultClusterSet", Mode: "Enable"}}}
	manager.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{FeatureGates: []operatorv1.FeatureGate{{Feature: "ManifestWorkReplicaSet",
		Mode: "Disable"}}}
	manager.Spec.PlacementConfiguration = &operatorv1.PlacementConfiguration{
		FeatureGates: []operatorv1.FeatureGate{{Feature: "PlacementDebugServer", Mode: "Enable"}}}
	h.Put(t, "/apis/operator.open-cluster-management.io/v1/clustermanagers/cluster-manager", manager)
	putDeployment(t, h, clitest.OperatorsPath, "open-cluster-management", "cluster-manager", 3, 2)
	putDeployment(t, h, deploymentsPath, "open-cluster-management-hub", "cluster-manager-registration-controller", 1, 1)
	putDeployment(t, h, deploymentsPath, "open-cluster-management-hub", "cluster-manager-work-webhook", 1, 1)
	putLease(t, h, "capstan-hub-controllers-placement", "host_1", time.Now())
	putLease(t, h, "capstan-hub-controllers-addon", "host_2", time.Now().Add(-2*time.Hour))
	h.Run(t, "", "get", "hub-info").Succeeds(t, "Hub: in a Kubernetes cluster\n",
		"Registration Operator\n│   ├── Controller: (2/3) example.com/cluster-manager:v1\n",
		"Registration\n│   │   ├── Controller: (1/1) example.com/cluster-manager-registration-controller:v1\n│   │   └── Custom",
		"Placement\n│   │   ├── Controller: process host_1\n",
		"Work\n│   │   ├── Controller: none found\n│   │   ├── Webhook: (1/1) example.com/cluster-manager-work-webhook:v1\n",
		"AddOn\n│       ├── Controller: none found\n",
		"DefaultClusterSet: true\n", "ManifestWorkReplicaSet: false\n", "PlacementDebugServer: true\n")
	h.Run(t, "", "get", "hub-info", "-o", "table").Fails(t, "tree, yaml, json")
	h.Run(t, "", "get", "hub-info", "now").Fails(t, "flags only")
}
