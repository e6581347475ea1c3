package credentials_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	proxyv1alpha1 "github.com/capstan-io/capstan/api/proxy/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/gateway/credentials"
)

const secretNamespace = "credentials"

func cluster(accepted bool) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	c.Spec.HubAcceptsClient = accepted
	c.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://c1.example.com"}}
	c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	return c
}

// byAWS is a cluster that registers by AWS IAM.
func byAWS() *clusterv1.ManagedCluster {
	c := cluster(true)
	c.Annotations = map[string]string{"agent.open-cluster-management.io/managed-cluster-arn": "arn:aws:eks:us-west-2:123456789012:cluster/c1"}
	return c
}

func entry(builtIn string) *addonv1beta1.ClusterManagementAddOn {
	return &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-gateway",
		Annotations: map[string]string{"capstan.io/built-in": builtIn}}}
}

func addOn(name string) *addonv1beta1.ManagedClusterAddOn {
	return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: "u"}}
}

// tunnel is the add-on with the tunnels of the hub.
func tunnel() *addonv1beta1.ManagedClusterAddOn {
	a := addOn("cluster-proxy")
	a.Annotations = map[string]string{"capstan.io/built-in": "true"}
	return a
}

// token is the Secret of a ManagedServiceAccount.
func token(name string, labels ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, Labels: map[string]string{}},
		Data: map[string][]byte{"token": []byte("of-" + name), "ca.crt": []byte("ca"), "other": []byte("x")}}
	for _, label := range labels {
		s.Labels[label] = "true"
	}
	return s
}

// target is the Secret for the gateway.
func target(labels map[string]string, annotations map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretNamespace, Name: "c1", Labels: labels, Annotations: annotations},
		Data: map[string][]byte{"token": []byte("old"), "left": []byte("over")}}
}

func configured(spec proxyv1alpha1.ClusterGatewayConfigurationSpec) *proxyv1alpha1.ClusterGatewayConfiguration {
	return &proxyv1alpha1.ClusterGatewayConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster-gateway"}, Spec: spec}
}

