package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	create = metav1.CreateOptions{}
	get    = metav1.GetOptions{}
	list   = metav1.ListOptions{}
	remove = metav1.DeleteOptions{}
)

var (
	works       = schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
	addOnsAlpha = schema.GroupVersionResource{Group: "addon.open-cluster-management.io", Version: "v1alpha1", Resource: "managedclusteraddons"}
	addOnsBeta  = schema.GroupVersionResource{Group: "addon.open-cluster-management.io", Version: "v1beta1", Resource: "managedclusteraddons"}
	crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// newNamespace is a namespace of the test's own. Most tests leave it behind: its deletion takes five seconds.
func newNamespace(t *testing.T, h *testHub) string {
	t.Helper()
	namespace, err := h.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, create)
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// SC-12: what is served, and what is not.
func TestServedGroups(t *testing.T) {
	t.Parallel()
	served, err := shared.client.Discovery().ServerPreferredResources()
	must(t, err)
	var names []string
	for _, group := range served {
		for _, r := range group.APIResources {
			names = append(names, r.Name+"."+strings.Split(group.GroupVersion, "/")[0])
		}
	}
	for _, want := range []string{
		"namespaces.v1", "configmaps.v1", "secrets.v1", "serviceaccounts.v1", "events.v1", "resourcequotas.v1",
		"roles.rbac.authorization.k8s.io", "certificatesigningrequests.certificates.k8s.io", "leases.coordination.k8s.io",
		"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
		"subjectaccessreviews.authorization.k8s.io", "tokenreviews.authentication.k8s.io", "events.events.k8s.io",
		"flowschemas.flowcontrol.apiserver.k8s.io",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not served", want)
		}
	}
	for _, group := range []string{"apps", "batch", "autoscaling", "networking.k8s.io", "node.k8s.io", "policy", "scheduling.k8s.io"} {
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "."+group) }) {
			t.Errorf("group %s is served", group)
		}
	}
}

// SC-18 SC-01: the hub's kinds are served and can be used.
func TestHubKinds(t *testing.T) {
	t.Parallel()
	installed, err := shared.dynamic.Resource(crdResource).List(t.Context(), list)
	must(t, err)
	var names []string
	for _, crd := range installed.Items {
		names = append(names, crd.GetName())
	}
	for _, want := range []string{
		"managedclusters.cluster", "managedclustersets.cluster", "managedclustersetbindings.cluster", "placements.cluster",
		"placementdecisions.cluster", "addonplacementscores.cluster", "manifestworks.work", "manifestworkreplicasets.work",
		"clustermanagementaddons.addon", "managedclusteraddons.addon", "addondeploymentconfigs.addon", "addontemplates.addon",
		"managedserviceaccounts.authentication",
	} {
		if want += ".open-cluster-management.io"; !slices.Contains(names, want) {
			t.Errorf("CRD %s is missing", want)
		}
	}
	if !slices.Contains(names, "clusterprofiles.multicluster.x-k8s.io") {
		t.Error("the CRD of ClusterProfiles is missing")
	}
	namespace := newNamespace(t, shared)
	work := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
		"metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"workload": map[string]any{"manifests": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "a", "namespace": "default"}}}}},
	}}
	_, err = shared.dynamic.Resource(works).Namespace(namespace).Create(t.Context(), work, create)
	must(t, err)
}

// WH-13: add-on objects convert between their versions in this process: the webhook's service does not exist.
func TestConversion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	addOn := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
		"metadata": map[string]any{"name": "a"},
		"spec":     map[string]any{"installNamespace": "somewhere"},
	}}
	_, err := shared.dynamic.Resource(addOnsAlpha).Namespace(namespace).Create(t.Context(), addOn, create)
	must(t, err)
	beta, err := shared.dynamic.Resource(addOnsBeta).Namespace(namespace).Get(t.Context(), "a", get)
	must(t, err)
	if got := beta.GetAnnotations()["addon.open-cluster-management.io/v1alpha1-install-namespace"]; got != "somewhere" {
		t.Errorf("as v1beta1 the install namespace is annotated as %q: %v", got, beta.Object)
	}
}

