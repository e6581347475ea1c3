package install

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// TestHubInExistingCluster makes a hub of an ordinary cluster by what is in deploy/, and of processes that may do no more there
// than deploy/ says, and tries what a standalone hub does.
func TestHubInExistingCluster(t *testing.T) {
	t.Parallel()
	existing, webhooks := framework.HubInExistingCluster(t)
	t.Run("with webhooks", func(t *testing.T) {
		t.Run("admission", func(t *testing.T) { t.Parallel(); testRefusals(t, existing) })
		t.Run("defaults", func(t *testing.T) { t.Parallel(); testDefaults(t, existing) })
		t.Run("conversion", func(t *testing.T) { t.Parallel(); testConversion(t, existing) })
		t.Run("bootstrap", func(t *testing.T) { t.Parallel(); testBootstrapRights(t, existing) })
		t.Run("join", func(t *testing.T) { t.Parallel(); testJoinExisting(t, existing) })
		t.Run("sets", func(t *testing.T) { t.Parallel(); testSetsExisting(t, existing) })
		t.Run("warnings of sets", func(t *testing.T) { t.Parallel(); framework.CheckSetWarnings(t, existing, "set-warned") })
		t.Run("rollback", func(t *testing.T) {
			t.Parallel()
			framework.CheckRollback(t, existing, "set-rollback", allowRollback("set-rollback"))
		})
		t.Run("registration of add-ons", func(t *testing.T) { t.Parallel(); testAddOnRegistrationExisting(t, existing) })
		t.Run("stolen tokens", func(t *testing.T) { t.Parallel(); testStolenTokens(t, existing) })
		t.Run("add-ons", func(t *testing.T) { t.Parallel(); testAddOnsExisting(t, existing) })
		t.Run("what agents tell of add-ons", func(t *testing.T) { t.Parallel(); testAddOnStatusExisting(t, existing) })
		t.Run("placement", func(t *testing.T) { t.Parallel(); testPlacementExisting(t, existing) })
		t.Run("trusted", func(t *testing.T) { t.Parallel(); testTrustedJoins(t, existing) })
	})
	if err := webhooks.Stop(); err != nil {
		t.Errorf("the webhooks did not stop well: %v", err)
	}
	t.Run("without webhooks", func(t *testing.T) { testWebhooksAway(t, existing) })
}

// allowRollback is what docs/works-for-many-clusters.md has administrators create in the namespaces of sets with rollback.
func allowRollback(namespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rollback"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "open-cluster-management:cluster-manager-work:rollback"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fleet.NamespaceHub, Name: fleet.ServiceAccountWorkController}},
	}
}

// passerby may write what the rules are about, and has none of the virtual permissions.
func passerby(t *testing.T, server *env.Server) client.Client {
	t.Helper()
	const name = "passerby"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"cluster.open-cluster-management.io", "work.open-cluster-management.io"},
		Resources: []string{"managedclusters", "managedclusters/status", "managedclustersetbindings", "placements", "manifestworkreplicasets"},
		Verbs:     []string{"list", "create", "patch"},
	}, {
		APIGroups: []string{"addon.open-cluster-management.io"}, Resources: []string{"addontemplates", "managedclusteraddons"},
		Verbs: []string{"create", "patch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	works := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"manifestworks"}, Verbs: []string{"create", "patch"},
	}}}
	worksBinding := &rbacv1.RoleBinding{
		ObjectMeta: works.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: binding.Subjects,
	}
	framework.Create(t, server.Client(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, works, worksBinding, role, binding)
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{fleet.GroupAuthenticated}}
	c := env.ClientFor(t, config)
	env.Eventually(t, func(ctx context.Context) error {
		return errors.Join(c.List(ctx, &clusterv1.ManagedClusterList{}), c.Create(ctx,
			framework.Work(name, "rights", framework.ConfigMap(name, "rights", "")), client.DryRunAll))
	})
	return c
}

var deniedBy = regexp.MustCompile(`admission webhook "[^"]+" denied the request: `)