func TestReconcile(t *testing.T) { // CG-07
	t.Parallel()
	const isToken = "authentication.open-cluster-management.io/is-managed-serviceaccount"
	ours := map[string]string{gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken", "open-cluster-management.io/addon-name": "cluster-gateway"}
	theirs := map[string]string{gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken"}
	of := token("cluster-gateway", isToken)
	for name, test := range map[string]struct {
		objects []client.Object
		// secret is what there is for the gateway then, and available the condition.
		secret, available string
	}{
		"directly": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), of},
			"Const https://c1.example.com of-cluster-gateway", "Unknown WaitingForProbe"},
		"through the tunnel": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), tunnel(), of},
			"ClusterProxy  of-cluster-gateway", "Unknown WaitingForProbe"},
		"not through the tunnel of another manager": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"),
			addOn("cluster-proxy"), of}, "Const https://c1.example.com of-cluster-gateway", "Unknown WaitingForProbe"},
		"without tunnels, by AWS IAM": {[]client.Object{byAWS(), entry("true"), addOn("cluster-gateway"), tunnel(), of},
			"Const https://c1.example.com of-cluster-gateway", "Unknown WaitingForProbe"},
		"as configured": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), tunnel(), token("other", isToken),
			configured(proxyv1alpha1.ClusterGatewayConfigurationSpec{SecretNamespace: secretNamespace,
				Egress: &proxyv1alpha1.ClusterGatewayTrafficEgress{Type: proxyv1alpha1.EgressDirect},
				SecretManagement: proxyv1alpha1.ClusterGatewaySecretManagement{
					ManagedServiceAccount: &proxyv1alpha1.SecretManagementManagedServiceAccountSpec{Name: "other"}}})},
			"Const https://c1.example.com of-other", "Unknown WaitingForProbe"},
		"a renewed token": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), of,
			target(ours, map[string]string{gatewayv1alpha1.AnnotationHealthy: "true"})},
			"Const https://c1.example.com of-cluster-gateway healthy", "True SuccessfullyProbedHealthz"},
		"unhealthy": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), of,
			target(ours, map[string]string{gatewayv1alpha1.AnnotationHealthy: "false", gatewayv1alpha1.AnnotationHealthyReason: "why"})},
			"Const https://c1.example.com of-cluster-gateway", "False FailedProbingHealthz why"},
		"no token": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway")},
			"", "Unknown WaitingForCredential There is no token of ManagedServiceAccount c1/cluster-gateway yet"},
		"a Secret that is no token": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), token("cluster-gateway")},
			"", "Unknown WaitingForCredential There is no token"},
		"a Secret of a user": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), of, target(theirs, nil)},
			"Const  old", "False CredentialNotWritten Secret credentials/c1 is not of this add-on"},
		"Secrets of users": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), target(theirs, nil),
			configured(proxyv1alpha1.ClusterGatewayConfigurationSpec{SecretManagement: proxyv1alpha1.ClusterGatewaySecretManagement{
				Type: proxyv1alpha1.SecretManagementManual}})},
			"Const  old", "Unknown WaitingForProbe"},
		"another namespace": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), of,
			configured(proxyv1alpha1.ClusterGatewayConfigurationSpec{SecretNamespace: "vela-system"})},
			"", "False CredentialNotWritten ClusterGatewayConfiguration cluster-gateway: spec.secretNamespace is vela-system"},
		"another account than may be read": {[]client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), token("other", isToken),
			configured(proxyv1alpha1.ClusterGatewayConfigurationSpec{SecretManagement: proxyv1alpha1.ClusterGatewaySecretManagement{
				ManagedServiceAccount: &proxyv1alpha1.SecretManagementManagedServiceAccountSpec{Name: "other"}}})},
			"", "False CredentialNotWritten ClusterGatewayConfiguration cluster-gateway: spec.secretManagement.managedServiceAccount.name is other"},
		"a cluster that is denied": {[]client.Object{cluster(false), entry("true"), addOn("cluster-gateway"), of, target(ours, nil)},
			"", "Unknown WaitingForCredential ManagedCluster c1 is not accepted"},
		"another manager":             {[]client.Object{cluster(true), entry("false"), addOn("cluster-gateway"), of, target(ours, nil)}, "", ""},
		"no add-on":                   {[]client.Object{cluster(true), entry("true"), of, target(ours, nil)}, "", ""},
		"no add-on, Secret of a user": {[]client.Object{cluster(true), entry("true"), of, target(theirs, nil)}, "Const  old", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, test.objects)
			options := credentials.Options{Namespace: secretNamespace, Clock: clocktesting.NewFakePassiveClock(time.Now())}
			if strings.HasPrefix(name, "another account") {
				options.Account = "cluster-gateway"
			}
			controller := credentials.New(c, c, options)
			if _, err := controller.Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "c1", Name: "cluster-gateway"}}); err != nil {
				t.Fatal(err)
			}
			if got := secretIn(t, c); got != test.secret {
				t.Errorf("Secret %q, want %q", got, test.secret)
			}
			if got := availableIn(t, c); !strings.HasPrefix(got, test.available) || got != "" && test.available == "" {
				t.Errorf("Available %q, want %q", got, test.available)
			}
		})
	}
}

