package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	"sigs.k8s.io/yaml"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	deployhub "github.com/capstan-io/capstan/deploy/hub"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// HC-02: with the rules that the chart of Open Cluster Management has, the operator makes a hub and takes it away, says what it leaves
// out, also of the rules of the components, and makes that, too, when it is started with the rules that it has named.
func TestHubWithRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	cluster := clusterWithRules(t, "cluster-manager", "clustermanagers", rightstest.ClusterManager())
	i := &installed{Server: cluster, Client: cluster.Client(t)}
	i.start(t)
	framework.Create(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"},
		Spec: operatorv1.ClusterManagerSpec{PlacementConfiguration: &operatorv1.PlacementConfiguration{
			FeatureGates: []operatorv1.FeatureGate{{Feature: "PlacementDebugServer", Mode: operatorv1.FeatureGateModeTypeEnable}}}}})
	i.awaitHub(t, append(hubIsUp, "OperatorPermitted=False/RulesMissing:resources: [networkpolicies]",
		"OperatorPermitted=False/RulesMissing:resourceNames: [placement-debug-serving-cert], verbs: [get, list, watch, update, patch, delete]",
		"OperatorPermitted=False/RulesMissing:resources: [managedclusters], verbs: [delete]")...)
	i.awaitDeployments(t, fleet.NamespaceHub, hubDeployments...)
	policies := &networkingv1.NetworkPolicyList{}
	if err := i.List(t.Context(), policies, client.InNamespace(fleet.NamespaceHub)); err != nil || len(policies.Items) > 0 {
		t.Errorf("%d policies, %v", len(policies.Items), err)
	}
	expectRulesEvent(t, i)
	framework.Get(t, i, client.ObjectKey{Namespace: fleet.NamespaceHub, Name: fleet.SecretSigner}, &corev1.Secret{})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:cluster-manager-registration:controller"}}
	framework.Get(t, i, client.ObjectKeyFromObject(role), role)
	if grants(role, "get", "patch") != nil || grants(role, "delete") == nil {
		t.Errorf("the registration controllers have the rules %v", role.Rules)
	}
	framework.Get(t, i, client.ObjectKeyFromObject(role), &rbacv1.ClusterRoleBinding{})

	i.permit(t, rightstest.ClusterManager())
	framework.AwaitObject(t, i, &networkingv1.NetworkPolicy{ObjectMeta: named(fleet.NamespaceHub, "default-deny-all")},
		func(*networkingv1.NetworkPolicy) error { return nil })
	framework.AwaitObject(t, i, role, func(role *rbacv1.ClusterRole) error { return grants(role, "get", "patch", "delete") })
	explanations := client.ObjectKey{Namespace: fleet.NamespaceHub, Name: fleet.SecretPlacementDebugServing}
	framework.Get(t, i, explanations, &corev1.Secret{})

	if err := i.operator.Stop(); err != nil {
		t.Fatal(err)
	}
	setRules(t, i, "cluster-manager", rightstest.ClusterManager())
	i.start(t)
	if err := i.Delete(t.Context(), &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, i, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}})
}

// grants is an error unless the role has these verbs for ManagedClusters.
func grants(role *rbacv1.ClusterRole, verbs ...string) error {
	wanted := rbacv1.PolicyRule{APIGroups: []string{clusterv1beta1.GroupVersion.Group}, Resources: []string{"managedclusters"}, Verbs: verbs}
	if _, missing := rights.Grantable(role.Rules, []rbacv1.PolicyRule{wanted}); len(missing) > 0 {
		return fmt.Errorf("ClusterRole %s lacks %v", role.Name, missing)
	}
	return nil
}

func setRules(t *testing.T, c client.Client, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		role := &rbacv1.ClusterRole{}
		if err := c.Get(ctx, types.NamespacedName{Name: name}, role); err != nil {
			return err
		}
		role.Rules = rules
		return c.Update(ctx, role)
	})
}

// permit adds to the rules of the operator those that it names, and starts it again with them, until it names none. What it may do shows
// what else it lacks.
func (i *installed) permit(t *testing.T, rules []rbacv1.PolicyRule) {
	t.Helper()
	const rounds = 3
	said := i.awaitRulesMissing(t, "")
	for round := 0; said != ""; round++ {
		if round == rounds {
			t.Fatalf("after %d rounds, it says: %s", rounds, said)
		}
		rules = append(rules, rulesIn(t, said)...)
		if err := i.operator.Stop(); err != nil {
			t.Fatal(err)
		}
		setRules(t, i, "cluster-manager", rules)
		i.start(t)
		said = i.awaitRulesMissing(t, said)
	}
}

