package bootstrap

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
)

// RG-05 RG-12: an agent whose ManagedCluster is deleted while its certificate request is undecided creates it again, with another request.
// Else it goes on to wait with the one that it has, also when its bootstrap credential has expired.
func TestDeletedWhileItsRequestIsUndecided(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deleted, expired bool
		requests         int
	}{
		"deleted":            {deleted: true, requests: 2},
		"still there":        {requests: 1},
		"expired credential": {expired: true, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
				hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(cluster).Build()
				reached := interceptor.NewClient(hub, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if test.expired {
							return apierrors.NewUnauthorized("expired")
						}
						return c.Get(ctx, key, o, opts...)
					},
				})
				b := &Bootstrap{Identity: identity.Identity{Cluster: "cluster1", Agent: "agent1"}, Store: &hubkubeconfig.Store{Dir: t.TempDir()},
					Record: func(string, string, string, string, ...any) {}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, _, err := b.request(ctx, &clientcert.Requester{Hub: reached, Keys: b.Store, Identity: b.Identity, NewCluster: true})
					ended <- err
				}()
				synctest.Wait()
				if test.deleted {
					if err := hub.Delete(ctx, cluster); err != nil {
						t.Fatal(err)
					}
				}
				<-time.After(4*undecidedCheck + undecidedCheck/2)
				synctest.Wait()
				if err := hub.Get(ctx, client.ObjectKeyFromObject(cluster), &clusterv1.ManagedCluster{}); err != nil {
					t.Error(err)
				}
				made := &certificatesv1.CertificateSigningRequestList{}
				if err := hub.List(ctx, made); err != nil || len(made.Items) != test.requests {
					t.Errorf("%d requests of a certificate, want %d; %v", len(made.Items), test.requests, err)
				}
				select {
				case err := <-ended:
					t.Errorf("the agent waits no more: %v", err)
				default:
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("ended with %v", err)
					}
				}
			})
		})
	}
}
