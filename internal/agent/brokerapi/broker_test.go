package brokerapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/broker/resources"
	"github.com/capstan-io/capstan/internal/cloudevents/brokerclient"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// agentUser is as whom the agent of these tests calls.
const agentUser = "system:open-cluster-management:cluster1:agent1"

type allTokens struct {
	authenticationclient.TokenReviewInterface
}

func (allTokens) Create(_ context.Context, review *authenticationv1.TokenReview,
	_ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	review.Status.Authenticated, review.Status.User.Username = true, agentUser
	return review, nil
}

type allRights struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (allRights) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (
	*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

// realBroker is the broker of a hub in front of an API in memory.
type realBroker struct {
	client.Client
	cache.Cache
	mu       sync.Mutex
	handlers map[reflect.Type][]toolscache.ResourceEventHandler
	address  string
	ca       []byte
}

// informer passes on the events of the API.
type informer struct {
	cache.Informer
	broker *realBroker
	kind   reflect.Type
}

// GetInformer implements cache.Informers.
func (b *realBroker) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{broker: b, kind: reflect.TypeOf(o)}, nil
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.broker.mu.Lock()
	defer i.broker.mu.Unlock()
	i.broker.handlers[i.kind] = append(i.broker.handlers[i.kind], handler)
	return nil, nil
}

// notify sends a change. There is no before of what was added, and no now of what was deleted.
func (b *realBroker) notify(before, now client.Object) {
	o := now
	if now == nil {
		o = before
	}
	b.mu.Lock()
	handlers := b.handlers[reflect.TypeOf(o)]
	b.mu.Unlock()
	for _, handler := range handlers {
		switch {
		case now == nil:
			handler.OnDelete(before)
		case before == nil:
			handler.OnAdd(now, false)
		default:
			handler.OnUpdate(before, now)
		}
	}
}

// notifying does something to an object, and sends the change.
func (b *realBroker) notifying(ctx context.Context, c client.Reader, o client.Object, do func() error) error {
	read := func() client.Object {
		found, _ := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), found); err != nil {
			return nil
		}
		return found
	}
	before := read()
	if err := do(); err != nil {
		return err
	}
	if now := read(); now != nil || before != nil {
		b.notify(before, now)
	}
	return nil
}

