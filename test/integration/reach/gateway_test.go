package reach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

var clusterGateways = gatewayv1alpha1.GroupVersion.WithResource("clustergateways")

// gatewayClients are of an administrator of the hub.
func gatewayClients(t *testing.T) (client.Client, dynamic.ResourceInterface, *rest.Config) {
	t.Helper()
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	gateways, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return env.ClientFor(t, config), gateways.Resource(clusterGateways), config
}

// grantOnCluster binds the service account on the managed cluster to a ClusterRole.
func grantOnCluster(t *testing.T, name, role string) {
	t.Helper()
	framework.Create(t, framework.Managed.Client(t), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}})
}

// gatewaySecret makes the namespace and the Secret for a cluster that is dialled directly.
func gatewaySecret(t *testing.T, c client.Client, cluster string) *corev1.Secret {
	t.Helper()
	token, config := framework.AccountOnCluster(t, cluster)
	framework.Namespace(t, c, framework.GatewayNamespace)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: framework.GatewayNamespace, Name: cluster, Labels: map[string]string{
			gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken", "test": cluster}},
		Data: map[string][]byte{"endpoint": []byte(config.Host), "ca.crt": config.CAData, "token": []byte(token)},
	}
	framework.Create(t, c, secret)
	return secret
}

// ClusterGateways are listed, watched and printed as other resources, and show no credentials. CG-01
func TestClusterGatewayResource(t *testing.T) {
	t.Parallel()
	c, gateways, config := gatewayClients(t)
	const name = "gw-resource"
	before, err := gateways.List(t.Context(), metav1.ListOptions{LabelSelector: "test=" + name})
	if err != nil {
		t.Fatal(err)
	}
	events, err := gateways.Watch(t.Context(), metav1.ListOptions{LabelSelector: "test=" + name, ResourceVersion: before.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	secret := gatewaySecret(t, c, name)
	framework.AwaitWatched(t, events, watch.Added, name)

	got, err := gateways.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), string(secret.Data["token"])) || got.GetUID() != secret.UID {
		t.Errorf("%s", text)
	}
	if kind, _, _ := unstructured.NestedString(got.Object, "spec", "access", "credential", "type"); kind != "ServiceAccountToken" {
		t.Errorf("credential %q", kind)
	}
	// A Secret that is of no use still shows.
	if err := c.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"cluster.core.oam.dev/cluster-credential-type":"Password"}}}`))); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		got, err := gateways.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		reason, _, _ := unstructured.NestedString(got.Object, "status", "healthyReason")
		if !strings.Contains(reason, `cluster-credential-type is "Password"; use ServiceAccountToken`) {
			return fmt.Errorf("reason %q", reason)
		}
		return nil
	})
	for _, selector := range []string{"spec.provider=x", "metadata.namespace=x"} {
		if _, err := gateways.List(t.Context(), metav1.ListOptions{FieldSelector: selector}); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", selector, err)
		}
	}
	if err := gateways.Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("deleted through the gateway: %v", err)
	}
	if columns := tableColumns(t, config, name); columns != "Name Provider Credential-Type Endpoint-Type" {
		t.Errorf("columns %s", columns)
	}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	framework.AwaitWatched(t, events, watch.Deleted, name)
	if _, err := gateways.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the Secret has gone: %v", err)
	}
}

// tableColumns are what kubectl prints of a list.
func tableColumns(t *testing.T, config *rest.Config, name string) string {
	t.Helper()
	answer, err := kubernetes.NewForConfigOrDie(config).RESTClient().Get().
		AbsPath("/apis", gatewayv1alpha1.GroupVersion.String(), "clustergateways").
		Param("fieldSelector", "metadata.name="+name).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(answer, table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, answer)
	}
	var columns []string
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			columns = append(columns, column.Name)
		}
	}
	return strings.Join(columns, " ")
}

// Any client reaches the cluster by the path of the gateway, with the rights of the gateway there. CG-02 CG-09
func TestClusterGatewayProxy(t *testing.T) {
	t.Parallel()
	c, _, config := gatewayClients(t)
	const name = "gw-proxy"
	gatewaySecret(t, c, name)
	cluster := framework.ThroughGateway(t, config, name)
	var refusal error
	env.Eventually(t, func(ctx context.Context) error {
		if _, refusal = cluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(refusal) {
			return fmt.Errorf("not forbidden: %w", errors.Join(refusal, errors.New("no refusal")))
		}
		return nil
	})
	if want := `namespaces is forbidden: User "system:serviceaccount:default:gw-proxy" cannot list resource "namespaces" in API group "" ` +
		"at the cluster scope"; refusal.Error() != want {
		t.Errorf("%v\nwant %s", refusal, want)
	}
	grantOnCluster(t, name, "cluster-admin")
	env.Eventually(t, func(ctx context.Context) error {
		_, err := cluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
	framework.Namespace(t, framework.Managed.Client(t), name)
	maps := cluster.CoreV1().ConfigMaps(name)
	events, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run has made it: %v", err)
	}
	if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitWatched(t, events, watch.Added, "a")
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitWatched(t, events, watch.Deleted, "a")
	metrics, err := kubernetes.NewForConfigOrDie(config).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`ocm_proxy_proxied_resource_requests_by_cluster_total{cluster="gw-proxy",code="201"} 2`,
		`ocm_proxy_proxied_resource_requests_by_resource_total{code="200",resource="configmaps",verb="watch"}`,
		`ocm_proxy_proxied_resource_requests_duration_seconds_count{resource="configmaps",verb="create"}`,
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Who may use the gateway of one cluster may not use that of another, and streams end with the right. CG-02
func TestClusterGatewayRights(t *testing.T) {
	t.Parallel()
	c, _, config := gatewayClients(t)
	const name, other = "gw-rights", "gw-rights-other"
	gatewaySecret(t, c, name)
	gatewaySecret(t, c, other)
	grantOnCluster(t, name, "cluster-admin")
	framework.Namespace(t, framework.Managed.Client(t), name)
	user := rest.CopyConfig(config)
	user.Impersonate = rest.ImpersonationConfig{UserName: "gw-user"}
	cluster := framework.ThroughGateway(t, user, name)
	if _, err := cluster.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `clustergateways.cluster.core.oam.dev "gw-rights" is forbidden: User "gw-user"`) {
		t.Errorf("without rights: %v", err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "gw-user"}}}
	framework.Create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{gatewayv1alpha1.GroupVersion.Group}, Resources: []string{"clustergateways/proxy"}, ResourceNames: []string{name},
		Verbs: []string{"get"}}}}, binding)
	env.Eventually(t, func(ctx context.Context) error {
		_, err := cluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
	_, err := framework.ThroughGateway(t, user, other).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "gw-user") {
		t.Errorf("another cluster: %v", err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := cluster.CoreV1().ConfigMaps(name).Create(t.Context(), object, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another verb: %v", err)
	}
	events, err := cluster.CoreV1().ConfigMaps(name).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	for range env.Events(t, events) { // it ends with the right
	}
}

// Streams end with the Secret. CG-02
func TestClusterGatewaySecretGone(t *testing.T) {
	t.Parallel()
	c, _, config := gatewayClients(t)
	const name = "gw-gone"
	secret := gatewaySecret(t, c, name)
	grantOnCluster(t, name, "cluster-admin")
	cluster := framework.ThroughGateway(t, config, name)
	var events watch.Interface
	env.Eventually(t, func(context.Context) (err error) {
		events, err = cluster.CoreV1().Secrets("default").Watch(t.Context(), metav1.ListOptions{})
		return err
	})
	defer events.Stop()
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for range env.Events(t, events) { // it ends with the Secret
	}
	env.Eventually(t, func(ctx context.Context) error {
		if _, err := cluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("after the Secret has gone: %w", errors.Join(err, errors.New("no NotFound")))
		}
		return nil
	})
}

// The prober says how a cluster is, and so may others. CG-03
func TestClusterGatewayHealth(t *testing.T) {
	t.Parallel()
	c, gateways, _ := gatewayClients(t)
	const name = "gw-health"
	secret := gatewaySecret(t, c, name)
	health := func(ctx context.Context) (*unstructured.Unstructured, error) {
		return gateways.Get(ctx, name, metav1.GetOptions{}, "health")
	}
	env.Eventually(t, func(ctx context.Context) error {
		got, err := health(ctx)
		if err != nil {
			return err
		}
		if healthy, _, _ := unstructured.NestedBool(got.Object, "status", "healthy"); !healthy {
			return fmt.Errorf("status %v", got.Object["status"])
		}
		return nil
	})
	got, err := health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stale := got.DeepCopy()
	got.Object["status"] = map[string]any{"healthy": false, "healthyReason": "said by a test"}
	got.Object["spec"] = map[string]any{"access": map[string]any{"endpoint": map[string]any{"type": "ClusterProxy"}}}
	if got, err = gateways.Update(t.Context(), got, metav1.UpdateOptions{}, "health"); err != nil {
		t.Fatal(err)
	}
	if reason, _, _ := unstructured.NestedString(got.Object, "status", "healthyReason"); reason != "said by a test" {
		t.Errorf("status %v", got.Object["status"])
	}
	if kind, _, _ := unstructured.NestedString(got.Object, "spec", "access", "endpoint", "type"); kind != "Const" {
		t.Errorf("health changes the endpoint to %s", kind)
	}
	if _, err := gateways.Update(t.Context(), stale, metav1.UpdateOptions{}, "health"); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if secret.Annotations["status.cluster.core.oam.dev/healthy"] != "false" ||
		secret.Annotations["status.cluster.core.oam.dev/healthy-reason"] != "said by a test" {
		t.Errorf("annotations %v", secret.Annotations)
	}
}

// The add-on brings the token of its ManagedServiceAccount to the gateway, and takes it away. CG-07
func TestClusterGatewayAddOn(t *testing.T) {
	t.Parallel()
	c, gateways, config := gatewayClients(t)
	const name = "gw-addon"
	token, there := framework.AccountOnCluster(t, name)
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-gateway",
		Annotations: map[string]string{"capstan.io/built-in": "true"}}}
	if err := c.Create(t.Context(), entry); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cluster.Spec.HubAcceptsClient = true
	cluster.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: there.Host, CABundle: there.CAData}}
	framework.Create(t, c, cluster)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cluster-gateway"}}
	env.Eventually(t, func(ctx context.Context) error { return client.IgnoreAlreadyExists(c.Create(ctx, addOn.DeepCopy())) })
	awaitAvailable(t, c, name, metav1.ConditionUnknown, "There is no token of ManagedServiceAccount gw-addon/cluster-gateway yet")

	account := &unstructured.Unstructured{}
	account.SetGroupVersionKind(authenticationv1beta1.GroupVersion.WithKind("ManagedServiceAccount"))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), account); err != nil || len(account.GetOwnerReferences()) != 1 {
		t.Fatalf("%v %v", err, account)
	}
	// What the agent does.
	framework.Create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cluster-gateway",
		Labels: map[string]string{"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"}},
		Data: map[string][]byte{"token": []byte(token), "ca.crt": there.CAData}})
	awaitAvailable(t, c, name, metav1.ConditionTrue, "The API server of the cluster answers the gateway")
	answer, err := kubernetes.NewForConfigOrDie(config).RESTClient().Get().
		AbsPath("/apis/cluster.core.oam.dev/v1alpha1/clustergateways", name, "proxy/healthz").DoRaw(t.Context())
	if err != nil || string(answer) != "ok" {
		t.Errorf("healthz: %q %v", answer, err)
	}
	_, err = framework.ThroughGateway(t, config, name).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the add-on has rights on the cluster: %v", err)
	}
	// With the add-on cluster-proxy the way is the tunnel.
	framework.Create(t, c, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cluster-proxy"}})
	awaitAvailable(t, c, name, metav1.ConditionFalse, "through")

	if err := c.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"hubAcceptsClient":false}}`))); err != nil {
		t.Fatal(err)
	}
	awaitAvailable(t, c, name, metav1.ConditionUnknown, "is not accepted")
	if _, err := gateways.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of a cluster that is denied: %v", err)
	}
}

