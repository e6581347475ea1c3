//go:build bench

package bench

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

const (
	rollouts   = 40
	unmanaged  = 9900
	configMaps = 100
	// settled is how long an agent is left alone until its memory is looked at.
	settled = 20 * time.Second
)

// measureFeedback times how long after a Deployment has become available on its cluster the hub knows, without any rule.
func measureFeedback(t *testing.T, r *report, hub, managed *env.Server) {
	c := hub.Client(t)
	var took []time.Duration
	for i := range rollouts {
		name := fmt.Sprintf("feedback-%d", i)
		available := watchFor(t, managed.Client(t), &appsv1.DeploymentList{}, name, func(o client.Object) bool {
			return o.(*appsv1.Deployment).Status.AvailableReplicas == 1
		})
		known := watchFor(t, c, &workv1.ManifestWorkList{}, name, func(o client.Object) bool {
			return meta.IsStatusConditionFalse(o.(*workv1.ManifestWork).Status.Conditions, fleet.ConditionProgressing)
		})
		create(t, c, workOf("cluster1", name, deploymentManifest(name)))
		at := <-available
		took = append(took, (<-known).Sub(at))
	}
	r.add("Deployment available on its cluster, known on the hub", "ms", "15", milliseconds(took)...)
}

func deploymentManifest(name string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"default","name":%q},"spec":{"selector":{"matchLabels":{"app":%q}},
		"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"web","image":"nginx"}]}}}}`, name, name, name)
}

// measureMemory looks at what an agent needs for what it does not manage.
func measureMemory(t *testing.T, r *report, hub *env.Server) {
	managed := env.StartSandbox(t)
	agent := env.Join(t, hub, managed, "full")
	var manifests []string
	for i := range configMaps {
		manifests = append(manifests,
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"managed-%d"},"data":{"key":%q}}`, i,
				content))
	}
	applied := watchWorks(t, hub, "full")
	for i := range configMaps / 10 {
		create(t, hub.Client(t), workOf("full", fmt.Sprintf("full-%d", i), manifests[10*i:10*i+10]...))
		applied.wait(t, fmt.Sprintf("full-%d", i))
	}
	restart := func() float64 {
		stopAgent(t, agent)
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		wait(t, settled)
		return usageOf(t, agent.Pid()).rss
	}
	alone := restart()
	fill(t, managed.Client(t))
	wait(t, settled)
	filled := usageOf(t, agent.Pid()).rss
	r.add("agent of 100 ConfigMaps: resident memory", "MB", "", alone)
	r.add("the same, when 9,900 of 10 kB were created next to them", "MB more", "10", filled-alone)
	r.add("the same, started next to them", "MB more", "10", restart()-alone)
}

func stopAgent(t *testing.T, agent *env.Agent) {
	if err := agent.Stop(); err != nil {
		t.Fatalf("the agent did not stop well: %v", err)
	}
}

var content = strings.Repeat("0123456789", 1000)

// fill creates what the agent has nothing to do with.
func fill(t *testing.T, c client.Client) {
	creators, ctx := errgroup.WithContext(t.Context())
	var next atomic.Int64
	for range 8 {
		creators.Go(func() error { return createUpTo(ctx, c, &next) })
	}
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
}

func createUpTo(ctx context.Context, c client.Client, next *atomic.Int64) error {
	for i := next.Add(1); i <= unmanaged; i = next.Add(1) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("unmanaged-%d", i)},
			Data: map[string]string{"key": content}}
		if err := c.Create(ctx, cm); err != nil {
			return err
		}
	}
	return nil
}

func workOf(cluster, name string, manifests ...string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	for _, m := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	return w
}
