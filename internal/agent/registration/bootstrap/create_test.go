package bootstrap

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-05: the ManagedCluster of a new cluster takes one request. Of one that the hub does not let the agent create, the agent reads whether
// it is there, and leaves it as it is.
func TestManagedClusterIsCreatedFirst(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	resource := clusterv1.GroupVersion.WithResource("managedclusters").GroupResource()
	tooMany, forbidden := apierrors.NewTooManyRequestsError("wait"), apierrors.NewForbidden(resource, "cluster1", errors.New("no labels"))
	full := func(*clusterv1.ManagedCluster) error { return tooMany }
	for name, test := range map[string]struct {
		exists   bool
		refuses  func(*clusterv1.ManagedCluster) error
		labels   map[string]string
		requests []string
		created  bool
		fails    bool
	}{
		"new":                {requests: []string{"create"}, created: true},
		"known":              {exists: true, requests: []string{"create", "get"}},
		"known, and refused": {exists: true, refuses: full, requests: []string{"create", "get"}},
		"refused":            {refuses: full, requests: []string{"create", "get"}, fails: true},
		"refused because of a label": {refuses: func(cluster *clusterv1.ManagedCluster) error {
			if len(cluster.Labels) > 0 {
				return forbidden
			}
			return nil
		}, labels: map[string]string{"a": "b"}, requests: []string{"create", "get", "create"}, created: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			existing := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", Labels: map[string]string{"of": "hub"},
				Annotations: map[string]string{"capstan.io/credentials-not-before": "2026-11-22T17:00:00Z"}}}
			api := fake.NewClientBuilder().WithScheme(scheme)
			if test.exists {
				api.WithObjects(existing)
			}
			var requests, events []string
			hub := api.WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					requests = append(requests, "create")
					if cluster, ok := o.(*clusterv1.ManagedCluster); ok && test.refuses != nil {
						if err := test.refuses(cluster); err != nil {
							return err
						}
					}
					return c.Create(ctx, o, opts...)
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					requests = append(requests, "get")
					return c.Get(ctx, key, o, opts...)
				},
			}).Build()
			b := &Bootstrap{Identity: identity.Identity{Cluster: "cluster1", Agent: "agent1"}, Labels: test.labels,
				Record: func(_, reason, _, _ string, _ ...any) { events = append(events, reason) }}
			created, err := b.ensureManagedCluster(t.Context(), hub)
			if created != test.created || (err != nil) != test.fails || !slices.Equal(requests, test.requests) {
				t.Errorf("created: %t, %v, by %q; want %t by %q", created, err, requests, test.created, test.requests)
			}
			if test.exists != b.notBefore.Equal(time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)) {
				t.Errorf("requests count from %s on", b.notBefore)
			}
			if test.fails && !apierrors.IsTooManyRequests(err) {
				t.Errorf("the reason is lost: %v", err)
			}
			if is := slices.Equal(events, []string{fleet.EventManagedClusterCreated}); is != test.created {
				t.Errorf("events %q", events)
			}
			cluster := &clusterv1.ManagedCluster{}
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(existing), cluster); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if test.exists && cluster.Labels["of"] != "hub" {
				t.Errorf("the cluster was changed: %v", cluster)
			}
		})
	}
}
