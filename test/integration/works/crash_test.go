package works

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// bulkTime is how long hundreds of objects may take, which is work for the CPU: seconds of it, minutes on a busy machine.
const bulkTime = 2 * time.Minute

// awaitApplied waits until a cluster has n works and all of them are applied.
func awaitApplied(t *testing.T, c client.Client, cluster string, n int) {
	t.Helper()
	env.EventuallyAfter(t, bulkTime, func(ctx context.Context) error {
		works := &workv1.ManifestWorkList{}
		if err := c.List(ctx, works, client.InNamespace(cluster)); err != nil {
			return err
		}
		applied := 0
		for _, w := range works.Items {
			if meta.IsStatusConditionTrue(w.Status.Conditions, fleet.ConditionApplied) {
				applied++
			}
		}
		if len(works.Items) != n || applied != n {
			return fmt.Errorf("%d of %d works of %s are applied, want %d", applied, len(works.Items), cluster, n)
		}
		return nil
	})
}

// awaitConfigMaps waits until a namespace holds so many ConfigMaps with the label.
func awaitConfigMaps(t *testing.T, c client.Client, namespace string, n int) {
	t.Helper()
	env.EventuallyAfter(t, bulkTime, func(ctx context.Context) error {
		list := &corev1.ConfigMapList{}
		if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"test": "yes"}); err != nil || len(list.Items) != n {
			return fmt.Errorf("%d of %d ConfigMaps: %w", len(list.Items), n, err)
		}
		return nil
	})
}

// bulk makes works of manifests each.
func bulk(cluster, namespace string, works, manifests int) []client.Object {
	var all []client.Object
	for i := range works {
		var list []string
		for j := range manifests {
			list = append(list, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"%s-%d-%d","labels":{"test":"yes"}},"data":{"key":"%d"}}`, namespace, cluster, i, j, j))
		}
		all = append(all, framework.Work(cluster, fmt.Sprintf("%s-%d", cluster, i), list...))
	}
	return all
}

// A thousand manifests in a hundred works are applied, and all of them go again.
func TestThousandManifests(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "thousand")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "thousand")
	works := bulk("thousand", ns, 100, 10)
	framework.Create(t, h, works...)
	awaitApplied(t, h, "thousand", len(works))
	awaitConfigMaps(t, m, ns, 1000)
	if err := h.DeleteAllOf(t.Context(), &workv1.ManifestWork{}, client.InNamespace("thousand")); err != nil {
		t.Fatal(err)
	}
	awaitApplied(t, h, "thousand", 0)
	awaitConfigMaps(t, m, ns, 0)
}

// A hub that is killed while works are created and applied comes back with all that it acknowledged, and the agent goes on
// where it was, under the identity it had.
func TestHubKilledWhileApplying(t *testing.T) {
	t.Parallel()
	const cluster, n = "hub-crash", 60
	own := env.StartHub(t, "")
	agent := env.Join(t, own, framework.Managed, cluster)
	c := own.Client(t)
	mc := &clusterv1.ManagedCluster{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: cluster}, mc); err != nil {
		t.Fatal(err)
	}
	ns := framework.Namespace(t, framework.Managed.Client(t), cluster)
	acknowledged := createWhile(t, c, bulk(cluster, ns, n, 2), func(done int) {
		if done == n/2 {
			own.Kill()
		}
	})
	if acknowledged < n/2 || acknowledged == n {
		t.Fatalf("%d of %d works were created: the hub was not killed in between", acknowledged, n)
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	// One more may have been written than could be acknowledged.
	works := &workv1.ManifestWorkList{}
	if err := c.List(t.Context(), works, client.InNamespace(cluster)); err != nil {
		t.Fatal(err)
	}
	if len(works.Items) < acknowledged {
		t.Fatalf("%d works were acknowledged, %d are there", acknowledged, len(works.Items))
	}
	awaitApplied(t, c, cluster, len(works.Items))
	awaitConfigMaps(t, framework.Managed.Client(t), ns, 2*len(works.Items))
	again := &clusterv1.ManagedCluster{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: cluster}, again); err != nil || again.UID != mc.UID {
		t.Errorf("the ManagedCluster was %s and is %s: %v", mc.UID, again.UID, err)
	}
	select {
	case <-agent.Done():
		t.Error("the agent ended")
	default:
	}
}

// An agent that is killed while it applies goes on when it is started again, under the identity it had: everything is
// applied once, and nothing is left behind.
func TestAgentKilledWhileApplying(t *testing.T) {
	t.Parallel()
	const cluster, n = "agent-crash", 60
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	identity := framework.Certificate(t, agent)
	createWhile(t, h, bulk(cluster, ns, n, 2), func(done int) {
		if done == n/2 {
			agent.Kill()
		}
	})
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitApplied(t, h, cluster, n)
	awaitConfigMaps(t, m, ns, 2*n)
	if framework.Certificate(t, agent) != identity {
		t.Error("the agent registered again")
	}
	if err := h.DeleteAllOf(t.Context(), &workv1.ManifestWork{}, client.InNamespace(cluster)); err != nil {
		t.Fatal(err)
	}
	agent.Kill()
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitApplied(t, h, cluster, 0)
	awaitConfigMaps(t, m, ns, 0)
	applied := &workv1.AppliedManifestWorkList{}
	if err := m.List(t.Context(), applied); err != nil {
		t.Fatal(err)
	}
	for _, amw := range applied.Items {
		if len(amw.Spec.ManifestWorkName) > len(cluster) && amw.Spec.ManifestWorkName[:len(cluster)] == cluster {
			t.Errorf("AppliedManifestWork %s is left behind", amw.Name)
		}
	}
}

// createWhile creates objects one after the other until one fails, and calls f after each. It returns how many the server
// acknowledged.
func createWhile(t *testing.T, c client.Client, objects []client.Object, f func(done int)) int {
	t.Helper()
	done := 0
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			return done
		}
		done++
		f(done)
	}
	return done
}