// awaitRulesMissing waits until the ClusterManager says something else of rules that are missing than before, and returns that; empty if
// none are.
func (i *installed) awaitRulesMissing(t *testing.T, before string) (said string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		cm := &operatorv1.ClusterManager{}
		if err := i.Get(ctx, types.NamespacedName{Name: "cluster-manager"}, cm); err != nil {
			return err
		}
		said = ""
		if condition := meta.FindStatusCondition(cm.Status.Conditions, rights.ConditionPermitted); condition != nil {
			said = condition.Message
		}
		if said == before {
			return fmt.Errorf("the ClusterManager still says %q", said)
		}
		if said == "" { // also what fails for another reason says nothing of rules
			return checkConditions(cm.Status.Conditions, cm.Generation, hubIsUp)
		}
		return nil
	})
	return said
}

// rulesIn are the rules that a message says to add to a ClusterRole.
func rulesIn(t *testing.T, message string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	_, list, found := strings.Cut(message, "add to its ClusterRole: ")
	if !found {
		t.Fatalf("no rules in: %s", message)
	}
	for text := range strings.SplitSeq(list, "; ") {
		text, _, _ = strings.Cut(text, " in namespace ")
		rule := rbacv1.PolicyRule{}
		if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		rules = append(rules, rule)
	}
	return rules
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

// HC-02: with the rules that an operator with those of that chart can grant, each group of controllers starts, and works without what it
// may not do. What it may watch later, it watches when it is started again.
func TestControllersWithRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	c := cluster.Client(t)
	var kinds []string
	for _, crd := range crds.Hub() {
		kinds = append(kinds, crd.Spec.Names.Plural)
	}
	framework.ServeOnly(t, cluster, kinds)
	accounts := map[string]string{
		"registration": fleet.ServiceAccountRegistrationController, "placement": fleet.ServiceAccountPlacementController,
		"work": fleet.ServiceAccountWorkController, "addon": fleet.ServiceAccountAddOnManager}
	names := deployhub.Names{Namespace: fleet.NamespaceHub, ClusterManager: "cluster-manager"}
	granted := slices.Concat(deployhub.Rights(names, slices.Collect(maps.Values(accounts))), deployhub.ClusterProfiles(names),
		deployhub.Applications(names), deployhub.SIGPlacementDecisions(names))
	for _, object := range granted {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			role.Rules, _ = rights.Grantable(rightstest.ClusterManager(), role.Rules)
		case *rbacv1.Role:
			role.Rules, _ = rights.Grantable(rightstest.ClusterManager(), role.Rules)
		}
	}
	framework.Create(t, c, granted...)
	controllers := map[string]*env.Process{}
	for group, account := range accounts {
		controllers[group] = env.NewControllers(t, framework.KubeconfigOf(t, cluster, account), "--controllers", group,
			"--leader-election-namespace", fleet.NamespaceHub, "--health-probe-bind-address", "0", "--feature-gates",
			"ClusterProfile=true,GitOpsCluster=true,SIGPlacementDecision=true")
		if err := controllers[group].Start(); err != nil {
			t.Fatal(err)
		}
	}
	framework.AwaitLog(t, controllers["placement"], "resources: [placementdecisions], verbs: [list, watch]", 1)
	framework.AwaitLog(t, controllers["addon"], "resources: [multiclusterapplicationsetreports], verbs: [list, watch]", 1)
	for _, process := range controllers {
		framework.AwaitLog(t, process, "Starting workers", 1)
	}
	framework.AwaitObject(t, c, &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterSetDefault}},
		func(*clusterv1beta2.ManagedClusterSet) error { return nil })
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	framework.Create(t, c, placement)
	framework.AwaitObject(t, c, placement, func(placement *clusterv1beta1.Placement) error {
		if len(placement.Status.Conditions) == 0 {
			return errors.New("the placement has no condition")
		}
		return nil
	})
	for group, process := range controllers {
		if strings.Contains(process.Log(), "forbidden") {
			t.Errorf("the controllers %s need what they may not do:\n%s", group, process.Log())
		}
	}

	for _, object := range deployhub.SIGPlacementDecisions(names) {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			setRules(t, c, role.Name, role.Rules)
		}
	}
	controllers["placement"].AwaitExit(t)
	framework.AwaitLog(t, controllers["placement"], "may watch placementdecisions now", 1)
}
