package fakehub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// kinds are what can be watched, by the last part of the path.
var kinds = map[string]string{
	"certificatesigningrequests": "CertificateSigningRequest",
	"managedclusters":            "ManagedCluster",
	"managedclustersets":         "ManagedClusterSet",
	"appliedmanifestworks":       "AppliedManifestWork",
	"manifestworks":              "ManifestWork",

	"clustermanagers":           "ClusterManager",
	"clusterrolebindings":       "ClusterRoleBinding",
	"clusterroles":              "ClusterRole",
	"configmaps":                "ConfigMap",
	"customresourcedefinitions": "CustomResourceDefinition",
	"daemonsets":                "DaemonSet",
	"deployments":               "Deployment",
	"events":                    "Event",
	"klusterlets":               "Klusterlet",
	"leases":                    "Lease",
	"machines":                  "Machine",
	"namespaces":                "Namespace",
	"persistentvolumeclaims":    "PersistentVolumeClaim",
	"poddisruptionbudgets":      "PodDisruptionBudget",
	"pods":                      "Pod",
	"rolebindings":              "RoleBinding",
	"roles":                     "Role",
	"secrets":                   "Secret",
	"serviceaccounts":           "ServiceAccount",
	"statefulsets":              "StatefulSet",

	"mutatingwebhookconfigurations":   "MutatingWebhookConfiguration",
	"validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}

// versionOf is the API version in a path.
func versionOf(urlPath string) string {
	parts := strings.Split(urlPath, "/")
	if parts[1] == "api" {
		return parts[2]
	}
	return parts[2] + "/" + parts[3]
}

// event is a change: its resource version is its index in the history plus one.
type event struct {
	kind   string
	path   string
	object *unstructured.Unstructured
}

// ServeHTTP answers one request.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.proxy(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))                     // for a handler of the test
	if r.Method == http.MethodPatch && r.URL.Query().Has("dryRun") { // changes nothing, so tests that count changes need not know
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, Request{r.Method, r.URL.Path, r.Header.Get("Authorization"), string(body)})
	if answer := h.handlers[r.Method+" "+r.URL.Path]; answer != nil {
		answer(w, r)
		return
	}
	if h.conflicts[r.Method+" "+r.URL.Path] > 0 {
		h.conflicts[r.Method+" "+r.URL.Path]--
		writeStatus(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified", path.Base(r.URL.Path))
		return
	}
	if h.ends[r.Method+" "+r.URL.Path] {
		h.remove(r.URL.Path)
	}
	if before := len(h.history); h.written != nil {
		defer func() {
			if len(h.history) > before && r.Method != http.MethodGet {
				h.written()
			}
		}()
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		h.watch(w, r)
	case r.Method == http.MethodGet && isCollection(r.URL.Path):
		h.list(w, r)
	case r.Method == http.MethodGet:
		h.respond(w, h.objects[r.URL.Path], r.URL.Path)
	case r.Method == http.MethodPost:
		h.create(w, r.URL.Path, body)
	case r.Method == http.MethodPut:
		h.replace(w, r.URL.Path, body)
	case r.Method == http.MethodPatch:
		h.patch(w, r, body)
	case r.Method == http.MethodDelete:
		h.delete(w, r.URL.Path, body)
	}
}

// isCollection distinguishes /api/v1/secrets and /apis/g/v1/namespaces/n/things from the objects below them.
func isCollection(urlPath string) bool {
	parts := strings.Split(strings.Trim(urlPath, "/"), "/")
	parts = parts[map[string]int{"api": 2, "apis": 3}[parts[0]]:]
	if len(parts) > 1 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return len(parts) == 1
}

func (h *Hub) store(objectPath string, object *unstructured.Unstructured) {
	kind := "MODIFIED"
	if h.objects[objectPath] == nil {
		kind = "ADDED"
	}
	object.SetResourceVersion(strconv.Itoa(len(h.history) + 1))
	h.objects[objectPath] = object
	h.history = append(h.history, event{kind, objectPath, object.DeepCopy()})
	h.changed.Broadcast()
}

// selected are the objects of a collection, or of all namespaces, that match the selectors.
func selected(r *http.Request, objectPath string, object *unstructured.Unstructured) bool {
	collection, resource := path.Dir(objectPath), path.Base(r.URL.Path)
	everywhere := !strings.Contains(r.URL.Path, "/namespaces/") && path.Base(collection) == resource &&
		strings.HasPrefix(collection, path.Dir(r.URL.Path)+"/namespaces/")
	if collection != r.URL.Path && !everywhere {
		return false
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	name, named := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return err == nil && selector.Matches(labels.Set(object.GetLabels())) && (!named || object.GetName() == name)
}

func (h *Hub) list(w http.ResponseWriter, r *http.Request) {
	items := []any{}
	var paths []string
	for objectPath := range h.objects {
		paths = append(paths, objectPath)
	}
	slices.Sort(paths)
	for _, objectPath := range paths {
		if selected(r, objectPath, h.objects[objectPath]) {
			items = append(items, h.objects[objectPath].Object)
		}
	}
	list := map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(len(h.history))}, "items": items}
	if kind := kinds[path.Base(r.URL.Path)]; kind != "" { // typed clients know the kind of what they requested
		list["kind"], list["apiVersion"] = kind+"List", versionOf(r.URL.Path)
	}
	writeJSON(w, http.StatusOK, list)
}

