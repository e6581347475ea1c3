package agent

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
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

// RG-17, RG-18, WK-14: an agent starts if the hub lets it finalize works and nothing else, as it does while a cluster is being deleted. It
// does not start with works alone in the moment in which the hub gives rights.
func TestRightsToWorksAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lagging int // reads of the Lease that are refused
		lists   bool
	}{
		"for good":            {math.MaxInt, true},
		"the authorizer lags": {3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reads, lists := 0, 0
				hub := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						if reads++; reads <= test.lagging {
							return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", nil)
						}
						return nil
					},
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
						lists++
						return nil
					},
				}).Build()
				a := &Agent{Options: NewOptions(), parts: Parts{Registration: true, Work: true}, clock: clock.RealClock{},
					identity: identity.Identity{Cluster: "c1"}}
				if err := a.awaitRights(t.Context(), hub, nil); err != nil || lists > 0 != test.lists {
					t.Errorf("%d reads, %d lists, %v", reads, lists, err)
				}
			})
		})
	}
}