// CG-07: what the add-on has made for an earlier configuration goes once the present one has what it needs. With Manual, that is all, and
// the Secret for the gateway is the user's.
func TestEarlierConfiguration(t *testing.T) {
	t.Parallel()
	const isToken, name = "authentication.open-cluster-management.io/is-managed-serviceaccount", "cluster-gateway"
	named := configured(proxyv1alpha1.ClusterGatewayConfigurationSpec{SecretManagement: proxyv1alpha1.ClusterGatewaySecretManagement{
		ManagedServiceAccount: &proxyv1alpha1.SecretManagementManagedServiceAccountSpec{Name: "other"}}})
	manual := configured(proxyv1alpha1.ClusterGatewayConfigurationSpec{SecretManagement: proxyv1alpha1.ClusterGatewaySecretManagement{
		Type: proxyv1alpha1.SecretManagementManual}})
	ours := target(map[string]string{gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken",
		"open-cluster-management.io/addon-name": name}, nil)
	for what, test := range map[string]struct {
		objects  []client.Object
		accounts string // that there are then
		secret   string // when the cluster is denied after that
	}{
		"the same name":         {[]client.Object{token(name, isToken), ours}, "cluster-gateway mine", ""},
		"another name":          {[]client.Object{named, token(name, isToken), token("other", isToken), ours}, "mine other", ""},
		"another name, too new": {[]client.Object{named, token(name, isToken), ours}, "cluster-gateway mine other", ""},
		"manual":                {[]client.Object{manual, token(name, isToken), ours}, "mine", "Const  old"},
		"manual, no Secret":     {[]client.Object{manual, token(name, isToken)}, "mine", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			mine := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "mine"}}
			former := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: "former",
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(addOn(name),
					addonv1beta1.GroupVersion.WithKind("ManagedClusterAddOn"))}}}
			c := newClient(t, append(test.objects, cluster(true), entry("true"), addOn(name), mine, former))
			controller := credentials.New(c, c, credentials.Options{Namespace: secretNamespace,
				Clock: clocktesting.NewFakePassiveClock(time.Now())})
			reconcile := func() {
				t.Helper()
				if _, err := controller.Reconcile(t.Context(),
					ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "c1", Name: name}}); err != nil {
					t.Fatal(err)
				}
			}
			reconcile()
			list, names := &authenticationv1beta1.ManagedServiceAccountList{}, []string{}
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != test.accounts {
				t.Errorf("there are the accounts %s, want %s", got, test.accounts)
			}
			denied := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`))
			if err := c.Patch(t.Context(), cluster(true), denied); err != nil {
				t.Fatal(err)
			}
			if reconcile(); secretIn(t, c) != test.secret {
				t.Errorf("once the cluster is denied, there is the Secret %q, want %q", secretIn(t, c), test.secret)
			}
		})
	}
}

// CG-07: a Secret without the label, which no watch shows, is looked for until it has gone.
func TestSecretWithoutLabel(t *testing.T) {
	t.Parallel()
	unlabelled := target(nil, nil)
	api := newClient(t, []client.Object{cluster(true), entry("true"), addOn("cluster-gateway"), unlabelled,
		token("cluster-gateway", "authentication.open-cluster-management.io/is-managed-serviceaccount")})
	// As the cache of the controller, it has only Secrets with the label of tokens or of credentials.
	cached := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			if err == nil && len(o.GetLabels()) == 0 {
				return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
			}
			return err
		},
	})
	controller := credentials.New(api, cached, credentials.Options{Namespace: secretNamespace,
		Clock: clocktesting.NewFakePassiveClock(time.Now())})
	reconcile := func(again time.Duration, available string) {
		t.Helper()
		result, err := controller.Reconcile(t.Context(),
			ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "c1", Name: "cluster-gateway"}})
		if err != nil || result.RequeueAfter != again {
			t.Errorf("tried again after %s, want %s: %v", result.RequeueAfter, again, err)
		}
		if got := availableIn(t, api); !strings.HasPrefix(got, available) {
			t.Errorf("Available %q, want %q", got, available)
		}
	}
	for range 2 { // also when the condition stays the same
		reconcile(time.Minute, "False CredentialNotWritten Secret credentials/c1 exists without the label")
	}
	if err := api.Delete(t.Context(), unlabelled); err != nil {
		t.Fatal(err)
	}
	reconcile(0, "Unknown WaitingForProbe")
}

func newClient(t *testing.T, objects []client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, addonv1beta1.AddToScheme,
		authenticationv1beta1.AddToScheme, proxyv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	copies := make([]client.Object, 0, len(objects))
	for _, o := range objects {
		copied, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T is no object", o)
		}
		copies = append(copies, copied)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(copies...).WithStatusSubresource(&addonv1beta1.ManagedClusterAddOn{}).Build()
}

func secretIn(t *testing.T, c client.Client) string {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: secretNamespace, Name: "c1"}, s); apierrors.IsNotFound(err) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	kind := s.Labels[gatewayv1alpha1.LabelEndpointType]
	if kind == "" {
		kind = "Const"
	}
	text := kind + " " + string(s.Data["endpoint"]) + " " + string(s.Data["token"])
	if s.Annotations[gatewayv1alpha1.AnnotationHealthy] == "true" {
		text += " healthy"
	}
	if len(s.Data["other"]) > 0 {
		t.Error("more than token and CA is copied")
	}
	return text
}

func availableIn(t *testing.T, c client.Client) string {
	t.Helper()
	a := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "cluster-gateway"}, a); apierrors.IsNotFound(err) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	condition := meta.FindStatusCondition(a.Status.Conditions, "Available")
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason + " " + condition.Message
}
