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
	"time"

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

// startReplicas starts three hubs with empty folders, at the same time, on one etcd.
func startReplicas(t *testing.T, etcd *etcdCluster) []*env.Server {
	t.Helper()
	var replicas []*env.Server
	for range 3 {
		replica, err := env.NewHub(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(replica.Dir, "ocmconfig.yaml")
		config, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		env.ReplaceFile(t, file, append(config, etcd.config()...))
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

// CP-07 SC-06 SC-08 SC-14 SC-16 SC-24, gap O8: hubs that start at the same time on one etcd of three members are one hub. Whom one lets in
// the others let in, too. When the one that runs the controllers is killed, another one goes on, and so do all when a member of the
// etcd is.
func TestReplicas(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	replicas := startReplicas(t, etcd)
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
		t.Fatalf("the one that was killed does not come back: %v", err)
	}
	testFaultsUnderWrites(t, etcd, replicas, agent.Cluster)
}

// testFaultsUnderWrites: the hubs go on without any one member of their etcd, and while they are started anew one by one. No write is lost
// that they have acknowledged meanwhile, and one of them leads at a time.
func testFaultsUnderWrites(t *testing.T, etcd *etcdCluster, replicas []*env.Server, cluster string) {
	t.Helper()
	var hubs []client.WithWatch
	for _, replica := range replicas {
		hubs = append(hubs, replica.Client(t))
	}
	writes := startWriting(t, hubs, cluster)
	follower := (etcd.leader(t) + 1) % len(etcd.members)
	etcd.members[follower].Kill()
	testHubsGoOn(t, replicas, writes, "without-a-member")
	etcd.startAgain(t, follower)

	leader := etcd.leader(t)
	etcd.members[leader].Kill()
	testHubsGoOn(t, replicas, writes, "without-the-leader")
	etcd.startAgain(t, leader)

	for _, replica := range replicas {
		if err := errors.Join(replica.Stop(), replica.Start(), replica.AwaitReady(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	testHubsGoOn(t, replicas, writes, "after-all-restarts")
	writes.check(t)
}

// testHubsGoOn: each hub acknowledges writes from now on, one of them leads, and a work reaches its cluster.
func testHubsGoOn(t *testing.T, replicas []*env.Server, writes *writes, work string) {
	t.Helper()
	before := writes.counts()
	// One that could not renew its Lease while the etcd elected a leader has ended, and the next leads when the Lease is over.
	const election = 15 * time.Second
	env.EventuallyAfter(t, election, func(ctx context.Context) error {
		if err := startEnded(replicas); err != nil {
			return err
		}
		for i, count := range writes.counts() {
			if count == before[i] {
				return fmt.Errorf("hub %d acknowledges no writes", i)
			}
		}
		return oneLeads(ctx, t, replicas)
	})
	applied := framework.Work(writes.namespace, work, framework.ConfigMap("default", work, "applied"))
	env.Eventually(t, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(writes.hubs[0].Create(ctx, applied.DeepCopy()))
	})
	framework.AwaitCondition(t, writes.hubs[0], applied, fleet.ConditionApplied, metav1.ConditionTrue)
}

// startEnded starts the hubs that have ended, as what runs them as services does.
func startEnded(replicas []*env.Server) error {
	for _, replica := range replicas {
		select {
		case <-replica.Done():
			if err := replica.Start(); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// oneLeads returns an error unless one hub says that it runs the hub's controllers, and the others say that they do not.
func oneLeads(ctx context.Context, t *testing.T, replicas []*env.Server) error {
	t.Helper()
	leaders := 0
	for _, replica := range replicas {
		is, err := leads(ctx, t, replica)
		if err != nil {
			return err
		}
		if is {
			leaders++
		}
	}
	if leaders != 1 {
		return fmt.Errorf("%d hubs lead", leaders)
	}
	return nil
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
