package fleetsim

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	// The second handler of errors slows them down by the time of the last one, which may have been at another time than a bubble's.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(env.Run(m))
}

const (
	size = 10
	lost = 2
)

// RG-01 RG-20 RG-23 WK-01: what a fleet of real agents does, this one does.
func TestFleet(t *testing.T) {
	t.Parallel()
	hub := env.StartHub(t, "registration,work", HubFlags()...)
	c := hub.Client(t)
	members := startFleet(t, hub, size)
	for _, m := range members {
		env.AwaitAvailable(t, c, m.Name)
		beatFast(t, c, m.Name)
	}

	for _, m := range members {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: m.Name, Name: "work"}}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"mine"},"data":{"of":%q}}`,
				m.Name),
		}}}
		if err := c.Create(t.Context(), work); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		awaitApplied(t, c, m)
	}

	for _, m := range members[:lost] {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	}
	for _, m := range members[:lost] {
		awaitStatus(t, c, m.Name, metav1.ConditionUnknown)
	}
	for _, m := range members[lost:] {
		awaitStatus(t, c, m.Name, metav1.ConditionTrue)
	}
	members[:lost].Start()
	for _, m := range members[:lost] {
		awaitStatus(t, c, m.Name, metav1.ConditionTrue)
	}
}

func startFleet(t *testing.T, hub *env.Server, size int) Fleet {
	t.Helper()
	o := optionsFor(t, hub)
	o.Size = size
	members, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	start(t, members)
	return members
}

// optionsFor are those of fleets that join the hub.
func optionsFor(t *testing.T, hub *env.Server) Options {
	t.Helper()
	token, err := NewToken(t.Context(), hub.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Hub: config, Token: token, Dir: t.TempDir()}
}

// start runs a fleet until the end of the test.
func start(t *testing.T, members Fleet) {
	t.Helper()
	members.Start()
	t.Cleanup(func() {
		if err := members.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// beatFast makes the loss of a cluster be seen after five seconds.
func beatFast(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if err := c.Patch(t.Context(), mc,
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"leaseDurationSeconds":1}}`))); err != nil {
		t.Fatal(err)
	}
}

// awaitApplied waits until the hub says so, and sees whether it is true.
func awaitApplied(t *testing.T, c client.Client, m *Member) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		work := &workv1.ManifestWork{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: m.Name, Name: "work"}, work); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied) {
			return fmt.Errorf("the work of %s is not Applied: %+v", m.Name, work.Status)
		}
		return nil
	})
	cm := &corev1.ConfigMap{}
	if err := env.ClientFor(t, m.Cluster.Config()).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "mine"}, cm); err != nil {
		t.Fatal(err)
	}
	if cm.Data["of"] != m.Name {
		t.Errorf("%s has the work of %q", m.Name, cm.Data["of"])
	}
}

func awaitStatus(t *testing.T, c client.Client, cluster string, available metav1.ConditionStatus) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: cluster}, mc); err != nil {
			return err
		}
		if cond := meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClusterAvailable); cond == nil || cond.Status != available {
			return fmt.Errorf("%s: want %s=%s, have %+v", cluster, fleet.ConditionClusterAvailable, available, cond)
		}
		return nil
	})
}
