package integration

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
)

// registeredOn makes an add-on on a hub, as one that has come back from a backup: its status says that all is well.
func registeredOn(t *testing.T, admin client.Client, cluster, name string,
	registrations ...addonv1beta1.RegistrationConfig) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	create(t, admin, addOn)
	addOn.Status = addonv1beta1.ManagedClusterAddOnStatus{Namespace: name, Registrations: registrations, Conditions: []metav1.Condition{{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionTrue, Reason: fleet.ReasonClientCertificateUpdated,
		Message: "from before", LastTransitionTime: metav1.Now(),
	}}}
	if err := admin.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	return addOn
}

func awaitCertificateRotated(t *testing.T, admin client.Client, addOn *addonv1beta1.ManagedClusterAddOn, status metav1.ConditionStatus,
	words string) {
	t.Helper()
	awaitObject(t, admin, addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
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
		if err := admin.List(ctx, list, client.MatchingLabels(ofCluster(cluster)), client.HasLabels{fleet.LabelAddOnName}); err != nil {
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
	agent := env.Join(t, own, managed, cluster)
	registrations := []addonv1beta1.RegistrationConfig{kubeClient(cluster, name), customSigner("hello")}
	manageAddOnsOn(t, own, cluster, time.Hour)
	addOn := registeredOn(t, own.Client(t), cluster, name, registrations...)
	m := managed.Client(t)
	kube := awaitSecret(t, m, name, name+"-hub-kubeconfig", kubeKeys, anySecret)
	custom := awaitSecret(t, m, name, name+"-example.com-hello-client-cert", certKeys, anySecret)
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
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster,
		Labels: map[string]string{fleet.LabelClusterName: cluster}}})
	addOn = registeredOn(t, admin, cluster, name, registrations...)
	agent.WriteBootstrap(t, own, own.BootstrapToken(t))
	env.Accept(t, admin, cluster)
	awaitAddOnRequests(t, admin, cluster, fleet.SignerKubeAPIServerClient, testSigner)
	awaitCertificateRotated(t, admin, addOn, metav1.ConditionFalse, "another hub")

	manageAddOnsOn(t, own, cluster, time.Hour)
	now := awaitSecret(t, m, name, kube.Name, kubeKeys, fresh(kube, "tls.crt"))
	if who := whoIs(t, configOf(t, now)); who.Username != fleet.AddOnUser(cluster, name, "agent") {
		t.Errorf("the add-on is %+v", who)
	}
	awaitSecret(t, m, name, custom.Name, certKeys, fresh(custom, "tls.crt"))
	awaitCertificateRotated(t, admin, addOn, metav1.ConditionTrue, "valid from")
}

// RG-53 RG-60: the same of certificates and tokens when the agent turns to another hub.
func TestAddOnMovesToAnotherHub(t *testing.T) {
	t.Parallel()
	next := env.StartHub(t, "")
	for driver, keys := range map[string][]string{"csr": kubeKeys, "token": {"kubeconfig", "token"}} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := "addonmoves-" + driver + "-" + rand.String(5)
			agent := env.Join(t, hub, managed, cluster, "--addon-kubeclient-registration-auth", driver)
			manageAddOns(t, cluster, time.Hour)
			registeredOn(t, hub.Client(t), cluster, cluster, kubeClient(cluster, cluster))
			m := managed.Client(t)
			before := awaitSecret(t, m, cluster, cluster+"-hub-kubeconfig", keys, anySecret)
			agent.WriteBootstrap(t, next, next.BootstrapToken(t))
			env.Accept(t, next.Client(t), cluster)
			env.AwaitAvailable(t, next.Client(t), cluster)
			manageAddOnsOn(t, next, cluster, time.Hour)
			registeredOn(t, next.Client(t), cluster, cluster, kubeClient(cluster, cluster))
			secret := awaitSecret(t, m, cluster, before.Name, keys, fresh(before, keys[1]))
			if who := whoIs(t, configOf(t, secret)); !strings.Contains(who.Username, cluster) {
				t.Errorf("the add-on is %+v", who)
			}
		})
	}
}
