package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	capi "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// Clusters of Cluster API, as its quick start has them, in both versions that it serves.
const (
	olderCluster = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata:
  namespace: rome
  name: rome
spec:
  clusterNetwork:
    pods:
      cidrBlocks: [192.168.0.0/16]
    serviceDomain: cluster.local
  controlPlaneRef:
    apiVersion: controlplane.cluster.x-k8s.io/v1beta1
    kind: KubeadmControlPlane
    name: rome-control-plane
  infrastructureRef:
    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
    kind: DockerCluster
    name: rome
`
	newerCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  namespace: milan
  name: milan
spec:
  clusterNetwork:
    pods:
      cidrBlocks: [192.168.0.0/16]
    serviceDomain: cluster.local
  controlPlaneRef:
    apiGroup: controlplane.cluster.x-k8s.io
    kind: KubeadmControlPlane
    name: milan-control-plane
  infrastructureRef:
    apiGroup: infrastructure.cluster.x-k8s.io
    kind: DockerCluster
    name: milan
`
)

// RG-47: an accepted ManagedCluster gets an agent by itself when Cluster API, which comes after the hub, says in either version of its API
// that the cluster of its name is provisioned. Each obstacle is in the condition, and goes when it is mended.
func TestImportOfClusterAPI(t *testing.T) {
	t.Parallel()
	hub := env.StartHub(t, "registration", "--feature-gates", "ClusterImporter=true", "--cluster-import-renderers", "render-auto")
	serveClusterAPI(t, hub.Client(t))
	for version, manifest := range map[string]string{"v1beta1": olderCluster, "v1beta2": newerCluster} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cluster := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(manifest), &cluster.Object); err != nil {
				t.Fatal(err)
			}
			testImport(t, hub.Client(t), cluster)
		})
	}
}

// testImport: the cluster is imported when it is provisioned, and the Secret next to it has its kubeconfig.
func testImport(t *testing.T, h client.Client, cluster *unstructured.Unstructured) {
	t.Helper()
	name := cluster.GetName()
	sandbox := env.StartSandbox(t)
	access, err := os.ReadFile(sandbox.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	framework.Create(t, h, framework.AcceptedCluster(name))
	framework.AwaitHubAccepted(t, h, name, metav1.ConditionTrue, "HubClusterAdminAccepted")

	framework.Create(t, h, cluster)
	reach(t, h, cluster, capi.ClusterPhaseProvisioning)
	awaitImport(t, h, name, "KubeConfigNotFound", `is "Provisioning"`)
	kubeconfig := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-kubeconfig",
		Labels: map[string]string{capi.ClusterNameLabel: name}}, Type: capi.ClusterSecretType,
		Data: map[string][]byte{"value": []byte("users: [{")}}
	framework.Create(t, h, kubeconfig)
	reach(t, h, cluster, capi.ClusterPhaseProvisioned)
	awaitImport(t, h, name, "KubeConfigGetFailed", "its value is no kubeconfig")
	kubeconfig.Data["value"] = access
	if err := h.Update(t.Context(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, h, name, "ImportSucceed", "")
	installed := &operatorv1.Klusterlet{}
	framework.Get(t, sandbox.Client(t), client.ObjectKey{Name: "klusterlet"}, installed)
	if installed.Spec.ClusterName != name {
		t.Errorf("the agent is that of %q, want %s", installed.Spec.ClusterName, name)
	}
}

// reach has the status say what the controllers of Cluster API say of a cluster in a phase.
func reach(t *testing.T, h client.Client, cluster *unstructured.Unstructured, phase capi.ClusterPhase) {
	t.Helper()
	if err := h.Status().Patch(t.Context(), cluster, framework.Merge(`{"status":{"phase":"`+string(phase)+`"}}`)); err != nil {
		t.Fatal(err)
	}
}

// serveClusterAPI has the hub serve Clusters by the CRD in the module of Cluster API. The webhook that converts them between versions is
// none of its own: only an installation adds it, with the controllers that serve it. Without, both have the fields of the same name, such
// as the phase.
func serveClusterAPI(t *testing.T, h client.Client) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatalf("find the module of Cluster API: %v", err)
	}
	file := filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases", "cluster.x-k8s.io_clusters.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, crd); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, h, crd)
	env.Eventually(t, func(ctx context.Context) error {
		for _, version := range []string{"v1beta1", "v1beta2"} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: capi.GroupVersion.Group, Version: version, Kind: "ClusterList"})
			if err := h.List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

// awaitImport waits for what the condition of a ManagedCluster says. Secrets are not watched: it may take until the next attempt.
func awaitImport(t *testing.T, h client.Client, name, reason, message string) {
	t.Helper()
	const longestPause = time.Minute
	env.EventuallyAfter(t, longestPause, func(ctx context.Context) error {
		cluster := &clusterv1.ManagedCluster{}
		if err := h.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, "ManagedClusterImportSucceeded")
		if condition == nil || condition.Reason != reason || !strings.Contains(condition.Message, message) {
			return fmt.Errorf("the condition is %+v, want %s: %s", condition, reason, message)
		}
		return nil
	})
}
