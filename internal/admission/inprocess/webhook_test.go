package inprocess_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/admission/webhook"
)

// webhookPaths of the kinds that have webhooks, in the order in which an API server calls them.
var webhookPaths = map[string][]string{
	"ManagedCluster": {
		"/mutate-cluster-open-cluster-management-io-v1-managedcluster", "/validate-cluster-open-cluster-management-io-v1-managedcluster",
	},
	"ManagedClusterSet":         {"/validate-cluster-open-cluster-management-io-v1beta2-managedclusterset"},
	"ManagedClusterSetBinding":  {"/validate-cluster-open-cluster-management-io-v1beta2-managedclustersetbinding"},
	"Placement":                 {"/validate-cluster-open-cluster-management-io-v1beta1-placement"},
	"ManifestWork":              {"/validate-work-open-cluster-management-io-v1-manifestwork"},
	"ManifestWorkReplicaSet":    {"/validate-work-open-cluster-management-io-v1alpha1-manifestworkreplicaset"},
	"ClusterManagementAddOn":    {"/validate-addon-open-cluster-management-io-v1beta1-clustermanagementaddon"},
	"ManagedClusterAddOn":       {"/validate-addon-open-cluster-management-io-v1beta1-managedclusteraddon"},
	"AddOnTemplate":             {"/validate-addon-open-cluster-management-io-v1beta1-addontemplate"},
	"CertificateSigningRequest": {"/validate-certificates-k8s-io-v1-certificatesigningrequest"},
	"Lease":                     {"/validate-coordination-k8s-io-v1-lease"},
	"Secret":                    {"/validate-v1-secret"},
}

// statusWebhookPaths are those for the subresource status.
var statusWebhookPaths = map[string][]string{
	"ManagedCluster":      {"/validate-cluster-open-cluster-management-io-v1-managedcluster"},
	"ManifestWork":        {"/validate-work-open-cluster-management-io-v1-manifestwork"},
	"ManagedClusterAddOn": {"/validate-addon-open-cluster-management-io-v1beta1-managedclusteraddon"},
}

// compare sends the object through the webhooks and expects what came of it in process.
func (s *server) compare(t *testing.T, object, old, inProcess *unstructured.Unstructured, subresource string, inProcessErr error) {
	t.Helper()
	paths := webhookPaths
	if subresource == "status" {
		paths = statusWebhookPaths
	}
	handlers, err := webhook.Handlers(s.api(t), s.options)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths[object.GetKind()] {
		var response *admissionv1.AdmissionResponse
		object, response = review(t, handlers[path], object, old, subresource, s.sender())
		if response.Allowed {
			continue
		}
		var status *apierrors.StatusError
		if !errors.As(inProcessErr, &status) || response.Result.Message != status.Error() || response.Result.Code != status.ErrStatus.Code {
			t.Errorf("the webhook %s refuses with %+v, the plugin with %v", path, response.Result, inProcessErr)
		}
		return
	}
	if inProcessErr != nil {
		t.Errorf("the webhooks allow what the plugins refuse: %v", inProcessErr)
	} else if diff := cmp.Diff(inProcess.Object, object.Object); diff != "" {
		t.Errorf("the webhooks leave another object (-plugins +webhooks):\n%s", diff)
	}
}

