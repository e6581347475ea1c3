package managedclusters_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
)

const clustersPath = "/apis/cluster.open-cluster-management.io/v1/managedclusters"

func managedCluster(name string, accepted bool) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted},
	}
}

func TestWaitForCluster(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	hub := fake.Client(t)
	seen, done := make(chan struct{}), make(chan error)
	see := sync.OnceFunc(func() { close(seen) })
	go func() {
		done <- managedclusters.Wait(t.Context(), hub, "cluster1", func(c *clusterv1.ManagedCluster) bool {
			if c.Name == "cluster1" && !c.Spec.HubAcceptsClient {
				see()
			}
			return c.Spec.HubAcceptsClient
		})
	}()
	fake.Put(t, clustersPath+"/cluster2", managedCluster("cluster2", true))
	fake.Put(t, clustersPath+"/cluster1", managedCluster("cluster1", false))
	<-seen
	fake.Put(t, clustersPath+"/cluster1", managedCluster("cluster1", true))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWaitForClusterEnds(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	why := errors.New("the agent died")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	err := managedclusters.Wait(ctx, fake.Client(t), "cluster1", func(*clusterv1.ManagedCluster) bool { return true })
	if !errors.Is(err, why) {
		t.Errorf("error %v, want the cause %v", err, why)
	}

	fake.Handle("GET "+clustersPath, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))
	err = managedclusters.Wait(t.Context(), fake.Client(t), "cluster1", func(*clusterv1.ManagedCluster) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "ask an administrator") {
		t.Errorf("error %v, want what to do", err)
	}
}