// SC-27: the metrics of all parts of the process in one place. Not parallel: some read from the etcd of every hub that this
// process ever had, and wait for those that are gone.
func TestMetrics(t *testing.T) {
	metrics, err := shared.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	for _, want := range []string{"apiserver_request_total", "workqueue_adds_total", "etcd_server_has_leader 1",
		"process_resident_memory_bytes"} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

// SC-27: the endpoints of a Kubernetes API server.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	rc := shared.client.Discovery().RESTClient()
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/healthz": "ok",
		"/openapi/v2": "io.open-cluster-management.work.v1.ManifestWork", "/openapi/v3": "apis/work.open-cluster-management.io/v1",
		"/.well-known/openid-configuration": serviceAccountIssuer, "/openid/v1/jwks": "\"RSA\"",
	} {
		eventually(t, func(ctx context.Context) string {
			body, err := rc.Get().AbsPath(path).SetHeader("Accept", "application/json, */*").DoRaw(ctx)
			if err != nil || !strings.Contains(string(body), want) {
				return fmt.Sprintf("GET %s: %v, does not say %s", path, err, want)
			}
			return ""
		})
	}
	version, err := shared.client.Discovery().ServerVersion()
	must(t, err)
	if !strings.HasPrefix(version.GitVersion, "v1.") {
		t.Errorf("version %q", version.GitVersion)
	}
	if _, err := rc.Get().AbsPath("/debug/pprof/").DoRaw(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("profiles are served without --profiling: %v", err)
	}
}

// SC-14: who gets in, and as whom.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	whoami := func(client *testHub, config func(*rest.Config)) (authenticationv1.UserInfo, error) {
		review, err := client.as(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
			create)
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return review.Status.UserInfo, nil
	}
	admin, err := whoami(shared, func(c *rest.Config) { c.TLSClientConfig = shared.config.TLSClientConfig })
	must(t, err)
	if admin.Username != "system:admin" || !slices.Contains(admin.Groups, "system:masters") {
		t.Errorf("the admin is %+v", admin)
	}

	token := bootstrapToken(t, shared)
	joiner, err := whoami(shared, func(c *rest.Config) { c.BearerToken = token })
	must(t, err)
	if !slices.Contains(joiner.Groups, "system:bootstrappers:managedcluster") {
		t.Errorf("a bootstrap token is %+v", joiner)
	}
	if _, err := whoami(shared, func(c *rest.Config) { c.BearerToken = token[:len(token)-1] + "!" }); !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong bootstrap token: %v", err)
	}

	// A proxy passes the user on; only the certificate of the request-header CA makes it believed.
	keys := certDir(shared.options.Config.DataDirectory)
	proxied := func(leaf pki.Leaf) func(c *rest.Config) {
		return func(c *rest.Config) {
			c.CertFile, c.KeyFile = keys+"/"+string(leaf)+".crt", keys+"/"+string(leaf)+".key"
			c.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return withHeader{rt, "X-Remote-User", "alice"} }
		}
	}
	alice, err := whoami(shared, proxied(pki.AuthProxy))
	must(t, err)
	if alice.Username != "alice" {
		t.Errorf("through the proxy alice is %+v", alice)
	}
	if _, err := whoami(shared, proxied(pki.EtcdClient)); err == nil {
		t.Error("the certificate of an etcd client passes for a proxy's")
	}
}

type withHeader struct {
	http.RoundTripper
	name, value string
}

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(w.name, w.value)
	return w.RoundTripper.RoundTrip(r)
}

func bootstrapToken(t *testing.T, h *testHub) string {
	t.Helper()
	secrets, err := h.client.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=cluster-manager"})
	must(t, err)
	if len(secrets.Items) != 1 {
		t.Fatalf("there are %d current bootstrap tokens", len(secrets.Items))
	}
	data := secrets.Items[0].Data
	return string(data[bootstrapapi.BootstrapTokenIDKey]) + "." + string(data[bootstrapapi.BootstrapTokenSecretKey])
}

// ofOneCluster selects what a user who joins may look at.
var ofOneCluster = metav1.ListOptions{LabelSelector: fleet.LabelClusterName + "=c1"}

// SC-19, SC-20: everything that joining needs is there, and gives no more than that.
func TestBootstrapObjects(t *testing.T) {
	t.Parallel()
	anonymous := shared.as(t, func(*rest.Config) {})
	info, err := anonymous.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", get)
	must(t, err)
	config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	must(t, err)
	for _, cluster := range config.Clusters {
		if want := fmt.Sprintf("https://127.0.0.1:%d", shared.port); cluster.Server != want || len(cluster.CertificateAuthorityData) == 0 {
			t.Errorf("cluster-info names %q with %d bytes of CA, want %q", cluster.Server, len(cluster.CertificateAuthorityData), want)
		}
	}
	if _, err := anonymous.CoreV1().ConfigMaps(metav1.NamespacePublic).List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("anonymous may list config maps: %v", err)
	}

	issued, err := shared.client.CoreV1().ServiceAccounts("open-cluster-management").CreateToken(t.Context(), "agent-registration-bootstrap",
		&authenticationv1.TokenRequest{}, create)
	must(t, err)
	for who, token := range map[string]string{"bootstrap token": bootstrapToken(t, shared), "bootstrap service account": issued.Status.Token} {
		joiner := shared.withToken(t, token)
		if _, err := joiner.CertificatesV1().CertificateSigningRequests().List(t.Context(), ofOneCluster); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		if _, err := joiner.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), list); !apierrors.IsForbidden(err) {
			t.Errorf("%s may read secrets: %v", who, err)
		}
	}
	for _, name := range []string{"cluster-bootstrap", "open-cluster-management:bootstrap:managedcluster",
		"open-cluster-management:bootstrap:agent-registration"} {
		if _, err := shared.client.RbacV1().ClusterRoleBindings().Get(t.Context(), name, get); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"system:open-cluster-management:bootstrap", "open-cluster-management:bootstrap", "cluster-admin", "view"} {
		if _, err := shared.client.RbacV1().ClusterRoles().Get(t.Context(), name, get); err != nil {
			t.Error(err)
		}
	}
}

