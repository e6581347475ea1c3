package install

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CG-07 CG-08 HC-10: with manualSecretManagement: false, the chart has the add-on enabled on all clusters, and its manager gives the
// gateway the token of an account there, with the rights of the chart and no more.
func TestClusterGatewayChart(t *testing.T) {
	t.Parallel()
	const cluster, namespace = "gwchart", "open-cluster-management-addon"
	existing, _ := framework.HubInExistingCluster(t)
	framework.StartPlacementControllers(t, existing)
	h := existing.Client(t)
	chart := helm{cluster: existing, namespace: namespace}
	chart.install(t, "managed-serviceaccount", chartOf(t, "managed-serviceaccount"), "")
	chart.install(t, "cluster-gateway", chartOf(t, "cluster-gateway-addon-manager"), "{manualSecretManagement: false}")
	// There is no gateway in this test, which makes an API that cannot be reached.
	api := &unstructured.Unstructured{}
	api.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	api.SetName("v1alpha1.cluster.core.oam.dev")
	if err := h.Delete(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	startManager(t, existing, namespace, "managed-serviceaccount-addon-manager", "open-cluster-management:managed-serviceaccount")
	startManager(t, existing, namespace, "cluster-gateway-addon-manager", "open-cluster-management:cluster-gateway-addon-manager")
	token := framework.TokenOf(t, existing, fleet.NamespaceOperators, fleet.ServiceAccountBootstrap)
	if err := env.NewAgent(t, existing, framework.Managed, cluster, token).Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, cluster)
	env.AwaitAvailable(t, h, cluster)
	accounts := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "managed-serviceaccount"}}
	framework.AwaitObject(t, h, accounts, func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	place := cluster + "-accounts"
	framework.MergePatch(t, h, accounts, `{"metadata":{"annotations":{"`+fleet.AnnotationInstallNamespace+`":"`+place+`"}}}`)

	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "cluster-gateway"}}
	awaitGateway := func(reason string) {
		t.Helper()
		framework.AwaitObject(t, h, addOn, func(a *addonv1beta1.ManagedClusterAddOn) error {
			for _, c := range a.Status.Conditions {
				if c.Type == fleet.ConditionAvailable && c.Reason == reason {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", a.Status.Conditions)
		})
	}
	mine := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	awaitGateway("WaitingForCredential") // the cluster does not say where it is
	framework.MergePatch(t, h, mine, `{"spec":{"managedClusterClientConfigs":[{"url":"https://gwchart.example.com"}]}}`)
	secret := framework.AwaitObject(t, h, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: framework.GatewayNamespace, Name: cluster}},
		func(s *corev1.Secret) error {
			if who, err := framework.WhoOn(t, s); err != nil || who != "system:serviceaccount:"+place+":cluster-gateway" {
				return fmt.Errorf("the token is of %q, %w", who, err)
			}
			return nil
		})
	if got := string(secret.Data["endpoint"]); got != "https://gwchart.example.com" ||
		secret.Labels[gatewayv1alpha1.LabelEndpointType] != "Const" {
		t.Errorf("the endpoint is %s, with labels %v", got, secret.Labels)
	}
	awaitGateway("WaitingForProbe")
	testStolenTokenOfCredentials(t, existing, cluster, namespace)

	if err := h.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, h, secret, func(s *corev1.Secret) error {
		if s.DeletionTimestamp != nil || len(s.Data["token"]) == 0 {
			return fmt.Errorf("deleted at %v", s.DeletionTimestamp)
		}
		return nil
	})
	framework.MergePatch(t, h, mine, `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitGone(t, h, secret)
}

// testStolenTokenOfCredentials: who has the token of the manager reads no Secrets of clusters but those of the gateway's accounts, asks for
// no other accounts, and reports on no other add-ons.
func testStolenTokenOfCredentials(t *testing.T, existing *env.Server, cluster, namespace string) {
	t.Helper()
	h := existing.Client(t)
	others := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "others"}}
	framework.Create(t, h, framework.ManagedServiceAccount(cluster, "others", time.Hour), others)
	othersSecret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "others"}}
	framework.AwaitObject(t, h, othersSecret, func(*corev1.Secret) error { return nil })
	secretIn := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cluster-gateway"}}
	}
	thief := impersonate(t, existing, fleet.ServiceAccountUser(namespace, "cluster-gateway-addon-manager"))
	for what, err := range map[string]error{
		"lists Secrets":                        thief.List(t.Context(), &corev1.SecretList{}),
		"lists Secrets of a cluster":           thief.List(t.Context(), &corev1.SecretList{}, client.InNamespace(cluster)),
		"lists Secrets of another name":        thief.List(t.Context(), &corev1.SecretList{}, client.MatchingFields{"metadata.name": "others"}),
		"reads the Secret of another account":  thief.Get(t.Context(), client.ObjectKey{Namespace: cluster, Name: "others"}, &corev1.Secret{}),
		"asks for another account":             thief.Create(t.Context(), framework.ManagedServiceAccount(cluster, "another", time.Hour), client.DryRunAll),
		"deletes an account":                   thief.Delete(t.Context(), framework.ManagedServiceAccount(cluster, "others", time.Hour), client.DryRunAll),
		"reports on another add-on":            thief.Status().Patch(t.Context(), others, framework.Merge(`{"status":{"conditions":[]}}`), client.DryRunAll),
		"writes a Secret in another namespace": thief.Create(t.Context(), secretIn(cluster), client.DryRunAll),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the manager %s: %v", what, err)
		}
	}
	allowed := &corev1.SecretList{}
	if err := thief.List(t.Context(), allowed, client.MatchingFields{"metadata.name": "cluster-gateway"}); err != nil ||
		!slices.ContainsFunc(allowed.Items, func(s corev1.Secret) bool { return s.Namespace == cluster }) {
		t.Errorf("the Secrets of its accounts are %d, %v", len(allowed.Items), err)
	}
}
