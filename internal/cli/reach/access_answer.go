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

// question is what a user wants to do.
type question struct {
	verb, resource, name, subresource string
}

func (f *accessQuery) question(args []string) question {
	q := question{verb: strings.ToLower(args[0]), subresource: f.subresource}
	q.resource, q.name, _ = strings.Cut(args[1], "/")
	return q
}

// enterVerbs are the verbs that the hub asks for when the request is made.
func (q question) enterVerbs() []string {
	switch q.verb {
	case verbGet, "list", "watch":
		return []string{verbGet}
	case "deletecollection":
		return []string{verbDelete}
	case "*":
		return enterVerbs
	}
	if slices.Contains(enterVerbs, q.verb) {
		return []string{q.verb}
	}
	return []string{verbCreate} // such as bind and escalate
}

// answer says for each cluster whether the user may do something there, and fails if it may not.
func (f *accessQuery) answer(ctx context.Context, q *asker, names []string, asked question) error {
	clusters, err := ofAll(ctx, q, names, func(ctx context.Context, name string) (output.AccessReview, error) {
		return q.answer(ctx, name, asked)
	})
	if err != nil {
		return err
	}
	answers := &output.AccessReviews{Subject: q.person(), Verb: asked.verb, Resource: asked.resource, Subresource: asked.subresource,
		Name: asked.name, Namespace: q.namespace, Clusters: clusters}
	if err := f.Print(f.format.Format(), output.AccessReviewTable(answers)); err != nil {
		return err
	}
	refused := slices.ContainsFunc(clusters, func(answer output.AccessReview) bool { return !answer.Allowed })
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

// answer goes the way of the request, up to what stands in the way first.
func (q *asker) answer(ctx context.Context, name string, asked question) (output.AccessReview, error) {
	answer := output.AccessReview{Cluster: name}
	enter, err := q.enter(ctx, name)
	if err != nil {
		return answer, err
	}
	missing := slices.DeleteFunc(slices.Clone(asked.enterVerbs()), func(verb string) bool { return slices.Contains(enter, verb) })
	if len(missing) > 0 {
		answer.By = output.ByHub
		answer.Reason, answer.Next, err = q.notLetIn(ctx, name, missing)
		return answer, err
	}
	cluster, err := clusterapi.Of(ctx, q.hub, name)
	if err != nil {
		return answer, err
	}
	resource, trouble := q.resolve(ctx, cluster, asked.resource, slices.Contains(enter, verbGet))
	if trouble != nil {
		return inTheWay(answer, trouble), nil
	}
	what := &authorizationv1.ResourceAttributes{Verb: asked.verb, Group: resource.Group, Version: resource.Version,
		Resource: resource.Resource, Subresource: asked.subresource, Name: asked.name}
	if resource.Namespaced {
		what.Namespace = q.namespace
	}
	if !slices.Contains(enter, verbCreate) {
		return q.try(ctx, answer, cluster, resource, what), nil
	}
	status, err := mayOn(ctx, cluster, what)
	if err != nil {
		trouble := cluster.Diagnose(err, q.limit)
		return inTheWay(answer, &trouble), nil
	}
	if answer.Allowed = status.Allowed; !status.Allowed {
		q.explainNo(ctx, &answer, what, status.Reason)
	}
	return answer, nil
}

// resolve finds the resource that a word means. Who may not ask the cluster has to mean it as it is written, as RESOURCE.GROUP.
func (q *asker) resolve(ctx context.Context, cluster *clusterapi.Cluster, word string,
	mayAsk bool) (manyclusters.Resource, *clusterapi.Problem) {
	if mayAsk {
		return manyclusters.Resolve(ctx, cluster, word, "", q.limit)
	}
	resource := schema.ParseGroupResource(word)
	return manyclusters.Resource{GroupVersionResource: resource.WithVersion(""), Namespaced: true}, nil
}

func inTheWay(answer output.AccessReview, trouble *clusterapi.Problem) output.AccessReview {
	answer.By, answer.Reason, answer.Next = output.ByConnection, trouble.Message, trouble.Next
	if trouble.Connected {
		answer.By = output.ByCluster
		byOwner(&answer)
	}
	return answer
}

// byOwner tells what the agent refuses, by the rules of the owner of the cluster, from what its API server does.
func byOwner(answer *output.AccessReview) bool {
	if !strings.Contains(answer.Reason, fleet.ConfigMapHubAccess) {
		return false
	}
	answer.By = output.ByOwner
	answer.Next = fmt.Sprintf("The owner of the cluster decides, by ConfigMap %s in the namespace of the agent there.", fleet.ConfigMapHubAccess)
	return true
}

// explainNo says why the cluster does not allow something.
func (q *asker) explainNo(ctx context.Context, answer *output.AccessReview, what *authorizationv1.ResourceAttributes, reason string) {
	answer.By, answer.Reason = output.ByCluster, text.OneLine(reason)
	if byOwner(answer) {
		return
	}
	on := q.user.OnCluster()
	answer.Reason = fmt.Sprintf("no role on the cluster lets user %q %s", on.Name, describe(what))
	if reason != "" {
		answer.Reason += ": " + text.OneLine(reason)
	}
	for _, permission := range q.permissions(ctx, answer.Cluster) {
		if !permission.Applied {
			answer.Reason += "; " + notApplied(permission)
		}
	}
	answer.Next = fmt.Sprintf("A ClusterPermission in namespace %s of the hub, or a role binding on the cluster, gives rights to the User %s.",
		answer.Cluster, on.Name)
}

func describe(what *authorizationv1.ResourceAttributes) string {
	resource := schema.GroupResource{Group: what.Group, Resource: what.Resource}.String()
	if what.Subresource != "" {
		resource += "/" + what.Subresource
	}
	words := what.Verb + " " + resource
	if what.Name != "" {
		words += " " + what.Name
	}
	if what.Namespace != "" {
		words += " in namespace " + what.Namespace
	}
	return words
}

// try finds out by a request that changes nothing, for those whom the hub lets read alone: a question to the cluster is a POST.
func (q *asker) try(ctx context.Context, answer output.AccessReview, cluster *clusterapi.Cluster, resource manyclusters.Resource,
	what *authorizationv1.ResourceAttributes) output.AccessReview {
	named := what.Verb == verbGet && what.Name != ""
	if what.Subresource != "" || !named && (what.Verb != "list" || what.Name != "") {
		answer.By, answer.Reason = output.ByHub, cannotAsk
		answer.Next = "Have an administrator of the hub run it with --as, or give the verb create, too."
		return answer
	}
	request := cluster.Get(resource.Path(what.Namespace, what.Name)...)
	if !named {
		request = request.Param("limit", "1")
	}
	err := request.Do(ctx).Error()
	switch {
	case err == nil, named && apierrors.IsNotFound(err) && cluster.Diagnose(err, q.limit).Connected:
		answer.Allowed = true
	case apierrors.IsForbidden(err) && cluster.Diagnose(err, q.limit).Connected:
		q.explainNo(ctx, &answer, what, cluster.Diagnose(err, q.limit).Message)
	default:
		trouble := cluster.Diagnose(err, q.limit)
		return inTheWay(answer, &trouble)
	}
	return answer
}
