package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/agent/registration/identity"
)

// RG-02: one list reports whether the hub lets an agent work, and whether it has add-ons.
func TestRights(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "any"}
	const addOns, works = "*v1beta1.ManagedClusterAddOnList", "*v1.ManifestWorkList"
	for name, test := range map[string]struct {
		parts  Parts
		answer error
		asks   string
		waits  bool
		addOns bool
	}{
		"all":                          {Parts{Registration: true, Work: true}, nil, addOns, false, true},
		"all, refused":                 {Parts{Registration: true, Work: true}, apierrors.NewForbidden(resource, "", nil), addOns, true, false},
		"all, of a hub without them":   {Parts{Registration: true, Work: true}, apierrors.NewNotFound(resource, ""), addOns, false, false},
		"registration":                 {Parts{Registration: true}, nil, addOns, false, true},
		"works":                        {Parts{Work: true}, nil, works, false, false},
		"works, refused":               {Parts{Work: true}, apierrors.NewForbidden(resource, "", nil), works, true, false},
		"works, of a hub without them": {Parts{Work: true}, apierrors.NewNotFound(resource, ""), works, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requested []string
			hub := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					requested = append(requested, fmt.Sprintf("%T", list))
					return test.answer
				},
			}).Build()
			a := &Agent{Options: NewOptions(), parts: test.parts, identity: identity.Identity{Cluster: "c1"}}
			err := a.tryRights(t.Context(), hub)
			if (err != nil) != test.waits || a.addOns != test.addOns || !slices.Equal(requested, []string{test.asks}) {
				t.Errorf("%v, add-ons: %t, asked for %q", err, a.addOns, requested)
			}
		})
	}
}
