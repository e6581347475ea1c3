package builtin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/builtin"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const name, role = "managed-serviceaccount", "managed-serviceaccount-addon-agent"

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func entry(annotations map[string]string) *addonv1beta1.ClusterManagementAddOn {
	return &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func installed() *addonv1beta1.ManagedClusterAddOn {
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: "1"}}
	addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionConfigured, Status: metav1.ConditionTrue}}
	return addOn
}

func accepted() *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	cluster.Spec.HubAcceptsClient = true
	cluster.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
	return cluster
}

var marked = map[string]string{fleet.AnnotationBuiltIn: "true"}

// bench is a hub of one cluster.
type bench struct {
	client.Client
	controller *builtin.Controller
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{addonv1beta1.GroupVersion})
	for _, kind := range []string{"AddOnDeploymentConfig", "ManagedClusterAddOn"} {
		mapper.Add(addonv1beta1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Role", "RoleBinding"} {
		mapper.Add(rbacv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(addonv1beta1.GroupVersion.WithKind("ClusterManagementAddOn"), meta.RESTScopeRoot)
	mapper.Add(clusterv1.GroupVersion.WithKind("ManagedCluster"), meta.RESTScopeRoot)
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithRESTMapper(mapper).WithObjects(objects...).
		WithStatusSubresource(&addonv1beta1.ManagedClusterAddOn{}, &clusterv1.ManagedCluster{}).Build()
	return &bench{c, builtin.New(c, builtin.Options{
		Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)), Labels: map[string]string{"team": "a"}})}
}

func (b *bench) reconcile(t *testing.T) error {
	t.Helper()
	_, err := b.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "c1", Name: name}})
	return err
}

func (b *bench) addOn(t *testing.T) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := installed()
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
		t.Fatal(err)
	}
	return addOn
}

// rights returns the subjects that have the rights, and none if there is no role or no binding to it.
func (b *bench) rights(t *testing.T) (subjects []string) {
	t.Helper()
	key := client.ObjectKey{Namespace: "c1", Name: role}
	r, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	without := b.Get(t.Context(), key, r)
	if err := b.Get(t.Context(), key, binding); apierrors.IsNotFound(err) || apierrors.IsNotFound(without) {
		return nil
	} else if err != nil || without != nil {
		t.Fatal(err, without)
	}
	if binding.RoleRef.Name != r.Name || len(r.Rules) == 0 {
		t.Errorf("%+v of %+v", binding.RoleRef, r)
	}
	for _, subject := range binding.Subjects {
		subjects = append(subjects, subject.Kind+" "+subject.Name)
	}
	return subjects
}

// MS-06: the agent of the cluster gets its rights, in its namespace alone, and is notified then.
func TestServed(t *testing.T) {
	t.Parallel()
	b := newBench(t, entry(marked), installed(), accepted())
	if err := b.reconcile(t); err != nil {
		t.Fatal(err)
	}
	r, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	for _, o := range []client.Object{r, binding} {
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: role}, o); err != nil {
			t.Fatal(err)
		}
		if labels := o.GetLabels(); labels["team"] != "a" || labels["open-cluster-management.io/cluster-name"] != "c1" {
			t.Errorf("labels %v", labels)
		}
		if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != "1" {
			t.Errorf("owners %v", owners)
		}
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update"}},
		{APIGroups: []string{"authentication.open-cluster-management.io"}, Resources: []string{"managedserviceaccounts"},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"authentication.open-cluster-management.io"}, Resources: []string{"managedserviceaccounts/status"},
			Verbs: []string{"get", "update", "patch"}},
	}, r.Rules); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Group system:open-cluster-management:c1", "Group open-cluster-management:c1"}, b.rights(t)); diff != "" {
		t.Error(diff)
	}
	addOn := b.addOn(t)
	status := addOn.Status
	if !fleet.IsBuiltIn(addOn) || status.HealthCheck.Mode != addonv1beta1.HealthCheckModeCustomized ||
		status.Namespace != "open-cluster-management-agent-addon" || len(status.SupportedConfigs) != 1 {
		t.Errorf("%+v", addOn)
	}
	for _, kind := range []string{"RegistrationApplied", "ManifestApplied"} {
		if !meta.IsStatusConditionTrue(status.Conditions, kind) {
			t.Errorf("%s is not True: %+v", kind, status.Conditions)
		}
	}
	if condition, applied := progress.Evaluate(addOn, nil); !applied || condition.Reason != fleet.ReasonCompleted {
		t.Errorf("progress: %+v", condition)
	}
	version := addOn.ResourceVersion
	if err := b.reconcile(t); err != nil || b.addOn(t).ResourceVersion != version {
		t.Errorf("written again: %v", err)
	}
}

