package installation

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/apply/crdversion"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// RG-47: a cluster that is reached by a configuration alone is applied to, and what it refuses is said without advice that is for users of
// the command line.
func TestNew(t *testing.T) {
	t.Parallel()
	const refused = "exceeded quota: small"
	status := metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	var applied []string
	api := http.NewServeMux()
	discover(t, api, "/api/v1", metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true})
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
	cluster := serveAPI(t, api, "v1.4.0")
	changes := map[string]Change{}
	report := func(of Reference, change Change) { changes[of.String()] = change }
	err := cluster.Apply(t.Context(), []*unstructured.Unstructured{configMap("few"), configMap("many")}, report)
	if !apierrors.IsForbidden(err) || err.Error() != "apply ConfigMap one/many: "+refused {
		t.Errorf("error %v", err)
	}
	if changes["ConfigMap one/few"] != Created || len(changes) != 1 || strings.Join(applied, ", ") != "few by capstan" {
		t.Errorf("reported %v, applied %v", changes, applied)
	}
}

// CA-06: fields that others have set by client-side apply or that other installers have set, and that are not applied here, go, but not
// those of a namespace, which its users label, too, nor what Helm has in a Secret. The release of Helm that an object is of is still found.
func TestApplyAdopts(t *testing.T) {
	t.Parallel()
	const (
		namespace, configMap, secret = "namespaces/one", "namespaces/one/configmaps/one", "namespaces/one/secrets/one"
		lastApplied                  = `"f:kubectl.kubernetes.io/last-applied-configuration":{}`
	)
	kinds := map[string]schema.GroupVersionKind{namespace: KindNamespace, configMap: KindConfigMap, secret: KindSecret}
	release := map[string]string{annotationReleaseName: "ocm", annotationReleaseNamespace: "one"}
	for name, test := range map[string]struct {
		path, manager string
		operation     metav1.ManagedFieldsOperationType
		annotations   string
		adopted       bool
	}{
		"by client-side apply":              {configMap, "kubectl-client-side-apply", metav1.ManagedFieldsOperationUpdate, lastApplied, true},
		"by a user":                         {configMap, "kubectl-edit", metav1.ManagedFieldsOperationUpdate, "", false},
		"by Helm":                           {configMap, "helm", metav1.ManagedFieldsOperationUpdate, "", true},
		"by a Helm that applies":            {configMap, "helm", metav1.ManagedFieldsOperationApply, "", true},
		"by a user who may not patch":       {configMap, FieldManager, metav1.ManagedFieldsOperationUpdate, "", true},
		"a Secret, by Helm":                 {secret, "helm", metav1.ManagedFieldsOperationUpdate, "", false},
		"a Secret, by client-side apply":    {secret, "kubectl-client-side-apply", metav1.ManagedFieldsOperationUpdate, lastApplied, true},
		"a namespace, by Helm":              {namespace, "helm", metav1.ManagedFieldsOperationUpdate, "", false},
		"a namespace, by client-side apply": {namespace, "kubectl-client-side-apply", metav1.ManagedFieldsOperationUpdate, lastApplied, false},
	} {
		path, kind := test.path, kinds[test.path]
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(kind)
		live.SetName("one")
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: test.manager, Operation: test.operation, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(
				`{"f:metadata":{"f:annotations":{` + test.annotations + `},"f:labels":{"f:team":{}}}}`)}})
		desired := live.DeepCopy()
		desired.SetManagedFields(nil)
		live.SetAnnotations(release)
		if kind != KindNamespace {
			live.SetNamespace("one")
			desired.SetNamespace("one")
		}
		var patches []string
		var applied unstructured.Unstructured
		api := http.NewServeMux()
		discover(t, api, "/api/v1", metav1.APIResource{Name: "namespaces", Kind: "Namespace"},
			metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
			metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true})
		api.HandleFunc("GET /api/v1/"+path, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, live.Object) })
		api.HandleFunc("PATCH /api/v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			patches = append(patches, r.Header.Get("Content-Type"))
			var body any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			if object, isObject := body.(map[string]any); isObject { // and no list of changes
				applied.Object = object
			}
			answer(t, w, http.StatusOK, live.Object)
		})
		cluster := serveAPI(t, api, "v1.4.0")
		if err := cluster.Apply(t.Context(), []*unstructured.Unstructured{desired}, func(Reference, Change) {}); err != nil {
			t.Fatal(err)
		}
		want := "application/apply-patch+yaml"
		if test.adopted {
			want = "application/json-patch+json " + want
		}
		if got := strings.Join(patches, " "); got != want {
			t.Errorf("%s: patches %s, want %s", name, got, want)
		}
		if got := applied.GetAnnotations(); !maps.Equal(got, release) {
			t.Errorf("%s: applied with %v, want %v", name, got, release)
		}
	}
}