// watch sends what there is, says that this was all, and goes on with what changes. It holds the lock but while it waits.
func (h *Hub) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	send := func(kind string, object map[string]any) {
		content, _ := json.Marshal(map[string]any{"type": kind, "object": object})
		fmt.Fprintf(w, "%s\n", content)
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for objectPath, object := range h.objects {
			if selected(r, objectPath, object) {
				send("ADDED", object.Object)
			}
		}
		from = len(h.history)
		send("BOOKMARK", map[string]any{
			"apiVersion": versionOf(r.URL.Path),
			"kind":       kinds[path.Base(r.URL.Path)],
			"metadata": map[string]any{
				"resourceVersion": strconv.Itoa(from),
				"annotations":     map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		})
	}
	defer context.AfterFunc(r.Context(), h.wake)()
	h.watches[r.URL.Path]++
	h.changed.Broadcast()
	for r.Context().Err() == nil {
		for ; from < len(h.history); from++ {
			if e := h.history[from]; selected(r, e.path, e.object) {
				send(e.kind, e.object.Object)
			}
		}
		w.(http.Flusher).Flush()
		h.changed.Wait()
	}
	h.ended[r.URL.Path]++
	h.changed.Broadcast()
}

func (h *Hub) create(w http.ResponseWriter, collection string, body []byte) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &object.Object); err != nil {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), "")
		return
	}
	objectPath := collection + "/" + object.GetName()
	if h.objects[objectPath] != nil {
		writeStatus(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, objectPath+" already exists", object.GetName())
		return
	}
	h.store(objectPath, object)
	writeJSON(w, http.StatusCreated, object.Object)
	h.react(h.created[collection], objectPath)
}

// react has a test change an object that was written, if it does that there.
func (h *Hub) react(change func(*unstructured.Unstructured), objectPath string) {
	if change == nil {
		return
	}
	object := h.objects[objectPath].DeepCopy()
	change(object)
	h.store(objectPath, object)
}

// delete removes an object, or says that it is being deleted if it has finalizers.
func (h *Hub) delete(w http.ResponseWriter, objectPath string, body []byte) {
	object := h.objects[objectPath]
	if object != nil && !meets(object, body) {
		writeStatus(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified", object.GetName())
		return
	}
	if object == nil || len(object.GetFinalizers()) == 0 {
		h.respond(w, h.remove(objectPath), objectPath)
		return
	}
	object = object.DeepCopy()
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
	h.store(objectPath, object)
	h.respond(w, object, objectPath)
}

// meets reports whether an object is the one that the options of its deletion are about.
func meets(object *unstructured.Unstructured, body []byte) bool {
	var options metav1.DeleteOptions
	if json.Unmarshal(body, &options) != nil || options.Preconditions == nil {
		return true
	}
	uid, version := options.Preconditions.UID, options.Preconditions.ResourceVersion
	return (uid == nil || *uid == object.GetUID()) && (version == nil || *version == object.GetResourceVersion())
}

// remove returns the object that was there, nil if there was none.
func (h *Hub) remove(objectPath string) *unstructured.Unstructured {
	object := h.objects[objectPath]
	if object == nil {
		return nil
	}
	delete(h.objects, objectPath)
	object = object.DeepCopy()
	object.SetResourceVersion(strconv.Itoa(len(h.history) + 1))
	h.history = append(h.history, event{"DELETED", objectPath, object})
	if namespace, ok := strings.CutPrefix(objectPath, "/api/v1/namespaces/"); ok && !strings.Contains(namespace, "/") {
		for below := range maps.Clone(h.objects) {
			if strings.Contains(below, "/namespaces/"+namespace+"/") {
				h.remove(below)
			}
		}
	}
	h.changed.Broadcast()
	return object
}

func (h *Hub) replace(w http.ResponseWriter, objectPath string, body []byte) {
	objectPath = strings.TrimSuffix(objectPath, "/approval")
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &object.Object); err != nil || h.objects[objectPath] == nil {
		h.respond(w, nil, objectPath)
		return
	}
	h.store(objectPath, object)
	writeJSON(w, http.StatusOK, object.Object)
	h.react(h.replaced[path.Dir(objectPath)], objectPath)
}

func (h *Hub) patch(w http.ResponseWriter, r *http.Request, body []byte) {
	objectPath := r.URL.Path
	if h.objects[objectPath] == nil && r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
		h.create(w, path.Dir(objectPath), body)
		return
	}
	if h.objects[objectPath] == nil {
		h.respond(w, nil, objectPath)
		return
	}
	before, _ := json.Marshal(h.objects[objectPath].Object)
	merged, err := jsonpatch.MergePatch(before, body)
	object := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(merged, &object.Object)
	}
	if err != nil {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), "")
		return
	}
	h.store(objectPath, object)
	writeJSON(w, http.StatusOK, object.Object)
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		h.remove(objectPath)
	}
}

func (h *Hub) respond(w http.ResponseWriter, object *unstructured.Unstructured, objectPath string) {
	if object == nil {
		name := path.Base(objectPath)
		writeJSON(w, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: fmt.Sprintf("%q not found", name),
			Details: &metav1.StatusDetails{Name: name, Kind: path.Base(path.Dir(objectPath))},
		})
		return
	}
	writeJSON(w, http.StatusOK, object.Object)
}

// JSON is a handler that succeeds.
func JSON(content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, json.RawMessage(content)) }
}

// Refuse is a handler that fails, with a Status as the API server writes it.
func Refuse(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, code, reason, message, "") }
}

func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message, name string) {
	writeJSON(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code:   int32(code), //nolint:gosec // a status of HTTP has three digits
		Reason: reason, Message: message, Details: &metav1.StatusDetails{Name: name},
	})
}

func writeJSON(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}
