package fakehub

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const clusters = "/apis/cluster.open-cluster-management.io/v1/managedclusters/"

// Connect has the hub serve the API of a cluster. Its requests are not recorded, and may take as long as they like.
func (h *Hub) Connect(cluster string, api http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected[cluster] = http.StripPrefix(clusters+cluster+"/proxy", api)
}

// proxy answers requests to clusters; false is any other request.
func (h *Hub) proxy(w http.ResponseWriter, r *http.Request) bool {
	rest, below := strings.CutPrefix(r.URL.Path, clusters)
	cluster, _, proxied := strings.Cut(rest, "/proxy")
	if !below || !proxied {
		return false
	}
	h.mu.Lock()
	api, there := h.connected[cluster], h.HasLocked(clusters+cluster)
	h.mu.Unlock()
	switch {
	case api != nil:
		api.ServeHTTP(w, r)
	case there:
		message := "cluster " + cluster + " has no tunnel"
		writeClusterStatus(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, cluster, message)
	default:
		RefuseCluster(http.StatusNotFound, metav1.StatusReasonNotFound, cluster)(w, r)
	}
	return true
}

// RefuseCluster is what the hub answers about a cluster itself.
func RefuseCluster(code int, reason metav1.StatusReason, cluster string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeClusterStatus(w, code, reason, cluster, fmt.Sprintf("managedclusters %q: %s", cluster, reason))
	}
}

func writeClusterStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, cluster, message string) {
	writeJSON(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message, //nolint:gosec // three digits
		Details: &metav1.StatusDetails{Name: cluster, Group: "cluster.open-cluster-management.io", Kind: "managedclusters"},
	})
}

// Collection is the objects of one resource of a cluster.
type Collection struct {
	GroupVersion string
	metav1.APIResource
	Columns []metav1.TableColumnDefinition
	Objects []Object
}

// Object has a namespace, a name, and the cells of its row.
type Object struct {
	Namespace, Name string
	Cells           []any
}

func (o Object) json(kind, apiVersion string) map[string]any {
	return map[string]any{
		"kind": kind, "apiVersion": apiVersion,
		"metadata": map[string]any{"name": o.Name, "namespace": o.Namespace, "managedFields": []any{map[string]any{"manager": "other"}}},
		"spec":     map[string]any{"replicas": int64(1) << 60},
	}
}

// ClusterAPI serves discovery and collections, in pages and as tables. Handlers serve their paths instead.
type ClusterAPI struct {
	Collections []Collection
	Handlers    map[string]http.HandlerFunc
	// Watch has events for who watches a collection, by its path, until it is closed.
	Watch map[string]chan string
	// NoTables is for servers that make none.
	NoTables bool
}

// ServeHTTP answers one request.
func (c *ClusterAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer := c.Handlers[r.URL.Path]; answer != nil {
		answer(w, r)
		return
	}
	if events := c.Watch[r.URL.Path]; events != nil && r.URL.Query().Get("watch") != "" {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for {
			select {
			case event, more := <-events:
				if !more {
					return
				}
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	switch r.URL.Path {
	case "/healthz":
		fmt.Fprint(w, "ok")
		return
	case "/api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case "/apis":
		writeJSON(w, http.StatusOK, c.groups())
		return
	}
	for i := range c.Collections {
		if c.Collections[i].serve(w, r, c.NoTables) {
			return
		}
	}
	if gv, isVersion := strings.CutPrefix(r.URL.Path, "/api"); isVersion {
		writeJSON(w, http.StatusOK, c.resources(strings.TrimPrefix(strings.TrimPrefix(gv, "s"), "/")))
		return
	}
	http.NotFound(w, r)
}

func (c *ClusterAPI) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for i := range c.Collections {
		if group, version, found := strings.Cut(c.Collections[i].GroupVersion, "/"); found {
			served := metav1.GroupVersionForDiscovery{GroupVersion: c.Collections[i].GroupVersion, Version: version}
			list.Groups = append(list.Groups, metav1.APIGroup{
				Name: group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served,
			})
		}
	}
	return list
}

func (c *ClusterAPI) resources(gv string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
	for i := range c.Collections {
		if c.Collections[i].GroupVersion == gv {
			resource := c.Collections[i].APIResource
			resource.Verbs = metav1.Verbs{"get", "list"}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	return list
}

// serve answers requests for the collection or an object of it; false is any other request.
func (c *Collection) serve(w http.ResponseWriter, r *http.Request, noTables bool) bool {
	prefix := "/apis/"
	if c.GroupVersion == "v1" {
		prefix = "/api/"
	}
	path, ok := strings.CutPrefix(r.URL.Path, prefix+c.GroupVersion+"/")
	parts := strings.Split(path, "/")
	namespace := ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	if !ok || parts[0] != c.Name {
		return false
	}
	var objects []Object
	for _, o := range c.Objects {
		if (namespace == "" || o.Namespace == namespace) && (len(parts) == 1 || o.Name == parts[1]) {
			objects = append(objects, o)
		}
	}
	table := strings.Contains(r.Header.Get("Accept"), "as=Table") && !noTables
	switch {
	case len(parts) > 1 && len(objects) == 0:
		writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", c.Name, parts[1]), parts[1])
	case len(parts) > 1 && !table:
		writeJSON(w, http.StatusOK, objects[0].json(c.Kind, c.GroupVersion))
	default:
		c.page(w, r, objects, table)
	}
	return true
}

// page writes as many objects as were requested, and where the next page starts.
func (c *Collection) page(w http.ResponseWriter, r *http.Request, objects []Object, table bool) {
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	metadata := map[string]any{"resourceVersion": "1"}
	objects = objects[min(from, len(objects)):]
	if limit > 0 && len(objects) > limit {
		metadata["continue"], objects = strconv.Itoa(from+limit), objects[:limit]
	}
	rows, items := []any{}, []any{}
	for _, o := range objects {
		object := o.json(c.Kind, c.GroupVersion)
		rows = append(rows, map[string]any{"cells": o.Cells, "object": object})
		items = append(items, object)
	}
	if table {
		writeJSON(w, http.StatusOK, map[string]any{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
			"columnDefinitions": c.Columns, "rows": rows})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"kind": c.Kind + "List", "apiVersion": c.GroupVersion, "metadata": metadata, "items": items})
}
