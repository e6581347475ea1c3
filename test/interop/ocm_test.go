package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// startOCM starts a program of Open Cluster Management as its makers have written it, for as long as the test runs.
func startOCM(t *testing.T, program string, args ...string) {
	t.Helper()
	startOCMIn(t, nil, program, args...)
}

// startOCMIn starts one with variables, given as NAME=VALUE, in its environment.
func startOCMIn(t *testing.T, variables []string, program string, args ...string) {
	t.Helper()
	if err := env.NewProgram(t, variables, filepath.Join("ocm", program), args...).Start(); err != nil {
		t.Fatal(err)
	}
}

// startComponent starts one outside of a pod, with the access of an administrator to its cluster.
func startComponent(t *testing.T, in *env.Server, program, command string, flags ...string) {
	t.Helper()
	startOCM(t, program, append([]string{command, "--kubeconfig", in.Kubeconfig, "--disable-leader-election", "--listen",
		env.FreeAddress(t)}, flags...)...)
}

// createKinds creates kinds from files.
func createKinds(t *testing.T, c client.Client, files []string) {
	t.Helper()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kind := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		framework.Create(t, c, kind)
		framework.AwaitObject(t, c, kind, func(kind *apiextensionsv1.CustomResourceDefinition) error {
			for _, condition := range kind.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("%s is not established", kind.Name)
		})
	}
}

// filesOf are the files of a module, whose programs the tests run, that match a pattern.
func filesOf(t *testing.T, module, pattern string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-C", "ocm", "-m", "-f", "{{.Dir}}", module)
	list.Env = append(os.Environ(), "GOWORK=off")
	dir, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return files
}

// RG-01 RG-26 RG-27 WK-01 WK-13 WK-14: agents of Open Cluster Management join a hub, report on their cluster, and apply the works in its
// namespace.
func TestAgentsOfOCM(t *testing.T) {
	t.Parallel()
	const cluster = "ocm1"
	server, managed := env.StartHub(t, ""), env.StartSandbox(t)
	hub, there := server.Client(t), managed.Client(t)
	createKinds(t, there, filesOf(t, "open-cluster-management.io/ocm", "manifests/klusterlet/managed/*.crd.yaml"))
	framework.Create(t, there, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAgent}},
		&clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "region"}, Spec: clusterv1alpha1.ClusterClaimSpec{Value: "north"}})
	credentials := env.NewRegistrationAgent(t, server, managed, cluster) // for its files alone
	if err := os.MkdirAll(credentials.HubDir, 0o700); err != nil {
		t.Fatal(err)
	}
	startComponent(t, managed, "registration", "agent", "--spoke-cluster-name", cluster, "--bootstrap-kubeconfig", credentials.Bootstrap,
		"--hub-kubeconfig-dir", credentials.HubDir)
	// It asks for its certificate and for its cluster at the same time, and a certificate from before the cluster would not hold.
	framework.AwaitObject(t, hub, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		func(*clusterv1.ManagedCluster) error { return nil })
	env.Accept(t, hub, cluster)
	env.AwaitAvailable(t, hub, cluster)
	framework.AwaitObject(t, hub, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		func(cluster *clusterv1.ManagedCluster) error {
			for _, claim := range cluster.Status.ClusterClaims {
				if claim.Name == "region" && claim.Value == "north" && cluster.Status.Version.Kubernetes != "" {
					return nil
				}
			}
			return fmt.Errorf("%+v", cluster.Status)
		})

	kubeconfig := filepath.Join(credentials.HubDir, fleet.KeyKubeconfig)
	startComponent(t, managed, "work", "agent", "--spoke-cluster-name", cluster, "--hub-kubeconfig", kubeconfig, "--workload-source-config",
		kubeconfig)
	work := newWork(cluster, "web", "1")
	framework.Create(t, hub, work)
	awaitCondition(t, hub, work, fleet.ConditionApplied)
	awaitCondition(t, hub, work, fleet.ConditionAvailable)
	awaitValue(t, managed, "web", "1")
	set(t, hub, work, "2")
	awaitValue(t, managed, "web", "2")
	if err := hub.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, hub, work)
	awaitGone(t, there, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
}

// RG-20 RG-24 PL-01 MR-01 MR-02: the controllers of Open Cluster Management run on the API of a standalone hub: they accept our agent,
// choose its cluster by a Placement, and roll out a ManifestWorkReplicaSet, whose works the agent applies.
func TestControllersOfOCM(t *testing.T) {
	t.Parallel()
	const cluster = "capstan1"
	server, managed := env.StartHub(t, "none"), env.StartSandbox(t)
	hub := server.Client(t)
	startComponent(t, server, "registration", "controller", "--namespace", fleet.NamespaceHub)
	startComponent(t, server, "placement", "controller", "--namespace", fleet.NamespaceHub)
	startComponent(t, server, "work", "manager", "--namespace", fleet.NamespaceHub, "--feature-gates", "ManifestWorkReplicaSet=true")
	agent := env.NewAgent(t, server, managed, cluster, "")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, hub, cluster)
	env.AwaitAvailable(t, hub, cluster)

	named := metav1.ObjectMeta{Namespace: "default", Name: "everywhere"}
	framework.Create(t, hub,
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: named.Namespace, Name: "global"},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "global"}},
		&clusterv1beta1.Placement{ObjectMeta: named},
		&workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: named, Spec: workv1alpha1.ManifestWorkReplicaSetSpec{
			ManifestWorkTemplate: newWork("", "everywhere", "1").Spec, PlacementRefs: []workv1alpha1.LocalPlacementReference{{Name: named.Name}}}})
	everywhere := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: named}
	framework.AwaitObject(t, hub, everywhere, func(set *workv1alpha1.ManifestWorkReplicaSet) error {
		if !meta.IsStatusConditionTrue(set.Status.Conditions, "ManifestworkApplied") || set.Status.Summary.Applied != 1 {
			return fmt.Errorf("%+v", set.Status)
		}
		return nil
	})
	works := &workv1.ManifestWorkList{}
	if err := hub.List(t.Context(), works, client.InNamespace(cluster)); err != nil || len(works.Items) != 1 {
		t.Errorf("%d works, %v", len(works.Items), err)
	}
}

// AM-02 AF-05 AF-07: the manager of an add-on that is built with the add-on framework runs on a hub: it has our agent install the add-on's,
// approves its request, and gives it its rights.
func TestAddOnFramework(t *testing.T) {
	t.Parallel()
	const cluster, addOn = "capstan1", "helloworld"
	server, managed := env.StartHub(t, ""), env.StartSandbox(t)
	hub := server.Client(t)
	env.Join(t, server, managed, cluster)
	framework.Create(t, hub, &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: addOn}},
		&addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}})
	startOCM(t, "helloworld", "controller", "--kubeconfig", server.Kubeconfig)
	awaitAddOn(t, hub, cluster, addOn, append(slices.Clone(installed), fleet.ConditionAvailable)...)
	// Its credential is for the group to which the manager has given the rights: it reads ConfigMaps of its cluster.
	env.Eventually(t, func(ctx context.Context) error {
		key := client.ObjectKey{Namespace: fleet.NamespaceAgentAddOn, Name: addOn + "-hub-kubeconfig"}
		return managed.Client(t).Get(ctx, key, &corev1.Secret{})
	})
}
