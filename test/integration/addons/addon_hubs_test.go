package addons

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

func awaitCertificateRotated(t *testing.T, admin client.Client, addOn *addonv1beta1.ManagedClusterAddOn, status metav1.ConditionStatus,
	words string) {
	t.Helper()
	framework.AwaitObject(t, admin, addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionCertificateRotated)
		if cond == nil || cond.Status != status || !strings.Contains(cond.Message, words) {
			return fmt.Errorf("want %s %q, have %+v", status, words, cond)
		}
		return nil
	})
}

// awaitAddOnRequests waits until an add-on has asked for certificates of all of these signers.
func awaitAddOnRequests(t *testing.T, admin client.Client, cluster string, signers ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := admin.List(ctx, list, client.MatchingLabels(framework.OfCluster(cluster)), client.HasLabels{fleet.LabelAddOnName}); err != nil {
			return err
		}
		asked := map[string]bool{}
		for i := range list.Items {
			asked[list.Items[i].Spec.SignerName] = true
		}
		for _, signer := range signers {
			if !asked[signer] {
				return fmt.Errorf("no request for %s among %d", signer, len(list.Items))
			}
		}
		return nil
	})
}

// RG-60 RG-64: certificates of an add-on belong to one hub. Those of one that was set up again at the same address are asked for at once,
// and it is not said meanwhile that all is well.
func TestAddOnOfHubSetUpAgain(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "registration")
	name := "addonanew-" + rand.String(5)
	cluster := name
	agent := env.Join(t, own, framework.Managed, cluster)
	registrations := []addonv1beta1.RegistrationConfig{framework.KubeClient(cluster, name), customSigner("hello")}
	framework.ManageAddOnsOn(t, own, cluster, time.Hour)
	addOn := framework.RegisteredOn(t, own.Client(t), cluster, name, registrations...)
	m := framework.Managed.Client(t)
	kube := framework.AwaitSecret(t, m, name, name+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	custom := framework.AwaitSecret(t, m, name, name+"-example.com-hello-client-cert", framework.CertKeys, framework.AnySecret)
	awaitCertificateRotated(t, own.Client(t), addOn, metav1.ConditionTrue, "valid from")

	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(own.Dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := own.Client(t)
	framework.Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster,
		Labels: map[string]string{fleet.LabelClusterName: cluster}}})
	addOn = framework.RegisteredOn(t, admin, cluster, name, registrations...)
	agent.WriteBootstrap(t, own, own.BootstrapToken(t))
	env.Accept(t, admin, cluster)
	awaitAddOnRequests(t, admin, cluster, fleet.SignerKubeAPIServerClient, framework.Signer)
	awaitCertificateRotated(t, admin, addOn, metav1.ConditionFalse, "another hub")

	framework.ManageAddOnsOn(t, own, cluster, time.Hour)
	now := framework.AwaitSecret(t, m, name, kube.Name, framework.KubeKeys, framework.Fresh(kube, "tls.crt"))
	if who := framework.WhoIs(t, framework.ConfigOf(t, now)); who.Username != fleet.AddOnUser(cluster, name, "agent") {
		t.Errorf("the add-on is %+v", who)
	}
	framework.AwaitSecret(t, m, name, custom.Name, framework.CertKeys, framework.Fresh(custom, "tls.crt"))
	awaitCertificateRotated(t, admin, addOn, metav1.ConditionTrue, "valid from")
}

// RG-53 RG-60: the same of certificates and tokens when the agent turns to another hub.
func TestAddOnMovesToAnotherHub(t *testing.T) {
	t.Parallel()
	next := env.StartHub(t, "")
	for driver, keys := range map[string][]string{"csr": framework.KubeKeys, "token": {"kubeconfig", "token"}} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := "addonmoves-" + driver + "-" + rand.String(5)
			agent := env.Join(t, framework.Hub, framework.Managed, cluster, "--addon-kubeclient-registration-auth", driver)
			manageAddOns(t, cluster, time.Hour)
			framework.RegisteredOn(t, framework.Hub.Client(t), cluster, cluster, framework.KubeClient(cluster, cluster))
			m := framework.Managed.Client(t)
			before := framework.AwaitSecret(t, m, cluster, cluster+"-hub-kubeconfig", keys, framework.AnySecret)
			agent.WriteBootstrap(t, next, next.BootstrapToken(t))
			env.Accept(t, next.Client(t), cluster)
			env.AwaitAvailable(t, next.Client(t), cluster)
			framework.ManageAddOnsOn(t, next, cluster, time.Hour)
			framework.RegisteredOn(t, next.Client(t), cluster, cluster, framework.KubeClient(cluster, cluster))
			secret := framework.AwaitSecret(t, m, cluster, before.Name, keys, framework.Fresh(before, keys[1]))
			if who := framework.WhoIs(t, framework.ConfigOf(t, secret)); !strings.Contains(who.Username, cluster) {
				t.Errorf("the add-on is %+v", who)
			}
		})
	}
}