// refusal is what a hub says no with; one that refuses by webhook says before it which.
func refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Sprintf("%v", err)
	}
	s := status.Status()
	return fmt.Sprintf("%d: %s", s.Code, deniedBy.ReplaceAllString(s.Message, ""))
}

// WH-02 WH-04 to WH-11 WH-15 A2: by webhook a hub refuses what a standalone hub refuses in process, in the same words.
func testRefusals(t *testing.T, existing *env.Server) {
	byWebhook, inProcess := passerby(t, existing), passerby(t, framework.Hub)
	set := func(name string) map[string]string { return map[string]string{fleet.LabelClusterSet: name} }
	cluster := func(name string, change func(*clusterv1.ManagedCluster)) func(client.Client) error {
		return func(c client.Client) error {
			mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			change(mc)
			return c.Create(t.Context(), mc)
		}
	}
	withExecutor := func(executor *workv1.ManifestWorkExecutor) func(client.Client) error {
		return func(c client.Client) error {
			w := framework.Work("passerby", "w", framework.ConfigMap("default", "a", "b"))
			w.Spec.Executor = executor
			return c.Create(t.Context(), w)
		}
	}
	for name, test := range map[string]struct {
		try  func(client.Client) error
		want string
	}{
		"accepted without the permission": {cluster("refused", func(mc *clusterv1.ManagedCluster) { mc.Spec.HubAcceptsClient = true }),
			`403: managedclusters/accept.register.open-cluster-management.io "refused" is forbidden: user "passerby" cannot update the HubAcceptsClient field`},
		"reserved name": {cluster("registration", func(*clusterv1.ManagedCluster) {}), "400: "},
		"http": {cluster("refused", func(mc *clusterv1.ManagedCluster) {
			mc.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "http://a"}}
		}), "400: "},
		"default set without permission": {cluster("refused", func(*clusterv1.ManagedCluster) {}), `403: `},
		"set without the permission":     {cluster("refused", func(mc *clusterv1.ManagedCluster) { mc.Labels = set("theirs") }), `403: `},
		"binding of another name": {func(c client.Client) error {
			return c.Create(t.Context(), framework.SetBinding("passerby", "one", "another"))
		},
			"400: "},
		"binding without the permission": {func(c client.Client) error {
			return c.Create(t.Context(),
				framework.SetBinding("passerby", "theirs", "theirs"))
		}, "403: "},
		"placement of too long a name": {func(c client.Client) error {
			return c.Create(t.Context(),
				&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "passerby", Name: strings.Repeat("a", 64)}})
		}, `400: Placement "`},
		"work of nothing": {func(c client.Client) error { return c.Create(t.Context(), framework.Work("passerby", "w")) }, "400: "},
		"work of the same twice": {func(c client.Client) error {
			return c.Create(t.Context(), framework.Work("passerby", "w", framework.ConfigMap("default", "a", "b"), framework.ConfigMap("default", "a", "c")))
		}, "400: "},
		"large work": {func(c client.Client) error {
			return c.Create(t.Context(), framework.Work("passerby", "w", framework.ConfigMap("default", "a", strings.Repeat("x", 1<<20))))
		}, "400: "},
		"executor without a name": {
			withExecutor(&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}}),
			"400: "},
		"executor without the permission": {
			withExecutor(&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount,
				ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "kube-system", Name: "admin"}}}), "400: "},
		"executor of a set without the permission": {func(c client.Client) error {
			s := framework.ReplicaSet("passerby", "s", framework.ConfigMap("default", "a", "b"), "p")
			s.Spec.ManifestWorkTemplate.Executor = &workv1.ManifestWorkExecutor{
				Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount,
					ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "kube-system", Name: "admin"}}}
			return c.Create(t.Context(), s)
		}, "400: "},
		"role of a template without the permission": {func(c client.Client) error {
			return c.Create(t.Context(),
				givingTemplate("cluster-admin"))
		},
			`403: addontemplates.addon.open-cluster-management.io "passerby" is forbidden: spec.registration[0].kubeClient.hubPermissions[0].singleNamespace.roleRef: Forbidden: user "passerby" cannot give "cluster-admin"`},
		"CA of a template without the permission": {func(c client.Client) error {
			template := givingTemplate("view")
			template.Spec.Registration = []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeCustomSigner,
				CustomSigner: &addonv1beta1.CustomSignerRegistrationSpec{
					SignerName: "example.com/passerby", SigningCA: addonv1beta1.SigningCARef{Name: "ca"},
				}}}
			return c.Create(t.Context(), template)
		}, `403: addontemplates.addon.open-cluster-management.io "passerby" is forbidden: spec.registration[0].customSigner.signingCA: Forbidden: user "passerby" cannot have certificates signed`},
		"hosting cluster without the permission": {func(c client.Client) error { return c.Create(t.Context(), hostedAddOn("theirs")) },
			`403: managedclusteraddons.addon.open-cluster-management.io "passerby" is forbidden: user "passerby" cannot let the cluster "theirs" host add-ons`},
		"hosting cluster of all add-ons without the permission": {cluster("refused", func(mc *clusterv1.ManagedCluster) {
			mc.Annotations = hostedAddOn("theirs").Annotations
		}), "403: "},
	} {
		want, got := refusal(test.try(inProcess)), refusal(test.try(byWebhook))
		if got != want || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s:\nwebhook:    %s\nin process: %s\nwant        %s…", name, got, want, test.want)
		}
	}
	testUpdatesRefused(t, existing, byWebhook)
	testGiving(t, existing, byWebhook)
	testGiving(t, framework.Hub, inProcess)
}

