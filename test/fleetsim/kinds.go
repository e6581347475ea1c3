package fleetsim

import (
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one that a cluster serves.
type kind struct {
	schema.GroupVersionResource
	name       string
	namespaced bool
	// status has a subresource of its own, and the cluster counts generations.
	status bool
}

func (k kind) gvk() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.name) }

// builtin are the kinds that a cluster serves without a CustomResourceDefinition: those that an agent needs for itself, some that works
// bring, and pods, which users read.
var builtin = []kind{
	{v1("", "configmaps"), "ConfigMap", true, false},
	{v1("", "events"), "Event", true, false},
	{v1("", "namespaces"), "Namespace", false, true},
	{v1("", "nodes"), "Node", false, true},
	{v1("", "pods"), "Pod", true, true},
	{v1("", "secrets"), "Secret", true, false},
	{v1("", "serviceaccounts"), "ServiceAccount", true, false},
	{v1("", "services"), "Service", true, true},
	definitions,
	{v1("apps", "deployments"), "Deployment", true, true},
	{v1("coordination.k8s.io", "leases"), "Lease", true, false},
	{v1("rbac.authorization.k8s.io", "clusterrolebindings"), "ClusterRoleBinding", false, false},
	{v1("rbac.authorization.k8s.io", "clusterroles"), "ClusterRole", false, false},
	{v1("rbac.authorization.k8s.io", "rolebindings"), "RoleBinding", true, false},
	{v1("rbac.authorization.k8s.io", "roles"), "Role", true, false},
}

// definitions are the kind that brings others.
var definitions = kind{v1(apiextensionsv1.GroupName, "customresourcedefinitions"), "CustomResourceDefinition", false, true}

func v1(group, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// kinds are all that the cluster serves now.
func (c *Cluster) kinds() []kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served
}

func (c *Cluster) kindOf(r schema.GroupVersionResource) (kind, bool) {
	all := c.kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.GroupVersionResource == r })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// serve brings the kinds in line with the CustomResourceDefinitions.
func (c *Cluster) serve() error {
	crds, _ := c.store.list(func(k key, _ *unstructured.Unstructured) bool {
		return k.GroupVersionResource == definitions.GroupVersionResource
	})
	served := slices.Clone(builtin)
	for _, o := range crds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd); err != nil {
			return err
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				r := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
				served = append(served, kind{r, crd.Spec.Names.Kind, crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
					v.Subresources != nil && v.Subresources.Status != nil})
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = served
	return nil
}

// establish says of a CustomResourceDefinition that it is served.
func establish(crd *unstructured.Unstructured) error {
	var conditions []any
	for _, kind := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		conditions = append(conditions, map[string]any{"type": string(kind), "status": "True"})
	}
	return unstructured.SetNestedSlice(crd.Object, conditions, "status", "conditions")
}

// discover answers what is no request for objects. ok is false for what a cluster does not serve.
func (c *Cluster) discover(w http.ResponseWriter, path string) (ok bool) {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case slices.Contains([]string{"healthz", "livez", "readyz"}, parts[0]):
		_, _ = w.Write([]byte("ok"))
	case path == "/version":
		writeJSON(w, http.StatusOK, gitVersion)
	case path == "/api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		writeJSON(w, http.StatusOK, c.groups())
	case parts[0] == "apis" && len(parts) == 2:
		all := c.groups().Groups
		i := slices.IndexFunc(all, func(g metav1.APIGroup) bool { return g.Name == parts[1] })
		if i < 0 {
			return false
		}
		writeJSON(w, http.StatusOK, all[i])
	default:
		list := c.resources(strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"))
		if len(list.APIResources) == 0 {
			return false
		}
		writeJSON(w, http.StatusOK, list)
	}
	return true
}

func (c *Cluster) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range c.kinds() {
		if k.Group == "" {
			continue
		}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == k.Group })
		if i < 0 {
			i = len(list.Groups)
			list.Groups = append(list.Groups, metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: k.Group})
		}
		group, v := &list.Groups[i], metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		if !slices.Contains(group.Versions, v) {
			group.Versions = append(group.Versions, v)
			group.PreferredVersion = group.Versions[0]
		}
	}
	return list
}

func (c *Cluster) resources(groupVersion string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, k := range c.kinds() {
		if k.GroupVersion().String() != groupVersion {
			continue
		}
		r := metav1.APIResource{Name: k.Resource, SingularName: strings.ToLower(k.name), Kind: k.name, Namespaced: k.namespaced,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}}
		list.APIResources = append(list.APIResources, r)
		if k.status {
			r.Name += "/status"
			r.Verbs = metav1.Verbs{"get", "patch", "update"}
			list.APIResources = append(list.APIResources, r)
		}
	}
	return list
}
