package installation

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// RG-47: a cluster that is reached by a configuration alone is applied to, and what it refuses is said without advice that is for users of
// the command line.
func TestNew(t *testing.T) {
	t.Parallel()
	const refused = "exceeded quota: small"
	status := metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	var applied []string
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusOK, metav1.APIResourceList{
			APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}},
		})
	})
	api.HandleFunc("GET /api/v1/namespaces/one/configmaps/{name}", func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusNotFound, metav1.Status{TypeMeta: status, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	})
	api.HandleFunc("PATCH /api/v1/namespaces/one/configmaps/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") == "many" {
			answer(t, w, http.StatusForbidden, metav1.Status{TypeMeta: status, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonForbidden, Message: refused, Code: http.StatusForbidden})
			return
		}
		applied = append(applied, r.PathValue("name")+" by "+r.URL.Query().Get("fieldManager"))
		answer(t, w, http.StatusCreated, configMap(r.PathValue("name")).Object)
	})
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	cluster, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]Change{}
	report := func(of Reference, change Change) { changes[of.String()] = change }
	err = cluster.Apply(t.Context(), []*unstructured.Unstructured{configMap("few"), configMap("many")}, report)
	if !apierrors.IsForbidden(err) || err.Error() != "apply ConfigMap one/many: "+refused {
		t.Errorf("error %v", err)
	}
	if changes["ConfigMap one/few"] != Created || len(changes) != 1 || strings.Join(applied, ", ") != "few by capstan" {
		t.Errorf("reported %v, applied %v", changes, applied)
	}
}

// A credential is sent nowhere in clear text.
func TestNewWithoutTLS(t *testing.T) {
	t.Parallel()
	if _, err := New(&rest.Config{Host: "http://cluster.invalid", BearerToken: "s3cr3t"}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("error %v", err)
	}
}

func configMap(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(KindConfigMap)
	object.SetNamespace("one")
	object.SetName(name)
	return object
}

func answer(t *testing.T, w http.ResponseWriter, code int, content any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(content); err != nil {
		t.Error(err)
	}
}
