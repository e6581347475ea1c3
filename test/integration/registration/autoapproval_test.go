package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const trustedToken = "trust1.0123456789abcdef"

// trustingHub is a hub that lets in clients with the trusted token.
func trustingHub(t *testing.T) *env.Server {
	t.Helper()
	own := env.StartHub(t, "registration", "--feature-gates", "ManagedClusterAutoApproval=true", "--auto-approved-csr-users",
		"system:bootstrap:trust1")
	framework.Create(t, own.Client(t), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-trust1"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "trust1", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": fleet.GroupBootstrap,
		},
	})
	return own
}

// R8 RG-13: a client that may join clusters cannot take over one that is connected. When it is lost, its name is free again.
func TestConnectedClusterIsNotTakenOver(t *testing.T) {
	t.Parallel()
	own := trustingHub(t)
	c := own.Client(t)
	const name = "taken"
	rightful, second := env.NewAgent(t, own, framework.Managed, name, trustedToken),
		env.NewAgent(t, own, framework.Managed, name, trustedToken)
	if err := rightful.Start(); err != nil {
		t.Fatal(err)
	}
	env.AwaitAvailable(t, c, name)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedClusterAutoApprovalWithheld)
	events := &eventsv1.EventList{}
	if err := c.List(t.Context(), events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		// Without the name, the command refuses: internal/cli/fleet.TestAcceptAsksForAnotherAgent.
		const advice = "accept --clusters taken --requesters NAME"
		if event.Reason == fleet.EventManagedClusterAutoApprovalWithheld && !strings.Contains(event.Note, advice) {
			t.Errorf("it says %q", event.Note)
		}
	}
	undecided := 0
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), requests, client.MatchingLabels{fleet.LabelClusterName: name}); err != nil {
		t.Fatal(err)
	}
	for _, csr := range requests.Items {
		if len(csr.Status.Conditions) == 0 {
			undecided++
		}
	}
	if undecided != 1 {
		t.Errorf("%d of %d requests are undecided", undecided, len(requests.Items))
	}

	mc := &clusterv1.ManagedCluster{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, mc); err != nil {
		t.Fatal(err)
	}
	framework.MergePatch(t, c, mc, `{"spec":{"leaseDurationSeconds":1}}`)
	rightful.Kill()
	framework.AwaitLog(t, second.Process, "Connected to the hub", 1)
	env.AwaitAvailable(t, c, name)
}

// RG-13 RG-14: the clusters of a trusted user need no person. Those of others do, and what a person decides holds.
func TestAutoApproval(t *testing.T) {
	t.Parallel()
	own := trustingHub(t)
	c := own.Client(t)
	// Made by another user before its agent comes: its name alone does not get it in.
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}})

	other := env.NewAgent(t, own, framework.Managed, "other", "")
	trusted := env.NewAgent(t, own, framework.Managed, "trusted", trustedToken)
	for _, agent := range []*env.Agent{other, trusted} {
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
	}
	env.AwaitAvailable(t, c, "trusted")
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedClusterAutoApproved)
	get := func(name string) *clusterv1.ManagedCluster {
		t.Helper()
		mc := &clusterv1.ManagedCluster{}
		env.Eventually(t, func(ctx context.Context) error { return c.Get(ctx, client.ObjectKey{Name: name}, mc) })
		return mc
	}
	if get("trusted").Annotations[fleet.AnnotationAutomaticallyAcceptedOn] == "" {
		t.Error("the cluster does not say when it was accepted")
	}
	env.Eventually(t, func(ctx context.Context) error {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := c.List(ctx, requests, client.MatchingLabels{fleet.LabelClusterName: "other"}); err != nil || len(requests.Items) == 0 {
			return fmt.Errorf("no request: %w", err)
		}
		for _, csr := range requests.Items {
			if len(csr.Status.Conditions) > 0 {
				t.Errorf("%s of %s: %+v", csr.Name, csr.Spec.Username, csr.Status.Conditions)
			}
		}
		return nil
	})
	for _, name := range []string{"other", "stranger"} {
		if get(name).Spec.HubAcceptsClient {
			t.Errorf("%s is accepted", name)
		}
	}

	mc := get("trusted")
	framework.MergePatch(t, c, mc, `{"spec":{"hubAcceptsClient":false}}`)
	awaitCluster(t, c, "trusted", fleet.ConditionHubAccepted, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	if get("trusted").Spec.HubAcceptsClient {
		t.Error("the denied cluster is accepted again")
	}
}