// testGiving is about a user who may do what the hub would do: bind the role, and create works for the hosting cluster.
func testGiving(t *testing.T, server *env.Server, c client.Client) {
	t.Helper()
	const name = "passerby-gives"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"}, Verbs: []string{"bind"}},
	}}
	framework.Create(t, server.Client(t), role, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "passerby"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "passerby"}},
	})
	for _, allowed := range []client.Object{givingTemplate("view"), hostedAddOn("passerby")} {
		env.Eventually(t, func(ctx context.Context) error { return c.Create(ctx, allowed) }) // until the authorizer knows it
	}
	framework.ExpectRefusal(t, c.Patch(t.Context(), &addonv1beta1.ManagedClusterAddOn{ObjectMeta: hostedAddOn("").ObjectMeta},
		client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"addon.open-cluster-management.io/hosting-cluster-name":"theirs"}}}`))),
		apierrors.IsForbidden, `cannot let the cluster "theirs" host add-ons`)
	framework.ExpectRefusal(t, c.Patch(t.Context(), givingTemplate(""),
		client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/registration/0/kubeClient/hubPermissions/0/singleNamespace/namespace","value":"kube-system"}]`))),
		apierrors.IsForbidden, `cannot give "view" to agents in the namespace "kube-system"`)
}

// givingTemplate gives a ClusterRole to its agents in the namespace passerby.
func givingTemplate(role string) *addonv1beta1.AddOnTemplate {
	template := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: "passerby"},
		Spec: addonv1beta1.AddOnTemplateSpec{AddonName: "passerby"}}
	template.Spec.AgentSpec.Workload.Manifests = framework.RawManifests(framework.ConfigMap("default", "a", "b"))
	template.Spec.Registration = []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeKubeClient,
		KubeClient: &addonv1beta1.KubeClientRegistrationSpec{
			HubPermissions: []addonv1beta1.HubPermissionConfig{{
				Type: addonv1beta1.HubPermissionsBindingSingleNamespace,
				SingleNamespace: &addonv1beta1.SingleNamespaceBindingConfig{Namespace: "passerby",
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}},
			}},
		}}}
	return template
}

// hostedAddOn is to run on another cluster.
func hostedAddOn(host string) *addonv1beta1.ManagedClusterAddOn {
	return framework.Annotated(&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "passerby", Name: "passerby"}},
		"addon.open-cluster-management.io/hosting-cluster-name", host)
}