// CG-07: where the add-on cluster-proxy is, the gateway goes through its tunnel, verifies who answers, and knows at once when the tunnel
// has gone.
func TestClusterGatewayTunnel(t *testing.T) {
	t.Parallel()
	c, _, config := gatewayClients(t)
	const name = "gw-tunnel"
	p := framework.NewProxied(t, framework.Hub, name)
	enableAccounts(t, name)
	framework.Create(t, c, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cluster-gateway"}})
	awaitAvailable(t, c, name, metav1.ConditionTrue, "The API server of the cluster answers the gateway")

	cluster := framework.ThroughGateway(t, config, name)
	who := "system:serviceaccount:" + name + "-accounts:cluster-gateway"
	if _, err := cluster.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `User "`+who+`" cannot list`) {
		t.Errorf("without rights on the cluster: %v", err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "gateway"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name + "-accounts", Name: "cluster-gateway"}}}
	framework.Create(t, framework.Managed.Client(t), binding)
	maps := cluster.CoreV1().ConfigMaps(name)
	var events watch.Interface
	env.Eventually(t, func(context.Context) (err error) {
		events, err = maps.Watch(t.Context(), metav1.ListOptions{})
		return err
	})
	defer events.Stop()
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitWatched(t, events, watch.Added, "a")

	p.Agent.Kill()
	p.Agent.AwaitExit(t)
	awaitAvailable(t, c, name, metav1.ConditionFalse, "cluster "+name+" is not connected")
	for range env.Events(t, events) { // it ends with the tunnel
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) ||
		!strings.Contains(err.Error(), "its agent has no tunnel to the hub") {
		t.Errorf("without a tunnel: %v", err)
	}
	if err := p.Agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitAvailable(t, c, name, metav1.ConditionTrue, "The API server of the cluster answers the gateway")
}

