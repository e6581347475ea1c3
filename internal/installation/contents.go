package installation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ignoredGroups are the groups of which Kubernetes, OpenShift and the hub put objects into namespaces, or show some there, that do
// not count as contents.
var ignoredGroups = []string{
	"events.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "rbac.authorization.k8s.io", "authorization.openshift.io", "metrics.k8s.io",
	"packages.operators.coreos.com",
}

// labelCopied is on the ClusterServiceVersions that the Operator Lifecycle Manager copies to all namespaces.
const labelCopied = "olm.copiedFrom"

// Contents lists what is in a namespace of any kind that the cluster serves, but for what belongs to the hub, is owned by another object,
// or is in every namespace. A kind that cannot be listed counts as contents.
func (c *Cluster) Contents(ctx context.Context, namespace string) ([]string, error) {
	contents, err := c.Remaining(ctx, namespace)
	if err != nil || len(contents) > 0 {
		return contents, err
	}
	kinds, err := c.namespacedKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		found, err := c.List(ctx, kind, namespace, "")
		if err != nil {
			contents = append(contents, fmt.Sprintf("maybe %s of %s, which cannot be listed", kind.Kind, kind.GroupVersion()))
			continue
		}
		for i := range found {
			if found[i].SetGroupVersionKind(kind); isContents(&found[i]) {
				contents = append(contents, ReferenceTo(&found[i]).String())
			}
		}
	}
	return contents, nil
}

func isContents(object *unstructured.Unstructured) bool {
	return object.GetDeletionTimestamp() == nil && len(object.GetOwnerReferences()) == 0 && object.GetLabels()[labelCopied] == "" &&
		!inEveryNamespace(object)
}

// namespacedKinds are those of which objects in namespaces can be listed, each in the version that the cluster prefers, but for those of
// which the objects do not count, and those of the hub.
func (c *Cluster) namespacedKinds(ctx context.Context) ([]schema.GroupVersionKind, error) {
	body, err := c.Raw().Get().AbsPath("/apis").DoRaw(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, c.Explain("ask which APIs the cluster serves", err)
	}
	groups := metav1.APIGroupList{}
	if err == nil {
		if err := json.Unmarshal(body, &groups); err != nil {
			return nil, fmt.Errorf("read which APIs the cluster serves: %w", err)
		}
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for i := range groups.Groups {
		group := &groups.Groups[i]
		if !slices.Contains(ignoredGroups, group.Name) && !strings.HasSuffix(group.Name, "open-cluster-management.io") {
			versions = append(versions, schema.GroupVersion{Group: group.Name, Version: group.PreferredVersion.Version})
		}
	}
	var kinds []schema.GroupVersionKind
	for _, version := range versions {
		resources, err := c.resources(ctx, version)
		if err != nil {
			return nil, err
		}
		for i := range resources {
			served := &resources[i]
			ignored := version.Group == "" && (served.Kind == "Event" || served.Kind == "Endpoints")
			if served.Namespaced && slices.Contains(served.Verbs, "list") && !strings.Contains(served.Name, "/") && !ignored {
				kinds = append(kinds, version.WithKind(served.Kind))
			}
		}
	}
	return kinds, nil
}