// MS-06: a process without the rights of agents binds a ClusterRole that has them. It leaves add-ons that it does not serve alone.
func TestBoundClusterRole(t *testing.T) {
	t.Parallel()
	b := newBench(t, entry(marked), installed(), accepted())
	o := b.controller.Options
	o.ClusterRole, o.Served = "of-agents", []string{"cluster-proxy"}
	b.controller = builtin.New(b, o)
	must(t, b.reconcile(t))
	if fleet.IsBuiltIn(b.addOn(t)) {
		t.Error("an add-on that another process serves is marked")
	}
	o.Served = []string{name}
	b.controller = builtin.New(b, o)
	must(t, b.reconcile(t))
	key, binding := client.ObjectKey{Namespace: "c1", Name: role}, &rbacv1.RoleBinding{}
	must(t, b.Get(t.Context(), key, binding))
	if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != "of-agents" || len(binding.Subjects) != 2 {
		t.Errorf("%+v of %v", binding.RoleRef, binding.Subjects)
	}
	if err := b.Get(t.Context(), key, &rbacv1.Role{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Role: %v", err)
	}
	condition := meta.FindStatusCondition(b.addOn(t).Status.Conditions, "RegistrationApplied")
	if condition == nil || !strings.Contains(condition.Message, "ClusterRole of-agents, by RoleBinding "+role) {
		t.Errorf("%+v", condition)
	}
	must(t, b.Delete(t.Context(), installed()))
	must(t, b.reconcile(t))
	if err := b.Get(t.Context(), key, binding); !apierrors.IsNotFound(err) {
		t.Errorf("the rights are left: %v", err)
	}
}

// MS-06, CP-02: what is not the hub's own add-on, or not on an accepted cluster, has no rights, and loses those that it had.
func TestNoRights(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, b *bench){
		"the add-on is disabled": func(t *testing.T, b *bench) { must(t, b.Delete(t.Context(), installed())) },
		"the cluster is gone":    func(t *testing.T, b *bench) { must(t, b.Delete(t.Context(), accepted())) },
		"the cluster is denied": func(t *testing.T, b *bench) {
			cluster := accepted()
			must(t, b.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
			cluster.Spec.HubAcceptsClient = false
			must(t, b.Update(t.Context(), cluster))
		},
		"another manager has the add-on": func(t *testing.T, b *bench) {
			must(t, b.Delete(t.Context(), entry(nil)))
			must(t, b.Create(t.Context(), entry(nil)))
		},
		"the add-on is unknown": func(t *testing.T, b *bench) { must(t, b.Delete(t.Context(), entry(nil))) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry(marked), installed(), accepted())
			must(t, b.reconcile(t))
			if len(b.rights(t)) == 0 {
				t.Fatal("no rights to begin with")
			}
			change(t, b)
			must(t, b.reconcile(t))
			if rights := b.rights(t); len(rights) > 0 {
				t.Errorf("rights are left: %v", rights)
			}
			addOn := installed()
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err == nil &&
				strings.Contains(what, "the add-on") && fleet.IsBuiltIn(addOn) {
				t.Error("it is still marked")
			}
		})
	}
}

// MS-06: a role that somebody else has made is not taken over, and the add-on does not start.
func TestRoleOfAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t, entry(marked), installed(), accepted(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: role}})
	if err := b.reconcile(t); err == nil {
		t.Error("no error")
	}
	addOn := b.addOn(t)
	condition := meta.FindStatusCondition(addOn.Status.Conditions, "RegistrationApplied")
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != "SetPermissionFailed" ||
		!strings.Contains(condition.Message, "delete it") || fleet.IsBuiltIn(addOn) {
		t.Errorf("%+v", addOn)
	}
}

// AM-07: the namespace is that of the configuration, once that is known.
func TestNamespace(t *testing.T) {
	t.Parallel()
	deployment := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "addon.open-cluster-management.io/v1beta1", "kind": "AddOnDeploymentConfig",
		"metadata": map[string]any{"namespace": "configs", "name": "elsewhere"}, "spec": map[string]any{"agentInstallNamespace": "accounts"},
	}}
	hash, err := config.Hash(deployment)
	must(t, err)
	reference := addonv1beta1.ConfigReference{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"},
		DesiredConfig: &addonv1beta1.ConfigSpecHash{SpecHash: hash,
			ConfigReferent: addonv1beta1.ConfigReferent{Namespace: "configs", Name: "elsewhere"}},
	}
	unknown, configured, missing := installed(), installed(), installed()
	unknown.Status.Conditions = nil
	configured.Status.ConfigReferences = []addonv1beta1.ConfigReference{reference}
	missing.Status.ConfigReferences = []addonv1beta1.ConfigReference{*reference.DeepCopy()}
	missing.Status.ConfigReferences[0].DesiredConfig.Name = "nowhere"
	for what, test := range map[string]struct {
		addOn     *addonv1beta1.ManagedClusterAddOn
		namespace string
		isBuiltIn bool
		applied   metav1.ConditionStatus
	}{
		"not known yet": {unknown, "", false, ""},
		"configured":    {configured, "accounts", true, metav1.ConditionTrue},
		"missing":       {missing, "", false, metav1.ConditionFalse},
	} {
		b := newBench(t, entry(marked), test.addOn, accepted(), deployment.DeepCopy())
		must(t, b.reconcile(t))
		addOn := b.addOn(t)
		var applied metav1.ConditionStatus
		if condition := meta.FindStatusCondition(addOn.Status.Conditions, "ManifestApplied"); condition != nil {
			applied = condition.Status
		}
		if addOn.Status.Namespace != test.namespace || fleet.IsBuiltIn(addOn) != test.isBuiltIn || applied != test.applied {
			t.Errorf("%s: %+v", what, addOn)
		}
	}
}