func awaitAvailable(t *testing.T, c client.Client, cluster string, status metav1.ConditionStatus, message string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: cluster, Name: "cluster-gateway"}, addOn); err != nil {
			return err
		}
		got := meta.FindStatusCondition(addOn.Status.Conditions, "Available")
		if got == nil || got.Status != status || !strings.Contains(got.Message, message) {
			return fmt.Errorf("Available is %+v, want %s %s", got, status, message)
		}
		return nil
	})
}

// CG-06: ClusterGateways and ManagedClusters are one list, of which users see what they may read of either. It shows no credentials.
func TestVirtualClusters(t *testing.T) {
	t.Parallel()
	c, _, config := gatewayClients(t)
	const name, both = "virtual-managed", "virtual-both"
	for _, one := range []string{name, both} {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: one, Labels: map[string]string{"virtual": "true"},
			Annotations: map[string]string{gatewayv1alpha1.AnnotationAlias: "alias-" + one}}}
		cluster.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://192.0.2.7:6443"}}
		cluster.Spec.HubAcceptsClient = one == both
		framework.Create(t, c, cluster)
	}
	secret := gatewaySecret(t, c, both)
	resource := gatewayv1alpha1.GroupVersion.WithResource("virtualclusters")
	as := func(user string) dynamic.ResourceInterface {
		to := rest.CopyConfig(config)
		if user != "" {
			to.Impersonate = rest.ImpersonationConfig{UserName: user}
		}
		return dynamic.NewForConfigOrDie(to).Resource(resource)
	}
	names := func(of dynamic.ResourceInterface) (found []string) {
		t.Helper()
		list, err := of.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if one := list.Items[i].GetName(); one == name || one == both || one == "local" {
				found = append(found, one)
			}
		}
		return found
	}
	spec := func(one string) map[string]any {
		t.Helper()
		shown, err := as("").Get(t.Context(), one, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(shown)
		if err != nil || strings.Contains(string(text), string(secret.Data["token"])) {
			t.Errorf("%s shows the token, %v", one, err)
		}
		spec, _, _ := unstructured.NestedMap(shown.Object, "spec")
		return spec
	}
	env.Eventually(t, func(context.Context) error {
		want := map[string]any{"alias": "alias-" + both, "accepted": true, "endpoint": string(secret.Data["endpoint"]),
			"credential-type": "ServiceAccountToken"}
		if got := spec(both); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s is %v, want %v", both, got, want)
		}
		return nil
	})
	if got := fmt.Sprint(spec(name)); got != "map[alias:alias-"+name+" credential-type:ManagedCluster endpoint:https://192.0.2.7:6443]" {
		t.Errorf("%s is %s", name, got)
	}
	if got := fmt.Sprint(names(as(""))); got != fmt.Sprint([]string{"local", both, name}) {
		t.Errorf("an administrator sees %s", got)
	}
	_, err := as("nobody").List(t.Context(), metav1.ListOptions{})
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, `cannot list resource "virtualclusters"`)
	grant := func(user, group, resource string) {
		t.Helper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + resource}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list"}}}}
		framework.Create(t, c, role, &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	}
	for user, test := range map[string]struct {
		group, resource string
		sees            []string
	}{
		"virtual-viewer":   {"", "", []string{"local"}},
		"virtual-gateways": {resource.Group, "clustergateways", []string{"local", both}},
		"virtual-clusters": {clusterv1.GroupVersion.Group, "managedclusters", []string{"local", both, name}},
	} {
		grant(user, resource.Group, "virtualclusters")
		if test.resource != "" {
			grant(user, test.group, test.resource)
		}
		env.Eventually(t, func(context.Context) error {
			if got := names(as(user)); fmt.Sprint(got) != fmt.Sprint(test.sees) {
				return fmt.Errorf("%s sees %v, want %v", user, got, test.sees)
			}
			return nil
		})
	}
	_, err = as("virtual-viewer").Get(t.Context(), both, metav1.GetOptions{})
	framework.ExpectRefusal(t, err, apierrors.IsNotFound, both)
}
