package works

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// WK-15: while the hub is there but does not answer, and while it is gone, what the agent has applied stays as it is; what it
// could not tell is known when the hub is back.
func TestHubAway(t *testing.T) {
	t.Parallel()
	const cluster = "hub-away"
	own := env.StartHub(t, "")
	env.Join(t, own, framework.Managed, cluster, "--appliedmanifestwork-eviction-grace-period", "1s")
	h, m := own.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	w := framework.Work(cluster, cluster, framework.ConfigMap(ns, "kept", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	uid := framework.AwaitConfigMap(t, m, ns, "kept", "1").UID

	repaired := func(when string) {
		t.Helper()
		if err := m.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kept"}}); err != nil {
			t.Fatal(err)
		}
		now := framework.AwaitConfigMap(t, m, ns, "kept", "1").UID
		if now == uid {
			t.Errorf("%s: the object was not deleted", when)
		}
		uid = now
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(own.Pid(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	repaired("frozen")
	signal(syscall.SIGCONT)
	own.Kill()
	repaired("gone")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The agent has caught up when a change arrives; and it has taken nothing away by then.
	changed := client.MergeFrom(w.DeepCopy())
	w.Spec.Workload.Manifests = framework.RawManifests(framework.ConfigMap(ns, "kept", "2"))
	if err := h.Patch(t.Context(), w, changed); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		cm := &corev1.ConfigMap{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: ns, Name: "kept"}, cm); err != nil {
			return err
		}
		if cm.UID != uid {
			return fmt.Errorf("it is another object: %s, and was %s", cm.UID, uid)
		}
		if cm.Data["key"] != "2" {
			return fmt.Errorf("it holds %v", cm.Data)
		}
		return nil
	})
	framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
}