// CA-06: a binding that is of another role is replaced, which counts as a change.
func TestApplyReplaces(t *testing.T) {
	t.Parallel()
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/one"
	binding := func(role, uid string) *unstructured.Unstructured {
		made := &unstructured.Unstructured{Object: map[string]any{"roleRef": map[string]any{"kind": "ClusterRole", "name": role}}}
		made.SetGroupVersionKind(KindClusterRoleBinding)
		made.SetName("one")
		made.SetUID(types.UID(uid))
		return made
	}
	live := binding("old", "1")
	var requests []string
	api := http.NewServeMux()
	discover(t, api, "/apis/rbac.authorization.k8s.io/v1", metav1.APIResource{Name: "clusterrolebindings", Kind: "ClusterRoleBinding"})
	api.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, live.Object) })
	api.HandleFunc("PATCH "+path, func(w http.ResponseWriter, _ *http.Request) {
		requests = append(requests, "apply")
		if live != nil {
			refused := apierrors.NewInvalid(KindClusterRoleBinding.GroupKind(), "one",
				field.ErrorList{field.Invalid(field.NewPath("roleRef"), "new", "cannot change roleRef")}).ErrStatus
			refused.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			answer(t, w, http.StatusUnprocessableEntity, refused)
			return
		}
		live = binding("new", "2")
		answer(t, w, http.StatusCreated, live.Object)
	})
	api.HandleFunc("DELETE "+path, func(w http.ResponseWriter, _ *http.Request) {
		requests = append(requests, "delete")
		live = nil
		answer(t, w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	})
	cluster := serveAPI(t, api, "v1.4.0")
	var changes []Change
	err := cluster.Apply(t.Context(), []*unstructured.Unstructured{binding("new", "")}, func(_ Reference, change Change) {
		changes = append(changes, change)
	})
	if err != nil || !slices.Equal(changes, []Change{Changed}) || strings.Join(requests, ", ") != "apply, delete, apply" {
		t.Errorf("%v after %v: %v", changes, requests, err)
	}
}

// CA-06, HC-05: a PriorityClass that is not of the agent stays as it is, and one of the agent is applied.
func TestApplyPriorityClass(t *testing.T) {
	t.Parallel()
	const path = "/apis/scheduling.k8s.io/v1/priorityclasses/low"
	desired := &unstructured.Unstructured{Object: map[string]any{"value": int64(1000000)}}
	desired.SetGroupVersionKind(schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"})
	desired.SetName("low")
	desired.SetLabels(map[string]string{"app": "klusterlet"})
	for app, want := range map[string]Change{"": Unchanged, "batch": Unchanged, "klusterlet": Changed} {
		live := desired.DeepCopy()
		live.SetUID("1")
		live.SetLabels(map[string]string{"app": app})
		live.Object["value"] = int64(-10)
		applied := desired.DeepCopy()
		applied.SetUID("1")
		writes := 0
		api := http.NewServeMux()
		discover(t, api, "/apis/scheduling.k8s.io/v1", metav1.APIResource{Name: "priorityclasses", Kind: "PriorityClass"})
		api.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, live.Object) })
		api.HandleFunc("PATCH "+path, func(w http.ResponseWriter, _ *http.Request) {
			writes++
			answer(t, w, http.StatusOK, applied.Object)
		})
		cluster := serveAPI(t, api, "v1.4.0")
		var got Change
		err := cluster.Apply(t.Context(), []*unstructured.Unstructured{desired}, func(_ Reference, change Change) { got = change })
		if err != nil || got != want || writes > 0 != (want == Changed) {
			t.Errorf("of %q: %s after %d writes: %v", app, got, writes, err)
		}
	}
}

