//go:build bench

package bench

import (
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/test/env"
)

const (
	// revokedClusters is how many clusters lose their tunnels in each way, unless the fleet has less than twice as many.
	revokedClusters = 10
	// revokedWatches is how many watches are open in each of these tunnels.
	revokedWatches = 10
	// revokedTarget is in milliseconds.
	revokedTarget = "1000"
)

// measureRevocations takes their tunnels from clusters, one after the other, and measures how long what is open in them goes on. The time
// begins before the request that does it, so it is never too short.
func measureRevocations(t *testing.T, add func(name, unit, target string, values ...float64), hub *env.Server, clusters []string) {
	config := hubConfig(t, hub)
	requests, c := clientOf(t, config), hub.Client(t)
	denial := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`))
	n := min(revokedClusters, len(clusters)/2)
	for i, way := range []struct {
		name   string
		revoke func(cluster string) error
	}{
		{"cluster denied", func(cluster string) error {
			return c.Patch(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, denial)
		}},
		{"add-on disabled", func(cluster string) error { return c.Delete(t.Context(), proxyOn(cluster)) }},
	} {
		var took []time.Duration
		for _, cluster := range clusters[i*n : (i+1)*n] {
			ended := watchToTheEnd(t, requests, config, cluster)
			begin := time.Now()
			if err := way.revoke(cluster); err != nil {
				t.Fatal(err)
			}
			took = append(took, awaitEnds(t, cluster, begin, ended)...)
		}
		add(way.name+", to the end of each watch in its tunnel", "ms", revokedTarget, milliseconds(took)...)
	}
}

// watchToTheEnd opens watches in the tunnel of a cluster, and says when each of them ends.
func watchToTheEnd(t *testing.T, c *http.Client, hub *rest.Config, cluster string) <-chan time.Time {
	t.Helper()
	ended := make(chan time.Time, revokedWatches)
	for range revokedWatches {
		body, err := openWatch(c, hub, cluster)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer body.Close()
			_, _ = io.Copy(io.Discard, body) // one that is cut off ends with an error
			ended <- time.Now()
		}()
	}
	return ended
}

// awaitEnds returns how long after the begin each watch has ended.
func awaitEnds(t *testing.T, cluster string, begin time.Time, ended <-chan time.Time) (took []time.Duration) {
	t.Helper()
	deadline := time.After(env.WaitTimeout)
	for i := range revokedWatches {
		select {
		case at := <-ended:
			if at.Before(begin) {
				t.Fatalf("a watch of %s has ended before its tunnel was to end", cluster)
			}
			took = append(took, at.Sub(begin))
		case <-deadline:
			t.Fatalf("%d of %d watches of %s go on", revokedWatches-i, revokedWatches, cluster)
		}
	}
	return took
}