// review is what an API server does with a webhook.
func review(t *testing.T, handler http.Handler, object, old *unstructured.Unstructured, subresource string,
	sender *user.DefaultInfo) (*unstructured.Unstructured, *admissionv1.AdmissionResponse) {
	t.Helper()
	kind := object.GroupVersionKind()
	request := &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind(kind), Name: object.GetName(), Namespace: object.GetNamespace(), Operation: admissionv1.Create,
		SubResource: subresource,
		Resource:    metav1.GroupVersionResource(resourceOf(kind)), Object: runtime.RawExtension{Raw: marshal(t, object)},
		UserInfo: authenticationv1.UserInfo{Username: sender.Name, UID: sender.UID, Groups: sender.Groups,
			Extra: map[string]authenticationv1.ExtraValue{}},
	}
	for key, value := range sender.Extra {
		request.UserInfo.Extra[key] = value
	}
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: marshal(t, old)}
	}
	response := post(t, handler, request)
	if len(response.Patch) == 0 {
		return object, response
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(request.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	changed := &unstructured.Unstructured{}
	if err := changed.UnmarshalJSON(patched); err != nil {
		t.Fatal(err)
	}
	return changed, response
}

// reviewDeletion is what an API server does with a webhook before it deletes an object.
func reviewDeletion(t *testing.T, handler http.Handler, old *unstructured.Unstructured, sender *user.DefaultInfo,
) *admissionv1.AdmissionResponse {
	t.Helper()
	kind := old.GroupVersionKind()
	return post(t, handler, &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind(kind), Name: old.GetName(), Namespace: old.GetNamespace(), Operation: admissionv1.Delete,
		Resource: metav1.GroupVersionResource(resourceOf(kind)), OldObject: runtime.RawExtension{Raw: marshal(t, old)},
		UserInfo: authenticationv1.UserInfo{Username: sender.Name, UID: sender.UID, Groups: sender.Groups},
	})
}

// post sends a review to a webhook.
func post(t *testing.T, handler http.Handler, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	body := marshal(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	sent := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	sent.Header.Set("Content-Type", "application/json")
	received := httptest.NewRecorder()
	handler.ServeHTTP(received, sent)
	answer := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(received.Body.Bytes(), answer); err != nil || answer.Response == nil || answer.Response.UID != "1" {
		t.Fatalf("%v: %s", err, received.Body)
	}
	return answer.Response
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// api is an API server that answers as the fakes do.
func (s *server) api(t *testing.T) kubernetes.Interface {
	t.Helper()
	access := &fakeAuthorizer{verbs: s.authorizer.verbs}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		sar := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(sar); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		sar.Status = answer(r.Context(), access, sar.Spec)
		respond(w, sar)
	})
	mux.HandleFunc("GET /api/v1/namespaces/{name}", func(w http.ResponseWriter, r *http.Request) {
		namespace, err := fakeNamespaces{namespace: s.namespace}.Get(r.Context(), r.PathValue("name"), metav1.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		respond(w, namespace)
	})
	mux.HandleFunc("GET /apis/cluster.open-cluster-management.io/v1/managedclusters/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "c1" || s.cluster == "" {
			http.Error(w, "no such cluster", http.StatusNotFound)
			return
		}
		if r.URL.Query().Get("resourceVersion") == "0" && s.cachedCluster != "" {
			respond(w, json.RawMessage(s.cachedCluster))
			return
		}
		respond(w, json.RawMessage(s.cluster))
	})
	const bindings = "GET /apis/cluster.open-cluster-management.io/v1beta2/managedclustersetbindings"
	mux.HandleFunc(bindings, func(w http.ResponseWriter, r *http.Request) {
		var all, named []metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte("["+s.bindings+"]"), &all); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for i := range all {
			if r.URL.Query().Get("fieldSelector") == "metadata.name="+all[i].Name {
				named = append(named, all[i])
			}
		}
		respond(w, metav1.PartialObjectMetadataList{Items: named})
	})
	mux.HandleFunc("GET /apis/addon.open-cluster-management.io/v1beta1/{resource}/{name}", func(w http.ResponseWriter, r *http.Request) {
		object, found := s.addOns[r.PathValue("resource")+"/"+r.PathValue("name")]
		if !found {
			http.Error(w, "no such object", http.StatusNotFound)
			return
		}
		respond(w, json.RawMessage(object))
	})
	listening := httptest.NewServer(mux)
	t.Cleanup(listening.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: listening.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func answer(ctx context.Context, access authorizer.UnconditionalAuthorizer,
	attributes authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	extra := map[string][]string{}
	for key, value := range attributes.Extra {
		extra[key] = value
	}
	decision, reason, err := access.Authorize(ctx, authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: attributes.User, UID: attributes.UID, Groups: attributes.Groups, Extra: extra},
		Verb: attributes.ResourceAttributes.Verb, Subresource: attributes.ResourceAttributes.Subresource,
	})
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authorizer.DecisionAllow, Reason: reason}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
