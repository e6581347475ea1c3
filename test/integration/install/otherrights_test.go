package install

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/rights/rightstest"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// HC-02: with the rules that the chart of Open Cluster Management has, the operator makes a hub and takes it away, says what it leaves
// out, and makes that, too, when it is started with the rules of our chart.
func TestHubWithRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	cluster := clusterWithRules(t, "cluster-manager", "clustermanagers", rightstest.ClusterManager())
	i := &installed{Server: cluster, Client: cluster.Client(t)}
	i.start(t)
	framework.Create(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}})
	i.awaitHub(t, append(hubIsUp, "OperatorPermitted=False/RulesMissing:resources: [networkpolicies]")...)
	i.awaitDeployments(t, fleet.NamespaceHub, hubDeployments...)
	policies := &networkingv1.NetworkPolicyList{}
	if err := i.List(t.Context(), policies, client.InNamespace(fleet.NamespaceHub)); err != nil || len(policies.Items) > 0 {
		t.Errorf("%d policies, %v", len(policies.Items), err)
	}
	expectRulesEvent(t, i)
	framework.Get(t, i, client.ObjectKey{Namespace: fleet.NamespaceHub, Name: fleet.SecretSigner}, &corev1.Secret{})

	if err := i.operator.Stop(); err != nil {
		t.Fatal(err)
	}
	setRules(t, i, rulesOfChart(t))
	i.start(t)
	env.Eventually(t, func(ctx context.Context) error {
		cm := &operatorv1.ClusterManager{}
		if err := i.Get(ctx, types.NamespacedName{Name: "cluster-manager"}, cm); err != nil {
			return err
		}
		if condition := meta.FindStatusCondition(cm.Status.Conditions, rights.ConditionPermitted); condition != nil {
			return fmt.Errorf("the condition is %v", condition)
		}
		return i.Get(ctx, types.NamespacedName{Namespace: fleet.NamespaceHub, Name: "default-deny-all"}, &networkingv1.NetworkPolicy{})
	})

	if err := i.operator.Stop(); err != nil {
		t.Fatal(err)
	}
	setRules(t, i, rightstest.ClusterManager())
	i.start(t)
	if err := i.Delete(t.Context(), &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}})
}

func setRules(t *testing.T, c client.Client, rules []rbacv1.PolicyRule) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		role := &rbacv1.ClusterRole{}
		if err := c.Get(ctx, types.NamespacedName{Name: "cluster-manager"}, role); err != nil {
			return err
		}
		role.Rules = rules
		return c.Update(ctx, role)
	})
}

func rulesOfChart(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	for _, object := range operatorRights(t, "cluster-manager") {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			return role.Rules
		}
	}
	t.Fatal("the chart has no rules")
	return nil
}

// HC-06, KL-09: the same for an agent, as clusteradm asks for it where it does not know the address of the cluster.
func TestAgentWithRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	cluster := clusterWithRules(t, "klusterlet", "klusterlets", rightstest.Klusterlet())
	c := cluster.Client(t)
	operator := env.NewProgram(t, nil, "capstan-agent", "operator", "--listen", "0", "--namespace", fleet.NamespaceOperators,
		"--kubeconfig", framework.KubeconfigIn(t, cluster, fleet.NamespaceOperators, fleet.ServiceAccountKlusterlet))
	if err := operator.Start(); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, c, &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "klusterlet"},
		Spec: operatorv1.KlusterletSpec{ClusterName: "c1", ExternalServerURLs: []operatorv1.ServerURL{{URL: ""}}}})
	env.Eventually(t, func(ctx context.Context) error {
		k := &operatorv1.Klusterlet{}
		if err := c.Get(ctx, types.NamespacedName{Name: "klusterlet"}, k); err != nil {
			return err
		}
		return checkConditions(k.Status.Conditions, k.Generation, []string{"Applied=True/KlusterletApplied",
			"OperatorPermitted=False/RulesMissing:resources: [networkpolicies]"})
	})
	framework.Get(t, c, client.ObjectKey{Namespace: fleet.NamespaceAgent, Name: "klusterlet-registration-agent"}, &appsv1.Deployment{})
	expectRulesEvent(t, c)
}

// clusterWithRules is a cluster with the account of an operator that has the rules, and the kind that it reconciles.
func clusterWithRules(t *testing.T, chart, plural string, rules []rbacv1.PolicyRule) *env.Server {
	t.Helper()
	cluster := env.StartSandbox(t)
	c := cluster.Client(t)
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceOperators}})
	for _, object := range operatorRights(t, chart) {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			role.Rules = rules
		}
		framework.Create(t, c, object)
	}
	framework.Create(t, c, operatorCRD(t, plural))
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(operatorv1.GroupVersion.WithKind(map[string]string{
		"clustermanagers": "ClusterManagerList", "klusterlets": "KlusterletList"}[plural]))
	env.Eventually(t, func(ctx context.Context) error { return c.List(ctx, list) })
	return cluster
}

func expectRulesEvent(t *testing.T, c client.Client) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := c.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Reason == rights.ReasonRulesMissing {
				return nil
			}
		}
		return fmt.Errorf("no event %s among %d", rights.ReasonRulesMissing, len(list.Items))
	})
}
