// Package walkthrough does on clusters with real pods what the documents tell users to do: with the command line, the images and the
// operators, as they are released.
package walkthrough

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
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
