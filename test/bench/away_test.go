//go:build bench

package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// measureAway stops the hub for as long as -away says, and times from its next start how soon each cluster beats again. Meanwhile an
// administrator asks for a cluster each second. No cluster may be taken for lost.
func measureAway(t *testing.T, hub *env.Server, clusters []string, add func(name, unit, target string, values ...float64)) {
	admin := administrator(t, hub)
	// The authorizer learns of the binding, and the client what the hub serves, which only the first request has to find out.
	env.Eventually(t, func(ctx context.Context) error {
		return admin.Get(ctx, client.ObjectKey{Name: clusters[0]}, &clusterv1.ManagedCluster{})
	})
	wait(t, settlePeriod)
	stop(t, hub)
	stopped := time.Now()
	wait(t, *away)
	begin := time.Now()
	ready := startToReady(t, hub)
	endOfRequests := askEachSecond(t, admin, clusters[0])
	back := awaitHeartbeats(t, hub.Client(t), len(clusters), stopped)
	requests := milliseconds(endOfRequests())
	slices.Sort(requests)
	add("hub away", "min", "", away.Minutes())
	add("hub away: start to ready", "s", "", ready.Seconds())
	add("hub away: start to heartbeats of all", "s", awayTarget, latest(back).Sub(begin).Seconds())
	add("hub away: start to heartbeat, each", "s", "", seconds(since(begin, back))...)
	add("hub away: request of an administrator, 99 %", "ms", "", percentile(requests, 99))
	add("hub away: request of an administrator, each second until then", "ms", "", requests...)
	checkNoneLost(t, hub.Client(t), stopped)
}

// administrator is a client of a user with all rights who waits for his turn as others do, which those of system:masters do not.
func administrator(t *testing.T, hub *env.Server) client.Client {
	const name = "bench-administrator"
	create(t, hub.Client(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	config := hubConfig(t, hub)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	return env.ClientFor(t, config)
}

// askEachSecond asks for a cluster once a second, and at least once, until it is stopped, and then returns how long each request took.
func askEachSecond(t *testing.T, c client.Client, cluster string) (stop func() []time.Duration) {
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var took []time.Duration
	go func() {
		defer close(ended)
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			took = append(took, ask(t, c, cluster))
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() []time.Duration {
		end()
		<-ended
		return took
	}
}

func ask(t *testing.T, c client.Client, cluster string) time.Duration {
	begin := time.Now()
	if err := c.Get(t.Context(), client.ObjectKey{Name: cluster}, &clusterv1.ManagedCluster{}); err != nil && t.Context().Err() == nil {
		t.Errorf("get ManagedCluster %s: %v", cluster, err)
	}
	return time.Since(begin)
}

// awaitHeartbeats returns when each of so many clusters was seen to have renewed its Lease after a time.
func awaitHeartbeats(t *testing.T, c client.WithWatch, clusters int, after time.Time) []time.Time {
	timeout := joinWithin(clusters)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	renewed := map[string]time.Time{}
	for len(renewed) < clusters && ctx.Err() == nil {
		seeHeartbeats(ctx, t, c, clusters, after, renewed)
	}
	if len(renewed) < clusters {
		t.Fatalf("after %s, %d of %d clusters have renewed their Leases", timeout, len(renewed), clusters)
	}
	times := make([]time.Time, 0, clusters)
	for _, at := range renewed {
		times = append(times, at)
	}
	return times
}

// seeHeartbeats watches the Leases, which begins with all as they are, until those of so many clusters are renewed or the watch ends.
func seeHeartbeats(ctx context.Context, t *testing.T, c client.WithWatch, clusters int, after time.Time, renewed map[string]time.Time) {
	w, err := c.Watch(ctx, &coordinationv1.LeaseList{}, client.MatchingFields{"metadata.name": fleet.ClusterNamespaceLease})
	if err != nil {
		t.Logf("watch the Leases of clusters: %v", err)
		wait(t, time.Second)
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok || event.Type == watch.Deleted || lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(after) {
			continue
		}
		if _, seen := renewed[lease.Namespace]; !seen {
			renewed[lease.Namespace] = time.Now()
		}
		if len(renewed) == clusters {
			return
		}
	}
}

// checkNoneLost fails the test if a cluster is lost, or was after a time.
func checkNoneLost(t *testing.T, c client.Client, after time.Time) {
	clusters := &clusterv1.ManagedClusterList{}
	if err := c.List(t.Context(), clusters); err != nil {
		t.Fatal(err)
	}
	var lost []string
	for i := range clusters.Items {
		cond := meta.FindStatusCondition(clusters.Items[i].Status.Conditions, fleet.ConditionClusterAvailable)
		if cond == nil || cond.Status != metav1.ConditionTrue || cond.LastTransitionTime.After(after) {
			lost = append(lost, clusters.Items[i].Name)
		}
	}
	if len(lost) > 0 {
		t.Errorf("%d clusters were taken for lost while the hub was away, such as %q", len(lost), lost[:min(len(lost), 10)])
	}
}
