package registration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// startReplicas starts several hubs with empty folders, at the same time, on the etcd of another hub.
func startReplicas(t *testing.T, count int, flags ...string) []*env.Server {
	t.Helper()
	address := env.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	cert := filepath.Join(env.StartHub(t, "none", "--embedded-etcd-client-port", port).Dir, "data", "cert")
	external := fmt.Sprintf("etcd:\n  mode: external\n  servers: [https://%s]\n  prefix: /replicas\n  caFile: %s\n  certFile: %s\n  keyFile: %s\n",
		address, filepath.Join(cert, "ca-bundle", "etcd-ca-bundle.crt"), filepath.Join(cert, "etcd-client.crt"),
		filepath.Join(cert, "etcd-client.key"))
	var replicas []*env.Server
	for range count {
		replica, err := env.NewHub(t.TempDir(), "", flags...)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(replica.Dir, "ocmconfig.yaml")
		config, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		env.ReplaceFile(t, file, append(config, external...))
		if err := replica.Start(); err != nil {
			t.Fatal(err)
		}
		replica.StopWith(t)
		replicas = append(replicas, replica)
	}
	for _, replica := range replicas {
		if err := replica.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return replicas
}

// leads tells whether a hub is the one that runs the hub's controllers.
func leads(ctx context.Context, t *testing.T, replica *env.Server) (bool, error) {
	t.Helper()
	config, err := replica.Config()
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	return strings.Contains(string(metrics), fmt.Sprintf("leader_election_master_status{name=%q} 1", fleet.LeaseHubControllers)), err
}

func awaitLeader(t *testing.T, replicas []*env.Server) (leader int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		for i, replica := range replicas {
			if is, err := leads(ctx, t, replica); err != nil || is {
				leader = i
				return err
			}
		}
		return errors.New("none of the hubs leads")
	})
	return leader
}

// CP-07 SC-06 SC-08 SC-14 SC-16 SC-24, gap O8: hubs that start at the same time on one etcd are one hub. Whom one lets in the others let
// in, too, and when the one that runs the controllers is killed, another one goes on.
func TestReplicas(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3)
	first, err := replicas[0].Config()
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range replicas[1:] {
		config, err := replica.Config()
		if err != nil {
			t.Fatal(err)
		}
		if string(config.CAData) != string(first.CAData) || string(config.CertData) != string(first.CertData) {
			t.Error("the hubs have different CAs or administrators")
		}
	}

	issued := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap}}
	if err := replicas[0].Client(t).SubResource("token").Create(t.Context(), account, issued); err != nil {
		t.Fatal(err)
	}
	agent := env.Join(t, replicas[1], framework.Managed, "of-replicas")
	for i, replica := range replicas {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}
		if err := replica.Client(t).Create(t.Context(), review); err != nil || !review.Status.Authenticated {
			t.Errorf("hub %d does not know the token of another: %v, %s", i, err, review.Status.Error)
		}
		there := agent.HubConfig(t)
		config, err := replica.Config()
		if err != nil {
			t.Fatal(err)
		}
		there.Host = config.Host
		env.Eventually(t, func(ctx context.Context) error { // its rights come by a watch
			return env.ClientFor(t, there).Get(ctx, client.ObjectKey{Name: agent.Cluster}, &clusterv1.ManagedCluster{})
		})
	}

	testTunnelOfAnother(t, framework.NewProxied(t, replicas[1], "proxied-replica"), replicas)

	leader := awaitLeader(t, replicas)
	replicas[leader].Kill()
	others := slices.Concat(replicas[:leader], replicas[leader+1:])
	awaitLeader(t, others)
	c := others[0].Client(t)
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "after-the-leader"},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	env.Eventually(t, func(ctx context.Context) error {
		// The controllers of the hub make the namespace, and those of Kubernetes the account in it.
		return c.Get(ctx, client.ObjectKey{Namespace: "after-the-leader", Name: "default"}, &corev1.ServiceAccount{})
	})
	if err := replicas[leader].Start(); err != nil {
		t.Fatal(err)
	}
	if err := replicas[leader].AwaitReady(t.Context()); err != nil {
		t.Errorf("the one that was killed does not come back: %v", err)
	}
}

// testTunnelOfAnother: users reach a cluster through each of the hubs, to whichever its agent has its tunnel.
func testTunnelOfAnother(t *testing.T, p *framework.Proxied, replicas []*env.Server) {
	t.Helper()
	for _, replica := range replicas {
		there := *p
		there.On = replica
		env.Eventually(t, func(ctx context.Context) error {
			_, err := there.As(t, p.Alice).CoreV1().ConfigMaps(p.Name).List(ctx, metav1.ListOptions{})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "cluster:hub:`+p.Alice+`" cannot list resource "configmaps"`) {
				return fmt.Errorf("the cluster does not answer: %w", errors.Join(err, errors.New("no refusal")))
			}
			return nil
		})
	}
}
