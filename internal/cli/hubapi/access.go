package hubapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
)

const (
	pathAccessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	pathRulesReviews  = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
)

// Who asks the hub who the user is.
func (h *Hub) Who(ctx context.Context) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.SelfSubjectReview{}
	err := h.Raw().Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").Body(review).Do(ctx).Into(review)
	return review.Status.UserInfo, h.Explain("ask who the user is", err)
}

// ProxyResource is what users need rights to on the hub to reach clusters.
func (h *Hub) ProxyResource(ctx context.Context) (schema.GroupResource, error) {
	version, err := h.reachVersion(ctx)
	return schema.GroupResource{Group: version.Group, Resource: fleet.ResourceManagedClusters + "/" + fleet.SubresourceProxy}, err
}

// MayEnter asks the hub whether the user may send requests to a cluster. The verb is that of their HTTP method, such as get and create.
func (h *Hub) MayEnter(ctx context.Context, cluster, verb string) (bool, error) {
	version, err := h.reachVersion(ctx)
	if err != nil {
		return false, err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: version.Group, Version: version.Version,
			Resource: fleet.ResourceManagedClusters, Subresource: fleet.SubresourceProxy, Name: cluster},
	}}
	err = h.Raw().Post().AbsPath(pathAccessReviews).Body(review).Do(ctx).Into(review)
	return review.Status.Allowed, h.Explain(fmt.Sprintf("ask whether the user may %s %s/%s of cluster %s", verb, fleet.ResourceManagedClusters,
		fleet.SubresourceProxy, cluster), err)
}

// reachVersion is the version of the API by which clusters are reached. It asks the hub, once.
func (h *Hub) reachVersion(ctx context.Context) (schema.GroupVersion, error) {
	h.reached.mu.Lock()
	defer h.reached.mu.Unlock()
	if h.reached.version.Empty() {
		version, err := api.Served(ctx, h.config, h.transport)
		if err != nil {
			return version, h.Explain("find out how clusters are reached", err)
		}
		h.reached.version = version
	}
	return h.reached.version, nil
}

// ClusterPermissions are those that give rights on a cluster.
func (h *Hub) ClusterPermissions(ctx context.Context, cluster string) (items []permissionv1alpha1.ClusterPermission, err error) {
	err = h.ListIfServed(ctx, &items, "/apis", permissionv1alpha1.GroupVersion.String(), "namespaces", cluster, "clusterpermissions")
	return items, err
}

// May asks the cluster whether the user may do something there.
func (c *ClusterAPI) May(ctx context.Context, what *authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	_, err := c.review(ctx, pathAccessReviews, review)
	return review.Status, err
}

// Rights asks the cluster what the user may do there, outside of namespaces and in one of them. The warnings say what narrows it.
func (c *ClusterAPI) Rights(ctx context.Context, namespace string) (authorizationv1.SubjectRulesReviewStatus, []string, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"))
	told, err := c.review(ctx, pathRulesReviews, review)
	return review.Status, told, err
}

// review sends a review and reads the answer into it. The client encodes nothing itself.
func (c *ClusterAPI) review(ctx context.Context, path string, review any) ([]string, error) {
	content, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	told := &warnings{}
	result := c.client.Post().AbsPath(path).MaxRetries(0).WarningHandler(told).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(content).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	return told.texts, json.Unmarshal(body, review)
}

// warnings keeps what a server warns of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader keeps a text once.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}
