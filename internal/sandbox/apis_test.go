package sandbox_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Custom resources are served once their definition is there, and follow their owner.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	config := configOf(t, shared)
	client := clientOf(t, shared)
	ns := namespace(t, client)
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	group := ns + ".example.com"
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	things := objects.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace(ns)
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Thing", "metadata": map[string]any{"name": "owner"},
	}}
	eventually(t, func(ctx context.Context) string {
		created, err := things.Create(ctx, thing, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		thing = created
		return ""
	})
	_, err = client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: group + "/v1", Kind: "Thing", Name: "owner", UID: thing.GetUID()}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := things.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=owned"})
		if err != nil || len(list.Items) > 0 {
			return fmt.Sprintf("%d owned objects left, error %v", len(list.Items), err)
		}
		return ""
	})
}

// What an agent relies on for its rights: aggregated roles, tokens of service accounts, impersonation, access reviews.
func TestRights(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	agent, err := client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	label := map[string]string{"aggregate-to": ns}
	for _, role := range []*rbacv1.ClusterRole{
		{
			ObjectMeta:      metav1.ObjectMeta{Name: ns + "-sum"},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-part", Labels: label},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
		},
	} {
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns + "-sum"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: agent.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), agent.Name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	withToken := rest.AnonymousClientConfig(configOf(t, shared))
	withToken.BearerToken = token.Status.Token
	impersonating := configOf(t, shared)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + ns + ":agent"}
	for name, config := range map[string]*rest.Config{"token": withToken, "impersonation": impersonating} {
		as, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func(ctx context.Context) string {
			allowed, err := mayList(ctx, as, ns, "configmaps")
			if err != nil || !allowed {
				return fmt.Sprintf("%s: list config maps allowed %t, error %v; want true", name, allowed, err)
			}
			return ""
		})
		if allowed, err := mayList(t.Context(), as, ns, "secrets"); err != nil || allowed {
			t.Errorf("%s: list secrets allowed %t, error %v; want false", name, allowed, err)
		}
	}
}

func mayList(ctx context.Context, as kubernetes.Interface, ns, resource string) (bool, error) {
	review, err := as.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list",
			Resource: resource}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// An admission webhook outside of the cluster is asked.
func TestAdmissionWebhook(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "not in this house"}}
		_ = json.NewEncoder(w).Encode(review) // a client that is gone needs no answer
	}))
	t.Cleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:                    "refuse.example.com",
				ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL), CABundle: bundle},
				AdmissionReviewVersions: []string{"v1"},
				SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
				NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
				}},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		_, err := client.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}},
			metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "not in this house") {
			return fmt.Sprintf("create a secret: got error %v, want a refusal by the webhook", err)
		}
		return ""
	})
}
