package reach

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/manyclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// accessRequest is what a user wants to do.
type accessRequest struct {
	verb, resource, name, subresource string
}

func (f *accessQuery) accessRequest(args []string) accessRequest {
	request := accessRequest{verb: strings.ToLower(args[0]), subresource: f.subresource}
	request.resource, request.name, _ = strings.Cut(args[1], "/")
	return request
}

// proxyVerbs are the verbs by which the hub authorizes the request.
func (request accessRequest) proxyVerbs() []string {
	switch request.verb {
	case verbGet, "list", "watch":
		return []string{verbGet}
	case "deletecollection":
		return []string{verbDelete}
	case "*":
		return proxyVerbs
	}
	if slices.Contains(proxyVerbs, request.verb) {
		return []string{request.verb}
	}
	return []string{verbCreate} // such as bind and escalate
}

// canI prints for each cluster whether the user may do something there, and fails if it may not.
func (f *accessQuery) canI(ctx context.Context, r *reviewer, names []string, request accessRequest) error {
	clusters, err := forEachCluster(ctx, r, names, func(ctx context.Context, name string) (output.AccessReview, error) {
		return r.canI(ctx, name, request)
	})
	if err != nil {
		return err
	}
	reviews := &output.AccessReviews{Subject: r.subject(), Verb: request.verb, Resource: request.resource, Subresource: request.subresource,
		Name: request.name, Namespace: r.namespace, Clusters: clusters}
	if err := f.Print(f.format.Format(), output.AccessReviewTable(reviews)); err != nil {
		return err
	}
	refused := slices.ContainsFunc(clusters, func(review output.AccessReview) bool { return !review.Allowed })
	if !refused {
		return nil
	}
	if f.format.Format() == output.Table {
		for i := range clusters {
			f.noteNext(clusters[i].Next)
		}
	}
	return options.ExitError{Code: 1}
}

// canI reviews a request in the order in which it is authorized: by the hub, the connection, the owner and the cluster.
func (r *reviewer) canI(ctx context.Context, name string, request accessRequest) (output.AccessReview, error) {
	review := output.AccessReview{Cluster: name}
	verbs, err := r.proxyVerbs(ctx, name)
	if err != nil {
		return review, err
	}
	missing := slices.DeleteFunc(slices.Clone(request.proxyVerbs()), func(verb string) bool { return slices.Contains(verbs, verb) })
	if len(missing) > 0 {
		review.By = output.ByHub
		review.Reason, review.Next, err = r.explainHubRefusal(ctx, name, missing)
		return review, err
	}
	cluster, err := clusterapi.Of(ctx, r.hub, name)
	if err != nil {
		return review, err
	}
	resource, problem := r.resolve(ctx, cluster, request.resource, slices.Contains(verbs, verbGet))
	if problem != nil {
		return refuse(review, problem), nil
	}
	attributes := &authorizationv1.ResourceAttributes{Verb: request.verb, Group: resource.Group, Version: resource.Version,
		Resource: resource.Resource, Subresource: request.subresource, Name: request.name}
	if resource.Namespaced {
		attributes.Namespace = r.namespace
	}
	if !slices.Contains(verbs, verbCreate) {
		return r.tryRequest(ctx, review, cluster, resource, attributes), nil
	}
	status, err := reviewAccess(ctx, cluster, attributes)
	if err != nil {
		problem := cluster.Diagnose(err, r.limit)
		return refuse(review, &problem), nil
	}
	if review.Allowed = status.Allowed; !status.Allowed {
		r.explainClusterRefusal(ctx, &review, attributes, status.Reason)
	}
	return review, nil
}

// resolve finds the resource that a word means. Without discovery, the word is taken as it is written, as RESOURCE.GROUP.
func (r *reviewer) resolve(ctx context.Context, cluster *clusterapi.Cluster, word string,
	mayDiscover bool) (manyclusters.Resource, *clusterapi.Problem) {
	if mayDiscover {
		return manyclusters.Resolve(ctx, cluster, word, "", r.limit)
	}
	resource := schema.ParseGroupResource(word)
	return manyclusters.Resource{GroupVersionResource: resource.WithVersion(""), Namespaced: true}, nil
}

func refuse(review output.AccessReview, problem *clusterapi.Problem) output.AccessReview {
	review.By, review.Reason, review.Next = output.ByConnection, problem.Message, problem.Next
	if problem.Connected {
		review.By = output.ByCluster
		refusedByOwner(&review)
	}
	return review
}

// refusedByOwner tells what the agent refuses, by the rules of the owner of the cluster, from what its API server does.
func refusedByOwner(review *output.AccessReview) bool {
	if !strings.Contains(review.Reason, fleet.ConfigMapHubAccess) {
		return false
	}
	review.By = output.ByOwner
	review.Next = fmt.Sprintf("The owner of the cluster decides, by ConfigMap %s in the namespace of the agent there.",
		fleet.ConfigMapHubAccess)
	return true
}

// explainClusterRefusal says why the cluster does not allow something.
func (r *reviewer) explainClusterRefusal(ctx context.Context, review *output.AccessReview,
	attributes *authorizationv1.ResourceAttributes, reason string) {
	review.By, review.Reason = output.ByCluster, text.OneLine(reason)
	if refusedByOwner(review) {
		return
	}
	on := r.user.OnCluster()
	review.Reason = fmt.Sprintf("no role on the cluster lets user %q %s", on.Name, describe(attributes))
	if reason != "" {
		review.Reason += ": " + text.OneLine(reason)
	}
	for _, permission := range r.permissions(ctx, review.Cluster) {
		if !permission.Applied {
			review.Reason += "; " + notApplied(permission)
		}
	}
	review.Next = fmt.Sprintf("A ClusterPermission in namespace %s of the hub, or a role binding on the cluster, gives rights to the User %s.",
		review.Cluster, on.Name)
}

func describe(attributes *authorizationv1.ResourceAttributes) string {
	resource := schema.GroupResource{Group: attributes.Group, Resource: attributes.Resource}.String()
	if attributes.Subresource != "" {
		resource += "/" + attributes.Subresource
	}
	words := attributes.Verb + " " + resource
	if attributes.Name != "" {
		words += " " + attributes.Name
	}
	if attributes.Namespace != "" {
		words += " in namespace " + attributes.Namespace
	}
	return words
}

// tryRequest finds out by a request that changes nothing, for those who may only read: a review by the cluster is a POST.
func (r *reviewer) tryRequest(ctx context.Context, review output.AccessReview, cluster *clusterapi.Cluster, resource manyclusters.Resource,
	attributes *authorizationv1.ResourceAttributes) output.AccessReview {
	named := attributes.Verb == verbGet && attributes.Name != ""
	if attributes.Subresource != "" || !named && (attributes.Verb != "list" || attributes.Name != "") {
		review.By, review.Reason = output.ByHub, noReview
		review.Next = "Have an administrator of the hub run it with --as, or give the verb create, too."
		return review
	}
	request := cluster.Get(resource.Path(attributes.Namespace, attributes.Name)...)
	if !named {
		request = request.Param("limit", "1")
	}
	err := request.Do(ctx).Error()
	switch {
	case err == nil, named && apierrors.IsNotFound(err) && cluster.Diagnose(err, r.limit).Connected:
		review.Allowed = true
	case apierrors.IsForbidden(err) && cluster.Diagnose(err, r.limit).Connected:
		r.explainClusterRefusal(ctx, &review, attributes, cluster.Diagnose(err, r.limit).Message)
	default:
		problem := cluster.Diagnose(err, r.limit)
		return refuse(review, &problem)
	}
	return review
}