// SC-16: a deleted namespace takes its objects along, custom ones too.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	_, err := shared.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("a"), create)
	must(t, err)
	must(t, shared.client.CoreV1().Namespaces().Delete(t.Context(), namespace, remove))
	eventually(t, func(ctx context.Context) string {
		_, err := shared.client.CoreV1().Namespaces().Get(ctx, namespace, get)
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the namespace is still there: %v", err)
		}
		return ""
	})
	maps, err := shared.client.CoreV1().ConfigMaps(namespace).List(t.Context(), list)
	must(t, err)
	if len(maps.Items) > 0 {
		t.Errorf("%d config maps outlived their namespace", len(maps.Items))
	}
}

// SC-16: objects follow their owners, also when the owner is of a kind the hub learnt a moment ago.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	widgets := newKind(t, shared, "widgets", "Widget")
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": widgets.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": "owner"}}}
	owner, err := shared.dynamic.Resource(widgets).Namespace(namespace).Create(t.Context(), widget, create)
	must(t, err)
	owned := configMap("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(),
		UID: owner.GetUID()}}
	_, err = shared.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), owned, create)
	must(t, err)
	must(t, shared.dynamic.Resource(widgets).Namespace(namespace).Delete(t.Context(), "owner", remove))
	eventually(t, func(ctx context.Context) string {
		if _, err := shared.client.CoreV1().ConfigMaps(namespace).Get(ctx, "owned", get); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the owned object is still there: %v", err)
		}
		return ""
	})
}

// newKind installs a CRD and waits until it can be used.
func newKind(t *testing.T, h *testHub, plural, kind string) schema.GroupVersionResource {
	t.Helper()
	resource := schema.GroupVersionResource{Group: "test.capstan.io", Version: "v1", Resource: plural}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + resource.Group},
		"spec": map[string]any{
			"group": resource.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
	_, err := h.dynamic.Resource(crdResource).Create(t.Context(), crd, create)
	must(t, err)
	eventually(t, func(ctx context.Context) string {
		if _, err := h.dynamic.Resource(resource).List(ctx, list); err != nil {
			return err.Error()
		}
		return ""
	})
	return resource
}

// SC-16, SC-06: an approved request is signed with the client CA, and the certificate gets its holder in.
func TestCertificateSigning(t *testing.T) {
	t.Parallel()
	certificate, key := signedBy(t, shared, "agent")
	agent := shared.as(t, func(c *rest.Config) { c.CertData, c.KeyData = certificate, key })
	review, err := agent.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, create)
	must(t, err)
	if got := review.Status.UserInfo; got.Username != "agent" || !slices.Contains(got.Groups, "some-group") {
		t.Errorf("the certificate is taken for %+v", got)
	}
}

func certificateRequest(t *testing.T, user, group string) (keyPEM, requestPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	requestPEM, err = certutil.MakeCSR(key, &pkix.Name{CommonName: user, Organization: []string{group}}, nil, nil)
	must(t, err)
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	must(t, err)
	return keyPEM, requestPEM
}

// SC-16: every namespace has a default service account and the root CA; tokens are issued on request and through
// Secrets, and end with their account.
func TestServiceAccounts(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	accounts, secrets := shared.client.CoreV1().ServiceAccounts(namespace), shared.client.CoreV1().Secrets(namespace)
	eventually(t, func(ctx context.Context) string {
		if _, err := accounts.Get(ctx, "default", get); err != nil {
			return err.Error()
		}
		ca, err := shared.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", get)
		if err != nil || !strings.Contains(ca.Data["ca.crt"], "BEGIN CERTIFICATE") {
			return fmt.Sprintf("no root CA: %v", err)
		}
		return ""
	})
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, create)
	must(t, err)
	issued, err := accounts.CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, create)
	must(t, err)
	_, err = secrets.Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "legacy", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
			Type: corev1.SecretTypeServiceAccountToken}, create)
	must(t, err)
	legacy := ""
	eventually(t, func(ctx context.Context) string {
		secret, err := secrets.Get(ctx, "legacy", get)
		if err != nil || len(secret.Data["token"]) == 0 || len(secret.Data["ca.crt"]) == 0 {
			return fmt.Sprintf("no token in the Secret: %v", err)
		}
		legacy = string(secret.Data["token"])
		return ""
	})
	for how, token := range map[string]string{"TokenRequest": issued.Status.Token, "Secret": legacy} {
		eventually(t, func(ctx context.Context) string {
			review, err := shared.withToken(t, token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
				create)
			if err != nil {
				return how + ": " + err.Error()
			}
			if got, want := review.Status.UserInfo.Username, "system:serviceaccount:"+namespace+":robot"; got != want {
				return fmt.Sprintf("%s: user %q, want %q", how, got, want)
			}
			return ""
		})
	}
	must(t, accounts.Delete(t.Context(), "robot", remove))
	eventually(t, func(ctx context.Context) string {
		_, err := shared.withToken(t, issued.Status.Token).AuthenticationV1().SelfSubjectReviews().Create(ctx,
			&authenticationv1.SelfSubjectReview{}, create)
		if !apierrors.IsUnauthorized(err) {
			return fmt.Sprintf("the token outlives its account: %v", err)
		}
		return ""
	})
}

