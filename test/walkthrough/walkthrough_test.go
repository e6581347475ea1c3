// Package walkthrough does on clusters with real pods what the documents tell users to do: with the command line, the images and the
// operators, as they are released.
package walkthrough

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// Where make puts the programs and the images of this commit, and the tag of these.
const (
	programs = "../../bin"
	images   = "../../bin/images"
	tag      = "test"
)

// user is a user of the command line whose kubeconfig leads to a cluster.
type user struct {
	kubeconfig string
	overrides  string
}

func newUser(t *testing.T, cluster *realcluster.Cluster) user {
	t.Helper()
	u := user{kubeconfig: cluster.Kubeconfig, overrides: filepath.Join(t.TempDir(), "overrides.json")}
	if err := os.WriteFile(u.overrides, []byte(`{"ocm": "`+tag+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return u
}

// capstan runs the command line, which must succeed, and returns what it writes to standard output.
func (u user) capstan(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(programs, "capstan"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+u.kubeconfig, "CAPSTAN_HOME="+t.TempDir())
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		t.Fatalf("capstan %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String()
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// importImages gives the nodes of a cluster the images of this commit.
func importImages(t *testing.T, cluster *realcluster.Cluster) {
	t.Helper()
	for _, image := range []string{"capstan-hub", "capstan-agent"} {
		cluster.Import(t, filepath.Join(images, image+".tar"))
	}
}

// A hub is installed with one command, works, comes back after all of its pods are killed, and leaves nothing when it is removed.
//
// CA-10, CA-12, CA-20, CM-02, CM-17, HC-02
func TestInitAndClean(t *testing.T) {
	t.Parallel()
	cluster := realcluster.Start(t, realcluster.Options{Name: "hub"})
	importImages(t, cluster)
	before := cluster.Inventory(t)
	u := newUser(t, cluster)
	out := u.capstan(t, "init", "--wait", "--bundle-version-overrides", u.overrides)
	if !strings.Contains(out, "The multicluster hub control plane has been initialized successfully!") || !strings.Contains(out, "capstan join --hub-token") {
		t.Errorf("init says:\n%s", out)
	}
	// The webhooks answer the API server: without them it would refuse this.
	awaitAccepted(t, cluster, "c1")

	for _, namespace := range []string{fleet.NamespaceHub, fleet.NamespaceOperators} {
		for _, pod := range cluster.Pods(t, namespace, nil) {
			if err := cluster.Client.Delete(t.Context(), &pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitAccepted(t, cluster, "c2")

	u.capstan(t, "clean")
	// The namespaces of clusters hold what others have stored in them.
	for _, name := range []string{"c1", "c2"} {
		namespace := &corev1.Namespace{}
		namespace.Name = name
		if err := cluster.Client.Delete(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		cluster.AwaitGone(t, namespace)
	}
	if left := before.Compare(cluster.Inventory(t)); left != "" {
		t.Errorf("what is left:\n%s", left)
	}
}

// awaitAccepted waits until the webhooks let a cluster be created, and the controllers have made its namespace.
func awaitAccepted(t *testing.T, hub *realcluster.Cluster, name string) {
	t.Helper()
	hub.Eventually(t, func(ctx context.Context) error {
		cluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
		cluster.Name = name
		return client.IgnoreAlreadyExists(hub.Client.Create(ctx, cluster))
	})
	hub.Eventually(t, func(ctx context.Context) error {
		return hub.Client.Get(ctx, types.NamespacedName{Name: name}, &corev1.Namespace{})
	})
}

// A cluster joins with the command that init prints, in each mode, runs what the hub gives it, and leaves without a trace.
//
// CA-15, CA-16, CA-17, CA-18, CA-19, KL-02, KL-03
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	clusters := realcluster.StartAll(t, realcluster.Options{Name: "hub"}, realcluster.Options{Name: "cluster1"})
	hub, managed := clusters[0], clusters[1]
	importImages(t, hub)
	importImages(t, managed)
	ofHub, ofCluster := newUser(t, hub), newUser(t, managed)
	initialized := ofHub.capstan(t, "init", "--wait", "--bundle-version-overrides", ofHub.overrides)
	for _, mode := range []struct {
		name        string
		flags       []string
		deployments []string
	}{
		{"Default", nil, []string{"klusterlet-registration-agent", "klusterlet-work-agent"}},
		{"Singleton", []string{"--singleton"}, []string{"klusterlet-agent"}},
	} {
		t.Run(mode.name, func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
			name, before := "cluster-"+strings.ToLower(mode.name), managed.Inventory(t)
			join := slices.Concat(joinCommand(t, initialized, name), mode.flags)
			ofCluster.capstan(t, append(join, "--bundle-version-overrides", ofCluster.overrides)...)
			ofHub.capstan(t, "accept", "--clusters", name, "--wait")
			for _, deployment := range mode.deployments {
				managed.AwaitAvailable(t, fleet.NamespaceAgent, deployment)
			}
			ofHub.capstan(t, "create", "work", "hello", "--clusters", name, "-f", helloPod(t))
			managed.AwaitPhase(t, "default", "hello", corev1.PodRunning)
			awaitWorkAvailable(t, hub, name)

			ofHub.capstan(t, "delete", "work", "hello", "--clusters", name)
			ofCluster.capstan(t, "unjoin", "--cluster-name", name, "--wait")
			if left := before.Compare(managed.Inventory(t)); left != "" {
				t.Errorf("what is left on the cluster:\n%s", left)
			}
			cluster := &clusterv1.ManagedCluster{}
			cluster.Name = name
			if err := hub.Client.Delete(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			hub.AwaitGone(t, cluster)
		})
	}
}

// joinCommand is the command that the output of init has for a cluster, without the name of the program.
func joinCommand(t *testing.T, output, cluster string) []string {
	t.Helper()
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "capstan" && words[1] == "join" {
			return strings.Fields(strings.ReplaceAll(strings.Join(words[1:], " "), "<cluster_name>", cluster))
		}
	}
	t.Fatalf("init prints no command to join:\n%s", output)
	return nil
}

// helloPod is a file with a pod that runs until it is deleted.
func helloPod(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hello.yaml")
	pod := `
apiVersion: v1
kind: Pod
metadata: {name: hello, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: hello
    image: ` + realcluster.TestImage + `
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'echo "Hello, Kubernetes!" && sleep 3600']
`
	if err := os.WriteFile(file, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// awaitWorkAvailable waits until the hub says that what the work has runs.
func awaitWorkAvailable(t *testing.T, hub *realcluster.Cluster, cluster string) {
	t.Helper()
	hub.Eventually(t, func(ctx context.Context) error {
		work := &workv1.ManifestWork{}
		if err := hub.Client.Get(ctx, types.NamespacedName{Namespace: cluster, Name: "hello"}, work); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionAvailable) {
			return fmt.Errorf("the work has the conditions %v", work.Status.Conditions)
		}
		return nil
	})
}