// testUpdatesRefused is about what an existing cluster may become.
func testUpdatesRefused(t *testing.T, existing *env.Server, c client.Client) {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
	mc.Spec.Taints = []clusterv1.Taint{{Key: "a", Effect: clusterv1.TaintEffectNoSelect}}
	framework.Create(t, existing.Client(t), mc)
	merge := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	object := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: mc.Name}}
	framework.ExpectRefusal(t, c.Patch(t.Context(), object.DeepCopy(), merge(`{"spec":{"hubAcceptsClient":true}}`)), apierrors.IsForbidden,
		`user "passerby" cannot update the HubAcceptsClient field`)
	framework.ExpectRefusal(t, c.Patch(t.Context(), object.DeepCopy(),
		merge(`{"metadata":{"labels":{"cluster.open-cluster-management.io/clusterset":"theirs"}}}`)), apierrors.IsForbidden,
		`"passerby" cannot add/remove a ManagedCluster to/from ManagedClusterSet`)
	framework.ExpectRefusal(t, c.Patch(t.Context(), object.DeepCopy(),
		merge(`{"spec":{"taints":[{"key":"a","effect":"NoSelect","timeAdded":"2020-01-01T00:00:00Z"}]}}`)), apierrors.IsBadRequest,
		`TimeAdded of taint "a"`)
	framework.ExpectRefusal(t, c.Status().Patch(t.Context(), object.DeepCopy(),
		merge(`{"status":{"capacity":{"cpu":"1e99999999999999999999"}}}`)),
		apierrors.IsInvalid, "status.capacity.cpu")
}

// SC-19: a client that has not joined yet may do what it may on a standalone hub.
func testBootstrapRights(t *testing.T, existing *env.Server) {
	var rules [2][]rbacv1.PolicyRule
	for i, server := range []*env.Server{framework.Hub, existing} {
		role := &rbacv1.ClusterRole{}
		if err := server.Client(t).Get(t.Context(), client.ObjectKey{Name: fleet.ClusterRoleBootstrap}, role); err != nil {
			t.Fatal(err)
		}
		rules[i] = role.Rules
	}
	if diff := cmp.Diff(rules[0], rules[1]); diff != "" {
		t.Errorf("ClusterRole %s (-standalone +deploy/hub/rights.yaml):\n%s", fleet.ClusterRoleBootstrap, diff)
	}
}

// WH-01 WH-03
func testDefaults(t *testing.T, existing *env.Server) {
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "defaulted"}}
	mc.Spec.Taints = []clusterv1.Taint{{Key: "a", Effect: clusterv1.TaintEffectNoSelect, TimeAdded: metav1.Unix(0, 0)}}
	framework.Create(t, existing.Client(t), mc)
	if mc.Labels[fleet.LabelClusterSet] != "default" || mc.Spec.Taints[0].TimeAdded.Unix() == 0 {
		t.Errorf("created with labels %v and taints %v, want the set default and the time", mc.Labels, mc.Spec.Taints)
	}
}

// WH-13: both versions of the add-on kinds are served, whichever is written.
func testConversion(t *testing.T, existing *env.Server) {
	c := existing.Client(t)
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "converted"}})
	addOn := func(version, kind string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("addon.open-cluster-management.io/" + version)
		u.SetKind(kind)
		u.SetName("converted")
		return u
	}
	old := addOn("v1alpha1", "ManagedClusterAddOn")
	old.SetNamespace("converted")
	old.Object["spec"] = map[string]any{"installNamespace": "there"}
	framework.Create(t, c, old)
	converted := addOn("v1beta1", "ManagedClusterAddOn")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), converted); err != nil {
		t.Fatal(err)
	}
	if got := converted.GetAnnotations()["addon.open-cluster-management.io/v1alpha1-install-namespace"]; got != "there" {
		t.Errorf("in v1beta1 the install namespace is %q", got)
	}
	young := addOn("v1beta1", "ClusterManagementAddOn")
	young.Object["spec"] = map[string]any{"defaultConfigs": []any{map[string]any{"group": "g", "resource": "r", "namespace": "n",
		"name": "c"}}}
	framework.Create(t, c, young)
	back := addOn("v1alpha1", "ClusterManagementAddOn")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(young), back); err != nil {
		t.Fatal(err)
	}
	configs, _, err := unstructured.NestedSlice(back.Object, "spec", "supportedConfigs")
	if err != nil || len(configs) != 1 || fmt.Sprint(configs[0]) != "map[defaultConfig:map[name:c namespace:n] group:g resource:r]" {
		t.Errorf("in v1alpha1 the configs are %v, error %v", configs, err)
	}
}

