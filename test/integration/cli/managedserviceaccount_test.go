package cli

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// MS-06: what a cluster that is denied has of the add-on ends, and begins again.
func TestManagedServiceAccountOfDeniedCluster(t *testing.T) {
	t.Parallel()
	const cluster = "msadenied"
	framework.AcceptAll(t, cluster)
	h := framework.Hub.Client(t)
	framework.Hub.Capstan(t, "", "addon", "enable", "--names", "managed-serviceaccount", "--clusters", cluster).Succeeds(t)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "managed-serviceaccount"}}
	framework.AwaitAddOn(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied", "managed-serviceaccount-addon-agent")
	agent := framework.AsAgent(t, framework.Hub, cluster)
	lists := func(want func(error) bool) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := agent.List(ctx, &authenticationv1beta1.ManagedServiceAccountList{}, client.InNamespace(cluster)); !want(err) {
				return fmt.Errorf("the agent lists accounts: %w", err)
			}
			return nil
		})
	}
	lists(func(err error) bool { return err == nil })
	denied := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	framework.MergePatch(t, h, denied, `{"spec":{"hubAcceptsClient":false}}`)
	lists(apierrors.IsForbidden)
	framework.MergePatch(t, h, denied, `{"spec":{"hubAcceptsClient":true}}`)
	lists(func(err error) bool { return err == nil })
}