// CP-13: the agent gets what the configuration of cluster-proxy says. It keeps that while another one cannot be used, and a condition
// says why.
func TestTunnelIsConfigured(t *testing.T) {
	t.Parallel()
	const proxy = `{"proxy":{"httpsProxy":"http://proxy:3128","noProxy":".svc"},"serviceDomain":"cluster.local"}`
	variables := []any{map[string]any{"name": "serviceDomain", "value": "cluster.local"}}
	usable := map[string]any{"proxyConfig": map[string]any{"httpsProxy": "http://proxy:3128", "noProxy": ".svc"}, "customizedVariables": variables}
	for what, test := range map[string]struct {
		before         map[string]string
		spec           map[string]any
		annotation     string
		isBuiltIn      bool
		applied, cause string
	}{
		"proxy":   {nil, usable, proxy, true, "True", "applies no manifests"},
		"nothing": {map[string]string{fleet.AnnotationClusterProxyConfig: "x"}, map[string]any{}, "", true, "True", ""},
		"unusable": {nil, map[string]any{"proxyConfig": map[string]any{"httpsProxy": "ftp://proxy"}}, "", false, "False",
			"configs/tunnel cannot be used: proxyConfig.httpsProxy"},
		"unusable then": {map[string]string{fleet.AnnotationClusterProxyConfig: proxy, fleet.AnnotationBuiltIn: "true"},
			map[string]any{"proxyConfig": map[string]any{"httpsProxy": "ftp://proxy"}}, proxy, true, "False", "httpsProxy"},
	} {
		test.spec["agentInstallNamespace"] = ""
		deployment := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "addon.open-cluster-management.io/v1beta1",
			"kind": "AddOnDeploymentConfig", "metadata": map[string]any{"namespace": "configs", "name": "tunnel"}, "spec": test.spec}}
		hash, err := config.Hash(deployment)
		must(t, err)
		tunnel := installed()
		tunnel.Name, tunnel.Annotations = fleet.AddOnClusterProxy, test.before
		tunnel.Status.ConfigReferences = []addonv1beta1.ConfigReference{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"},
			DesiredConfig: &addonv1beta1.ConfigSpecHash{SpecHash: hash,
				ConfigReferent: addonv1beta1.ConfigReferent{Namespace: "configs", Name: "tunnel"}},
		}}
		catalogued := entry(marked)
		catalogued.Name = fleet.AddOnClusterProxy
		b := newBench(t, catalogued, tunnel, accepted(), deployment)
		_, err = b.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tunnel)})
		must(t, err)
		must(t, b.Get(t.Context(), client.ObjectKeyFromObject(tunnel), tunnel))
		condition := meta.FindStatusCondition(tunnel.Status.Conditions, "ManifestApplied")
		if tunnel.Annotations[fleet.AnnotationClusterProxyConfig] != test.annotation || fleet.IsBuiltIn(tunnel) != test.isBuiltIn ||
			condition == nil || string(condition.Status) != test.applied || !strings.Contains(condition.Message, test.cause) {
			t.Errorf("%s: %+v", what, tunnel)
		}
	}
}

// What users change of the rights is put right.
func TestRightsAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, entry(marked), installed(), accepted())
	must(t, b.reconcile(t))
	binding := &rbacv1.RoleBinding{}
	must(t, b.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: role}, binding))
	binding.Subjects = nil
	must(t, b.Update(t.Context(), binding))
	must(t, b.reconcile(t))
	if len(b.rights(t)) != 2 {
		t.Errorf("%v", b.rights(t))
	}
}

// CP-02: the ClusterManagementAddOns that are requested are there, and those of others stay as they are.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	catalogue := builtin.NewCatalogue(b, []string{name})
	request := func(name string) {
		t.Helper()
		_, err := catalogue.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
		must(t, err)
	}
	request(name)
	made := entry(nil)
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(made), made))
	if !fleet.IsBuiltIn(made) || len(made.Spec.InstallStrategy.Placements) > 0 || made.Spec.AddOnMeta.Description == "" {
		t.Errorf("%+v", made)
	}
	must(t, b.Delete(t.Context(), made))
	must(t, b.Create(t.Context(), entry(nil)))
	request(name)
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(made), made))
	if fleet.IsBuiltIn(made) {
		t.Error("the add-on of another manager was taken over")
	}
	request("other")
	if err := b.Get(t.Context(), client.ObjectKey{Name: "other"}, made); !apierrors.IsNotFound(err) {
		t.Errorf("another add-on was made: %v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := builtin.Check([]string{name}); err != nil {
		t.Error(err)
	}
	const all = "use some of cluster-gateway, cluster-proxy, " + name
	if err := builtin.Check([]string{"managed-service-account"}); err == nil || !strings.Contains(err.Error(), all) {
		t.Errorf("%v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
