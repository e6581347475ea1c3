package registration

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
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

// replace deletes a cluster and returns when it is gone and the second is over in which it was created: certificates tell no finer.
func replace(t *testing.T, admin client.Client, name string) {
	t.Helper()
	mc := &clusterv1.ManagedCluster{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, mc); err != nil {
		t.Fatal(err)
	}
	created := mc.CreationTimestamp.Time
	framework.DeleteCluster(t, admin, name)
	framework.AwaitGone(t, admin, mc)
	env.Eventually(t, func(context.Context) error {
		if time.Since(created) < time.Second {
			return errors.New("it is still the second in which the cluster was created")
		}
		return nil
	})
}

// restart stops a hub and starts it again.
func restart(t *testing.T, hub *env.Server) {
	t.Helper()
	if err := hub.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	if err := hub.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// RG-18, "The same name accepted again revives nothing". Whoever has kept the certificates of a cluster and of its add-on gets nothing by
// them when another cluster joins under the name, whose own certificates are good right away. A restart of the hub changes nothing of that.
func TestSameNameRevivesNothing(t *testing.T) {
	t.Parallel()
	const name, addOn = "same-name", "spy"
	own := env.StartHub(t, "")
	admin := own.Client(t)
	first := env.Join(t, own, framework.Managed, name, "--agent-id", "agent1")
	stolen := env.ClientFor(t, framework.CredentialOf(t, first))
	subject := pkix.Name{CommonName: fleet.AddOnUser(name, addOn, "agent"), Organization: fleet.AddOnGroups(name, addOn)}
	stolenAddOn := env.ClientFor(t, framework.WithCertificate(t, own, subject, nil))
	framework.AwaitRights(t, stolen, name, framework.AllRights)
	works := framework.Follow(t, stolen, &workv1.ManifestWorkList{}, name)
	replace(t, admin, name)
	framework.AwaitRights(t, stolen, name, noRights)
	framework.AwaitEnd(t, works)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{},
		client.MatchingLabels(framework.OfCluster(name))); err != nil {
		t.Fatal(err)
	}

	second := env.NewAgent(t, own, framework.Managed, name, "", "--agent-id", "agent1")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, admin, name)
	env.AwaitAvailable(t, admin, name)
	check := func() {
		t.Helper()
		framework.AwaitRefused(t, stolen, name)
		if err := stolenAddOn.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(name)); !apierrors.IsUnauthorized(err) {
			t.Errorf("the old certificate of the add-on: %v", err)
		}
		framework.AwaitRights(t, env.ClientFor(t, framework.CredentialOf(t, second)), name, framework.AllRights)
	}
	check()
	if who := framework.WhoIs(t, framework.WithCertificate(t, own, subject, nil)); who.Username != subject.CommonName {
		t.Errorf("by a new certificate, the add-on is %+v", who)
	}
	restart(t, own)
	check()
	env.AwaitAvailable(t, admin, name)
}

// An agent whose ManagedCluster was deleted and created again notices that its certificate is refused, and joins again by itself.
func TestAgentOfARecreatedClusterJoinsAgain(t *testing.T) {
	t.Parallel()
	const name = "recreated"
	own := env.StartHub(t, "")
	admin := own.Client(t)
	agent := env.Join(t, own, framework.Managed, name)
	before := env.ClientFor(t, framework.CredentialOf(t, agent))
	replace(t, admin, name)
	framework.Create(t, admin, framework.AcceptedCluster(name))
	start := time.Now()
	if err := env.Approve(t.Context(), admin, framework.AwaitAnotherRequest(t, admin, name)); err != nil {
		t.Fatal(err)
	}
	env.AwaitAvailable(t, admin, name)
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
	framework.AwaitRefused(t, before, name)
	framework.AwaitRights(t, env.ClientFor(t, framework.CredentialOf(t, agent)), name, framework.AllRights)
}

// RG-18: who restores a ManagedCluster says from when on certificates hold: its agent, which is there all the while, goes on with what it
// has.
func TestRestoredClusterKeepsItsAgent(t *testing.T) {
	t.Parallel()
	const name = "restored"
	own := env.StartHub(t, "")
	admin := own.Client(t)
	agent := env.Join(t, own, framework.Managed, name)
	before := env.ClientFor(t, framework.CredentialOf(t, agent))
	saved := &clusterv1.ManagedCluster{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, saved); err != nil {
		t.Fatal(err)
	}
	replace(t, admin, name)
	framework.Create(t, admin, &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: saved.Labels, Annotations: saved.Annotations}, Spec: saved.Spec,
	})
	framework.AwaitRights(t, before, name, framework.AllRights)
	env.AwaitAvailable(t, admin, name)
}

// Who has created a ManagedCluster again and meant the old one takes the annotation off: its agent, which waits to be approved, is back
// without that.
func TestOldCertificateIsTakenAgain(t *testing.T) {
	t.Parallel()
	const name = "taken-again"
	own := env.StartHub(t, "")
	admin := own.Client(t)
	agent := env.Join(t, own, framework.Managed, name)
	before := env.ClientFor(t, framework.CredentialOf(t, agent))
	replace(t, admin, name)
	framework.Create(t, admin, framework.AcceptedCluster(name))
	framework.AwaitAnotherRequest(t, admin, name)
	framework.MergePatch(t, admin, framework.AcceptedCluster(name), `{"metadata":{"annotations":{"`+fleet.AnnotationCredentialsNotBefore+`":null}}}`)
	framework.AwaitRights(t, before, name, framework.AllRights)
	env.AwaitAvailable(t, admin, name)
}
