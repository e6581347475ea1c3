package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// A refusal says which rights the agent lacks by what the API server says of them, whatever the text of the refusal.
func TestExplain(t *testing.T) {
	t.Parallel()
	deployment := tracker.Object{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		NamespacedName:       types.NamespacedName{Namespace: "shop", Name: "web"},
	}
	refused := func(text string) error {
		return apierrors.NewForbidden(deployment.GroupResource(), deployment.Name, errors.New(text))
	}
	authorizer := refused(`User "agent" cannot create resource "deployments" in API group "apps"`)
	for name, test := range map[string]struct {
		err     error
		allowed string // verbs; none while the API server does not answer
		want    string
	}{
		"the agent has no rights":    {authorizer, "get", "lacks the verbs [create update patch] on deployments.apps "},
		"in other words":             {refused("no entry"), "get update patch", "lacks the verbs [create] on deployments.apps "},
		"an admission plugin":        {authorizer, "get create update patch", ""},
		"nothing is known of rights": {authorizer, "", ""},
		"another error":              {apierrors.NewBadRequest("no such field"), "get", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			managed := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					review, ok := o.(*authorizationv1.SelfSubjectAccessReview)
					if !ok || test.allowed == "" {
						return errors.New("not now")
					}
					attributes := review.Spec.ResourceAttributes
					if attributes.Group != "apps" || attributes.Resource != "deployments" || attributes.Namespace != "shop" || attributes.Name != "web" {
						t.Errorf("asked for %+v", attributes)
					}
					review.Status.Allowed = strings.Contains(test.allowed, attributes.Verb)
					return nil
				},
			})
			err := (&applier{managed: managed}).explain(t.Context(), deployment, test.err)
			if !errors.Is(err, test.err) || strings.Contains(err.Error(), "lacks") != (test.want != "") ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
}
