package apply

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// explain adds to a refusal what to do about it if the agent itself lacks rights: admission plugins refuse with the same status, and say
// why themselves.
func (a *applier) explain(ctx context.Context, o tracker.Object, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	missing := missingVerbs(ctx, a.managed, o)
	if len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%w; the work agent lacks the verbs [%s] on %s on the managed cluster: grant them in a ClusterRole with the label %s=true",
		err, strings.Join(missing, " "), o.GroupResource(), fleet.LabelAggregateToWork)
}

// missingVerbs are those of the verbs for applying an object that the agent may not use. What the API server does not answer is not
// missing.
func missingVerbs(ctx context.Context, managed client.Client, o tracker.Object) (missing []string) {
	for _, verb := range []string{"get", "create", "update", "patch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: o.Group, Version: o.Version, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name,
			},
		}}
		if err := managed.Create(ctx, review); err == nil && !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing
}
