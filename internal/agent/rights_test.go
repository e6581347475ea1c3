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

// RG-02: one request reports whether the hub lets an agent work. Where the agent sends heartbeats, it is the read of their Lease.
func TestRights(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "any"}
	const lease, works = "*v1.Lease", "*v1.ManifestWorkList"
	all := Parts{Registration: true, Work: true}
	for name, test := range map[string]struct {
		parts  Parts
		answer error
		reads  string
		waits  bool
	}{
		"all":                          {all, nil, lease, false},
		"all, refused":                 {all, apierrors.NewForbidden(resource, "", nil), lease, true},
		"all, without a Lease":         {all, apierrors.NewNotFound(resource, ""), lease, false},
		"registration":                 {Parts{Registration: true}, nil, lease, false},
		"works":                        {Parts{Work: true}, nil, works, false},
		"works, refused":               {Parts{Work: true}, apierrors.NewForbidden(resource, "", nil), works, true},
		"works, of a hub without them": {Parts{Work: true}, apierrors.NewNotFound(resource, ""), works, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requested []string
			hub := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					requested = append(requested, fmt.Sprintf("%T", o))
					return test.answer
				},
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					requested = append(requested, fmt.Sprintf("%T", list))
					return test.answer
				},
			}).Build()
			a := &Agent{Options: NewOptions(), parts: test.parts, identity: identity.Identity{Cluster: "c1"}}
			err := a.tryRights(t.Context(), hub)
			if (err != nil) != test.waits || !slices.Equal(requested, []string{test.reads}) {
				t.Errorf("%v, requested %q, want %q", err, requested, test.reads)
			}
			if known := test.answer == nil && test.reads == lease; (a.lease != nil) != known {
				t.Errorf("the first heartbeat has the Lease: %t, want %t", a.lease != nil, known)
			}
		})
	}
}