// SC-02: an agent joins, works, and leaves such a hub, whose processes may do no more than deploy/hub says.
func testJoinExisting(t *testing.T, existing *env.Server) {
	const name = "in-existing"
	c := existing.Client(t)
	agent := env.NewAgent(t, existing, framework.Managed, name, framework.TokenOf(t, existing, fleet.NamespaceOperators,
		fleet.ServiceAccountBootstrap))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, name)
	env.AwaitAvailable(t, c, name)
	w := framework.Work(name, name+"-w", framework.ConfigMap(framework.Namespace(t, framework.Managed.Client(t), name), "by-webhook", "there"))
	framework.Create(t, c, w)
	framework.AwaitConfigMap(t, framework.Managed.Client(t), name, "by-webhook", "there")
	framework.AwaitCondition(t, c, w, fleet.ConditionAvailable, metav1.ConditionTrue)
	testSets(t, c, name)
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedClusterAccepted)
	if err := c.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, mc)
	framework.AwaitGone(t, framework.Managed.Client(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "by-webhook"}})
}

// RG-13: a hub with these rights can approve and accept by itself.
func testTrustedJoins(t *testing.T, existing *env.Server) {
	const name = "trusted-in-existing"
	c := existing.Client(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: fleet.ClusterRoleBootstrap},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "trusted"}},
	}
	framework.Create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "trusted"}}, binding)
	if err := env.NewAgent(t, existing, framework.Managed, name, framework.TokenOf(t, existing, metav1.NamespaceDefault,
		"trusted")).Start(); err != nil {
		t.Fatal(err)
	}
	env.AwaitAvailable(t, c, name)
}

// testSets: the sets that every hub has are there, can be bound, and give the clusters a profile where they are.
func testSets(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	for _, set := range []string{"default", "global"} {
		env.Eventually(t, func(ctx context.Context) error {
			return c.Get(ctx, client.ObjectKey{Name: set}, &clusterv1beta2.ManagedClusterSet{})
		})
	}
	binding := framework.SetBinding(metav1.NamespaceDefault, "default", "default")
	framework.Create(t, c, binding)
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(binding.Status.Conditions, fleet.ConditionBound) {
			return fmt.Errorf("the binding is %+v", binding.Status)
		}
		profile := &multiclusterv1alpha1.ClusterProfile{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: cluster}, profile); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(profile.Status.Conditions, "Joined") {
			return fmt.Errorf("the profile is %+v", profile.Status)
		}
		return nil
	})
}

// testWebhooksAway: without its rules a hub takes nothing in, and still learns of its clusters.
func testWebhooksAway(t *testing.T, existing *env.Server) {
	c := existing.Client(t)
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "unjudged"}}
	framework.ExpectRefusal(t, c.Create(t.Context(), mc), apierrors.IsInternalError, "failed calling webhook",
		"managedclustermutators.admission.cluster.open-cluster-management.io")
	create := c.Create(t.Context(), framework.Work("default", "unjudged", framework.ConfigMap("default", "a", "b")))
	framework.ExpectRefusal(t, create, apierrors.IsInternalError, "failed calling webhook",
		"manifestworkvalidators.admission.work.open-cluster-management.io")
	known := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "defaulted"}}
	heard := client.RawPatch(types.MergePatchType, []byte(`{"status":{"capacity":{"cpu":"1"}}}`))
	if err := c.Status().Patch(t.Context(), known, heard); err != nil {
		t.Errorf("no status without webhooks: %v", err)
	}
}
