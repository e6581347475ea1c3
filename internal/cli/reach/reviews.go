package reach

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
	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	pathAccessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	pathRulesReviews  = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
)

// whoAmI reviews who the user is on the hub.
func whoAmI(ctx context.Context, hub *hubapi.Hub) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.SelfSubjectReview{}
	err := hub.Raw().Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").Body(review).Do(ctx).Into(review)
	return review.Status.UserInfo, hub.Explain("ask who the user is", err)
}

// proxyResource is what users need rights to on the hub to reach clusters.
func proxyResource(ctx context.Context, hub *hubapi.Hub) (schema.GroupResource, error) {
	version, err := hub.ReachVersion(ctx)
	return schema.GroupResource{Group: version.Group, Resource: fleet.ResourceManagedClusters + "/" + fleet.SubresourceProxy}, err
}

// reviewProxyAccess reviews on the hub whether the user may send requests to a cluster. The verb is that of their HTTP method, such as get
// and create.
func reviewProxyAccess(ctx context.Context, hub *hubapi.Hub, cluster, verb string) (bool, error) {
	version, err := hub.ReachVersion(ctx)
	if err != nil {
		return false, err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: version.Group, Version: version.Version,
			Resource: fleet.ResourceManagedClusters, Subresource: fleet.SubresourceProxy, Name: cluster},
	}}
	err = hub.Raw().Post().AbsPath(pathAccessReviews).Body(review).Do(ctx).Into(review)
	return review.Status.Allowed, hub.Explain(fmt.Sprintf("ask whether the user may %s %s/%s of cluster %s", verb, fleet.ResourceManagedClusters,
		fleet.SubresourceProxy, cluster), err)
}

// clusterPermissions are those that give rights on a cluster.
func clusterPermissions(ctx context.Context, hub *hubapi.Hub, cluster string) (items []permissionv1alpha1.ClusterPermission, err error) {
	err = hub.ListIfServed(ctx, &items, "/apis", permissionv1alpha1.GroupVersion.String(), "namespaces", cluster, "clusterpermissions")
	return items, err
}

// reviewAccess reviews on the cluster whether the user may do something there.
func reviewAccess(ctx context.Context, cluster *clusterapi.Cluster,
	attributes *authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	_, err := postReview(ctx, cluster, pathAccessReviews, review)
	return review.Status, err
}

// reviewRules reviews on the cluster what the user may do there, outside of namespaces and in one of them. The warnings say what narrows
// it.
func reviewRules(ctx context.Context, cluster *clusterapi.Cluster,
	namespace string) (authorizationv1.SubjectRulesReviewStatus, []string, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"))
	warned, err := postReview(ctx, cluster, pathRulesReviews, review)
	return review.Status, warned, err
}

// postReview sends a review and reads the response into it. The client encodes nothing itself.
func postReview(ctx context.Context, cluster *clusterapi.Cluster, path string, review any) ([]string, error) {
	content, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	warned := &warnings{}
	result := cluster.Post(path).WarningHandler(warned).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(content).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	return warned.texts, json.Unmarshal(body, review)
}

// warnings collects the warnings of a server.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader adds a text once.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}
