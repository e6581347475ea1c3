package cli

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// "Cuts off a compromised cluster in one command: denial, rights gone, watches ended, the identity refused from then on."
func TestCutOffCluster(t *testing.T) {
	t.Parallel()
	const name = "cut-off"
	framework.AcceptAll(t, name)
	admin, agent := framework.Hub.Client(t), framework.AsAgent(t, framework.Hub, name)
	held := framework.Work(name, name+"-held", framework.ConfigMap("default", name, "x"))
	held.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	framework.Create(t, admin, held)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	addOn, _ := framework.AsAddOn(t, admin, name)
	works, seen := framework.Follow(t, agent, &workv1.ManifestWorkList{}, name), framework.Follow(t, addOn, &corev1.ConfigMapList{}, name)
	start := time.Now()
	result := framework.Hub.Capstan(t, "", "deny", "--clusters", name, "--now")
	if result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
	framework.AwaitEnd(t, works)
	framework.AwaitEnd(t, seen)
	framework.AwaitRefused(t, agent, name)
	if err := agent.Get(t.Context(), client.ObjectKeyFromObject(held), held); !apierrors.IsUnauthorized(err) {
		t.Errorf("the agent reads its work: %v", err)
	}
	// Its role and binding are there: it is who it is that is refused, by an old certificate and by a new one.
	if err := addOn.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(name)); !apierrors.IsUnauthorized(err) {
		t.Errorf("the add-on reads ConfigMaps: %v", err)
	}
	subject := pkix.Name{CommonName: fleet.AddOnUser(name, "spy", "agent"), Organization: fleet.AddOnGroups(name, "spy")}
	again := env.ClientFor(t, framework.WithCertificate(t, framework.Hub, subject, nil))
	env.Eventually(t, func(ctx context.Context) error { // it is valid from the next second on
		if err := again.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(name)); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the add-on reads ConfigMaps by a new certificate: %w", err)
		}
		return nil
	})
	framework.DeleteCluster(t, admin, name)
	framework.AwaitGone(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
}