// SC-13: quotas hold, for custom resources too.
func TestResourceQuota(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	eventually(t, func(ctx context.Context) string {
		if _, err := shared.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", get); err != nil {
			return err.Error()
		}
		return ""
	})
	quotas := shared.client.CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/configmaps": resource.MustParse("2"), "count/manifestworks.work.open-cluster-management.io": resource.MustParse("0"),
			"count/secrets": resource.MustParse("9"),
		}}}, create)
	must(t, err)
	// A quota is counted from a watch that may not know of what was made a moment before, and again when something that it counts is deleted
	// after the count is known: so a Secret is.
	secrets := shared.client.CoreV1().Secrets(namespace)
	eventually(t, func(ctx context.Context) string {
		quota, err := quotas.Get(ctx, "q", get)
		if err != nil {
			return err.Error()
		}
		if used := quota.Status.Used["count/configmaps"]; used.Value() == 1 && len(quota.Status.Used) == 3 {
			return ""
		}
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, create)
		if err = errors.Join(err, secrets.Delete(ctx, "s", remove)); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("the quota counts %v", quota.Status.Used)
	})
	// Admission has a watch of its own, which may be behind that of the count.
	work := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
		"metadata": map[string]any{"name": "w"}}}
	eventually(t, func(ctx context.Context) string {
		_, err := shared.dynamic.Resource(works).Namespace(namespace).Create(ctx, work, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Sprintf("a work over the quota: %v", err)
		}
		return ""
	})
	maps := shared.client.CoreV1().ConfigMaps(namespace)
	_, err = maps.Create(t.Context(), configMap("second"), create)
	must(t, err)
	if _, err := maps.Create(t.Context(), configMap("third"), create); !apierrors.IsForbidden(err) {
		t.Errorf("a third config map: %v", err)
	}
}

// SC-13: admission policies are enforced, and a mistake in one is reported in its status.
func TestAdmissionPolicy(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	policies := shared.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	fail := admissionregistrationv1.Fail
	policy, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
				{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}}},
			Validations: []admissionregistrationv1.Validation{
				{Expression: "object.metadata.name != 'forbidden'", Message: "that name is not allowed"},
				{Expression: "object.nosuchfield == 'x' || true"},
			},
		},
	}, create)
	must(t, err)
	t.Cleanup(func() { _ = policies.Delete(context.Background(), policy.Name, remove) })
	bindings := shared.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}},
		},
	}, create)
	must(t, err)
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), namespace, remove) })
	eventually(t, func(ctx context.Context) string {
		_, err := shared.client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("forbidden"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "that name is not allowed") {
			return fmt.Sprintf("the policy does not refuse: %v", err)
		}
		return ""
	})
	eventually(t, func(ctx context.Context) string {
		policy, err := policies.Get(ctx, policy.Name, get)
		if err != nil {
			return err.Error()
		}
		if policy.Status.TypeChecking == nil || len(policy.Status.TypeChecking.ExpressionWarnings) == 0 {
			return fmt.Sprintf("no warning about the field that does not exist: %+v", policy.Status)
		}
		return ""
	})
}

// SC-16: a role that aggregates others has their rules.
func TestClusterRoleAggregation(t *testing.T) {
	t.Parallel()
	roles := shared.client.RbacV1().ClusterRoles()
	rule := rbacv1.PolicyRule{APIGroups: []string{"aggregated.test"}, Resources: []string{"things"}, Verbs: []string{"get"}}
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "test-aggregated", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{rule},
	}, create)
	must(t, err)
	eventually(t, func(ctx context.Context) string {
		view, err := roles.Get(ctx, "view", get)
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(view.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, "aggregated.test") }) {
			return "view has not got the rule"
		}
		return ""
	})
}
