package install

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// testAddOnStatusExisting is R10 on a hub in an existing cluster: what TestAgentsDoNotNameAddOnsOtherwise says of a standalone one.
func testAddOnStatusExisting(t *testing.T, existing *env.Server) {
	const cluster, name = "addonforge-existing", "addonforge"
	admin := existing.Client(t)
	framework.Create(t, admin, framework.AcceptedCluster(cluster))
	framework.AwaitHubAccepted(t, admin, cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	framework.Create(t, admin, addOn)
	config, err := existing.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: fleet.ClusterUser(cluster, "agent1"),
		Groups: append(fleet.ClusterGroups(cluster), fleet.GroupAuthenticated)}
	agent := env.ClientFor(t, config)
	env.Eventually(t, func(ctx context.Context) error {
		return agent.Status().Patch(ctx, addOn.DeepCopy(),
			framework.Merge(`{"status":{"conditions":[{"type":"A","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
	})
	registrations := `{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"csr","subject":{"user":"x"}}}]}}`
	err = agent.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(registrations))
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, "cannot change status.registrations")
	if err := admin.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(registrations)); err != nil {
		t.Errorf("the manager of the add-on: %v", err)
	}
}
