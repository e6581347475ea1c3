package cli

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// A cluster that was cut off is accepted again without what was stolen before: its agent asks for another certificate, and has the add-ons
// get others.
func TestCutOffClusterComesBack(t *testing.T) {
	t.Parallel()
	const name = "cut-off-and-back"
	own := env.StartHub(t, "registration")
	admin := own.Client(t)
	agent := env.Join(t, own, framework.Managed, name)
	before := env.ClientFor(t, framework.CredentialOf(t, agent))
	framework.ManageAddOnsOn(t, own, name, time.Hour)
	framework.RegisteredOn(t, admin, name, name, framework.KubeClient(name, name))
	secret := framework.AwaitSecret(t, framework.Managed.Client(t), name, name+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	stolen := env.ClientFor(t, framework.ConfigOf(t, secret))

	if result := own.Capstan(t, "", "deny", "--clusters", name, "--now"); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	framework.AwaitRefused(t, before, name)
	framework.AwaitAnotherRequest(t, admin, name)
	if result := own.Capstan(t, "", "accept", "--clusters", name, "--skip-approve-check"); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	now := framework.AwaitSecret(t, framework.Managed.Client(t), name, secret.Name, framework.KubeKeys, framework.Fresh(secret, "tls.crt"))
	if who := framework.WhoIs(t, framework.ConfigOf(t, now)); who.Username != fleet.AddOnUser(name, name, "agent") {
		t.Errorf("the add-on is %+v", who)
	}
	framework.AwaitRights(t, env.ClientFor(t, framework.CredentialOf(t, agent)), name, framework.AllRights)
	framework.AwaitRefused(t, before, name)
	if err := stolen.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(name)); !apierrors.IsUnauthorized(err) {
		t.Errorf("the old certificate of the add-on: %v", err)
	}
}