// CM-19, KL-23: a definition of a newer version or a later release stays, an older one is applied by this release, and its kind is served
// before anything else is applied.
func TestApplyDefinition(t *testing.T) {
	t.Parallel()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
	ofVersion := func(version string) map[string]string {
		return map[string]string{fleet.AnnotationOperatorVersion: version}
	}
	ofRelease := func(release string) map[string]string {
		crd := &metav1.ObjectMeta{}
		crdversion.Set(crd, release)
		return crd.Annotations
	}
	const release = "v1.4.0"
	for name, test := range map[string]struct {
		live map[string]string
		want Change
	}{
		"a newer version":    {ofVersion("99.0.0"), Unchanged},
		"an older version":   {ofVersion("1.0.0"), Changed},
		"a later release":    {ofRelease("v1.5.0"), Unchanged},
		"an earlier release": {ofRelease("v1.3.0"), Changed},
	} {
		definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"group": "example.com",
			"names":    map[string]any{"kind": "Thing", "plural": "things"},
			"versions": []any{map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v1beta1", "served": false}}}}}
		definition.SetGroupVersionKind(KindCRD)
		definition.SetName("things.example.com")
		live := definition.DeepCopy()
		live.SetAnnotations(test.live)
		var applied, discovered int
		api := http.NewServeMux()
		discover(t, api, "/apis/apiextensions.k8s.io/v1", metav1.APIResource{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"})
		api.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, live.Object) })
		api.HandleFunc("PATCH "+path, func(w http.ResponseWriter, r *http.Request) {
			applied++
			if err := json.NewDecoder(r.Body).Decode(&live.Object); err != nil {
				t.Error(err)
			}
			answer(t, w, http.StatusOK, live.Object)
		})
		api.HandleFunc("GET /apis/example.com/v1", func(w http.ResponseWriter, r *http.Request) {
			if discovered++; discovered == 1 {
				http.NotFound(w, r)
				return
			}
			answer(t, w, http.StatusOK, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing"}}})
		})
		cluster := serveAPI(t, api, release)
		err := cluster.Apply(t.Context(), []*unstructured.Unstructured{definition}, func(_ Reference, change Change) {
			if change != test.want {
				t.Errorf("%s: it is %s", name, change)
			}
		})
		if err != nil || (applied > 0) != (test.want == Changed) || discovered != 2 {
			t.Errorf("%s: applied %d times, the kind discovered %d times; %v", name, applied, discovered, err)
		}
		ours := live.GetAnnotations()[upgrade.AnnotationVersion] == release
		if ours != (test.want == Changed) || definition.GetAnnotations() != nil {
			t.Errorf("%s: the cluster has %v, the caller %v", name, live.GetAnnotations(), definition.GetAnnotations())
		}
	}
}

// CM-26: what may be stored in a version that a definition no longer has is stored in another one first, unless it has that neither.
func TestApplyDefinitionOverStored(t *testing.T) {
	t.Parallel()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
	definition := func(storage string, versions ...string) *unstructured.Unstructured {
		var all []any
		for _, version := range versions {
			all = append(all, map[string]any{"name": version, "served": true, "storage": version == storage})
		}
		made := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"group": "example.com", "versions": all,
			"names": map[string]any{"kind": "Thing", "plural": "things"}}}}
		made.SetGroupVersionKind(KindCRD)
		made.SetName("things.example.com")
		return made
	}
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}}
	thing.SetNamespace("default")
	thing.SetName("a")
	for name, test := range map[string]struct {
		live, desired *unstructured.Unstructured
		steps, says   string
	}{
		"a version that is left": {definition("v1", "v1beta1", "v1"), definition("v1", "v1"), "apply, write a, status, apply", ""},
		"none that is left": {definition("v1", "v1"), definition("v2", "v2"), "apply",
			"objects of things.example.com are stored in version v1, which is no more: install a version first that stores them in v2"},
	} {
		var steps []string
		live := test.live
		api := http.NewServeMux()
		discover(t, api, "/apis/apiextensions.k8s.io/v1", metav1.APIResource{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"})
		discover(t, api, "/apis/example.com/v1", metav1.APIResource{Name: "things", Kind: "Thing", Namespaced: true})
		api.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, live.Object) })
		api.HandleFunc("PATCH "+path, func(w http.ResponseWriter, _ *http.Request) {
			if steps = append(steps, "apply"); len(steps) == 1 {
				refused := field.Invalid(field.NewPath("status", "storedVersions").Index(0), "v1beta1", "must appear in spec.versions")
				status := apierrors.NewInvalid(KindCRD.GroupKind(), "things", field.ErrorList{refused}).Status()
				status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				answer(t, w, http.StatusUnprocessableEntity, status)
				return
			}
			live = test.desired
			answer(t, w, http.StatusOK, live.Object)
		})
		api.HandleFunc("PATCH "+path+"/status", func(w http.ResponseWriter, _ *http.Request) {
			steps = append(steps, "status")
			answer(t, w, http.StatusOK, live.Object)
		})
		api.HandleFunc("GET /apis/example.com/v1/things", func(w http.ResponseWriter, _ *http.Request) {
			answer(t, w, http.StatusOK, map[string]any{"apiVersion": "example.com/v1", "kind": "ThingList", "metadata": map[string]any{},
				"items": []any{thing.Object}})
		})
		api.HandleFunc("PUT /apis/example.com/v1/namespaces/default/things/a", func(w http.ResponseWriter, _ *http.Request) {
			steps = append(steps, "write a")
			answer(t, w, http.StatusOK, thing.Object)
		})
		cluster := serveAPI(t, api, "v1.4.0")
		err := cluster.Apply(t.Context(), []*unstructured.Unstructured{test.desired}, func(Reference, Change) {})
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(steps, ", "); got != test.steps {
			t.Errorf("%s: %s, want %s", name, got, test.steps)
		}
	}
}

// A credential is sent nowhere in clear text.
func TestNewWithoutTLS(t *testing.T) {
	t.Parallel()
	_, err := New(&rest.Config{Host: "http://cluster.invalid", BearerToken: "s3cr3t"}, "v1.4.0")
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
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

// discover has an API serve the resources of a version.
func discover(t *testing.T, api *http.ServeMux, version string, resources ...metav1.APIResource) {
	t.Helper()
	api.HandleFunc("GET "+version, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusOK, metav1.APIResourceList{APIResources: resources})
	})
}

// serveAPI is a cluster with an API, for a program of a version.
func serveAPI(t *testing.T, api http.Handler, version string) *Cluster {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	cluster, err := New(&rest.Config{Host: server.URL}, version)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}