func startBroker(t *testing.T) *realBroker {
	t.Helper()
	b := &realBroker{handlers: map[reflect.Type][]toolscache.ResourceEventHandler{}}
	b.Client = fake.NewClientBuilder().WithScheme(resources.NewScheme()).
		WithStatusSubresource(&clusterv1.ManagedCluster{}, &workv1.ManifestWork{}, &addonv1beta1.ManagedClusterAddOn{}).
		WithIndex(&workv1.ManifestWork{}, "metadata.uid", func(o client.Object) []string { return []string{string(o.GetUID())} }).
		WithIndex(&clusterv1.ManagedCluster{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				o.SetUID(types.UID(uuid.NewString()))
				return b.notifying(ctx, c, o, func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return b.notifying(ctx, c, o, func() error { return c.Update(ctx, o, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return b.notifying(ctx, c, o, func() error { return c.Delete(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return b.notifying(ctx, c, o, func() error { return c.Patch(ctx, o, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				return b.notifying(ctx, c, o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		}).Build()
	events := broker.New(broker.Options{Clock: clock.RealClock{}, Access: access.New(access.Options{
		Tokens: allTokens{}, Access: allRights{}, ClientCAs: x509.NewCertPool, Clock: clock.RealClock{},
		NotBefore: func(context.Context, string) (time.Time, error) { return time.Time{}, nil },
	})})
	_, services := resources.All(resources.Options{Cache: b, Client: b.Client, Reader: b.Client, Notify: events.Notify, Review: events.Review})
	events.Serve(services...)
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address, b.ca = listener.Addr().String(), certificate
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	pb.RegisterCloudEventServiceServer(server, events)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return b
}

// Get implements client.Reader, of the API and of the cache.
func (b *realBroker) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return b.Client.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (b *realBroker) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return b.Client.List(ctx, list, opts...)
}

func (b *realBroker) api(t *testing.T) (*API, client.WithWatch) {
	t.Helper()
	connection, err := brokerclient.New(t.Context(), fleet.AgentUserAgent, &grpcconfig.Config{URL: b.address, Token: "t", CAData: b.ca})
	if err != nil {
		t.Fatal(err)
	}
	a := New(t.Context(), Options{Broker: connection, Address: b.address, Cluster: testCluster, Source: testCluster, Clock: clock.RealClock{}})
	c, err := hubclient.New(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

// GR-11 CE-03 CE-05 CE-13: with the broker of the hub, works reach the cache of an agent, their statuses and the end of a work reach the
// hub.
func TestWorkWithBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	first := newWork("a")
	if err := b.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	a, _ := b.api(t)
	hub, seen := beginCache(t, a)
	eventually(t, "the work is in the cache", func() bool { return seen.has(map[string]int64{"a": 1}) })
	c := hub.GetClient()
	work := &workv1.ManifestWork{}
	key := client.ObjectKeyFromObject(first)
	if err := c.Get(t.Context(), key, work); err != nil {
		t.Fatal(err)
	}
	if err := patch.AddFinalizer(t.Context(), c, work, finalizer); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: fleet.ConditionApplied,
		Status: metav1.ConditionTrue, Reason: "Done"})
	if err := c.Status().Update(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	on := &workv1.ManifestWork{}
	if err := b.Get(t.Context(), key, on); err != nil || len(on.Finalizers) != 1 ||
		!meta.IsStatusConditionTrue(on.Status.Conditions, fleet.ConditionApplied) {
		t.Errorf("on the hub: %+v, %v", on, err)
	}
	// The cache has it, too, before anything else happens.
	if err := c.Get(t.Context(), key, work); err != nil || !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied) {
		t.Errorf("in the cache: %+v, %v", work, err)
	}
	if err := b.Create(t.Context(), newWork("b")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second work is in the cache", func() bool { return seen.has(map[string]int64{"a": 1, "b": 1}) })
	if err := b.Delete(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the work is being deleted", func() bool {
		err := c.Get(t.Context(), key, work)
		return err == nil && work.DeletionTimestamp != nil
	})
	if err := patch.RemoveFinalizer(t.Context(), c, work, finalizer); err != nil {
		t.Fatal(err)
	}
	if err := b.Get(t.Context(), key, on); !apierrors.IsNotFound(err) {
		t.Errorf("on the hub: %v", err)
	}
	eventually(t, "the work is gone", func() bool { return seen.has(map[string]int64{"b": 1}) })
	if n := seen.count("added a"); n != 1 {
		t.Errorf("the work was added %d times", n)
	}
}

// RG-51 GR-08: with the broker of the hub, an agent registers and reports.
func TestRegistrationWithBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	_, c := b.api(t)
	cluster := newCluster()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); !apierrors.IsNotFound(err) {
		t.Fatalf("got %v", err)
	}
	cluster = newCluster()
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster1-",
		Labels: map[string]string{fleet.LabelClusterName: testCluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: fleet.SignerGRPC}}
	if err := c.Create(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is as the hub made it", func() bool {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr)
		return err == nil && csr.Annotations[fleet.AnnotationCSRUser] == agentUser
	})
	for _, version := range []string{"v1", "v2", "v3"} {
		// The cluster as the hub made it may come at any time.
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			now := newCluster()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
				return err
			}
			before := now.DeepCopy()
			now.Status.Version.Kubernetes = version
			_, err := patch.Status(t.Context(), c, now, before)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", version, err)
		}
		on := newCluster()
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(on), on); err != nil || on.Status.Version.Kubernetes != version {
			t.Errorf("on the hub: %+v, %v", on.Status, err)
		}
	}
}
