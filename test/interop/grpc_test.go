package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
	ocmaddonv1beta1 "open-cluster-management.io/api/addon/v1beta1"
	ocmclusterv1 "open-cluster-management.io/api/cluster/v1"
	addonclient "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/addon/v1beta1"
	clusterclient "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/cluster"
	csrclient "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/csr"
	eventclient "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/event"
	leaseclient "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/lease"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/options"
	accountclient "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/serviceaccount"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/store"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic"
	sdkgrpc "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// grpcHub is a hub with a gRPC server, for the clients of the SDK that the agent of a cluster has.
type grpcHub struct {
	*framework.GRPCHub
	cluster string
	dir     string
}

// config is what the SDK reads from a configuration with these lines.
func (h *grpcHub) config(t *testing.T, lines string) *sdkgrpc.GRPCOptions {
	t.Helper()
	path := filepath.Join(h.dir, "config.yaml")
	writeFile(t, path, fmt.Sprintf("url: %s\ncaFile: %s\n%s", h.Address, h.CAFile, lines))
	loaded, err := sdkgrpc.BuildGRPCOptionsFromFlags(path)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// grpcClient are the options of a client for one kind of object, with a store of its own.
func grpcClient[T generic.ResourceObject](h *grpcHub, config *sdkgrpc.GRPCOptions,
	codec generic.Codec[T]) *options.GenericClientOptions[T] {
	return options.NewGenericClientOptions(config, codec, h.cluster).WithClusterName(h.cluster).
		WithClientWatcherStore(store.NewSimpleStore[T]())
}

// RG-51 CE-01 CE-09 GR-03 GR-06 GR-08 GR-09 GR-11: an agent with the clients of the SDK registers with the gRPC server of a hub, gets its
// works, and writes what it may: its lease, its status, events, the status of its add-ons, and tokens.
func TestSDKAgentByGRPC(t *testing.T) {
	t.Parallel()
	h := &grpcHub{framework.StartGRPCHub(t), "sdk1", t.TempDir()}
	hub := h.Client(t)
	h.register(t)
	config := h.config(t, fmt.Sprintf("clientCertFile: %[1]s/tls.crt\nclientKeyFile: %[1]s/tls.key\n", h.dir))

	work := newWork(h.cluster, "web", "1")
	framework.Create(t, hub, work)
	agent := startSDKAgent(t, config, h.cluster)
	agent.await(t, "web", hasValue("1"))
	agent.report(t, "web", fleet.ConditionApplied)
	awaitCondition(t, hub, work, fleet.ConditionApplied)
	set(t, hub, work, "2")
	agent.await(t, "web", hasValue("2"))
	if err := hub.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	agent.cleanUp(t, "web")
	awaitGone(t, hub, work)

	h.reportStatus(t, config)
	h.reportAddOn(t, config)
	h.renewLease(t, config)
	h.recordEvent(t, config)
	h.requestToken(t, config)
}

// register asks for a cluster and a certificate with the token of the hub, which an administrator grants, and writes the certificate.
func (h *grpcHub) register(t *testing.T) {
	t.Helper()
	hub := h.Client(t)
	bootstrap := h.config(t, "token: "+h.BootstrapToken(t)+"\n")
	clusters, err := clusterclient.NewClientHolder(t.Context(),
		grpcClient(h, bootstrap, clusterclient.NewManagedClusterCodec()).WithSubscription(false))
	if err != nil {
		t.Fatal(err)
	}
	asked := &ocmclusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: h.cluster}}
	if _, err := clusters.ManagedClusters().Create(t.Context(), asked, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clusters.ManagedClusters().Create(t.Context(), asked, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("asked for again: %v", err)
	}
	requests, err := csrclient.NewAgentClientHolder(t.Context(), grpcClient(h, bootstrap, csrclient.NewCSRCodec()).
		WithClientWatcherStore(store.NewAgentInformerWatcherStore[*certificatesv1.CertificateSigningRequest]()))
	if err != nil {
		t.Fatal(err)
	}
	go requests.Informer().RunWithContext(t.Context())
	h.awaitSubscription(t, hub, requests)
	key := newKey(t)
	request, err := requests.Clients().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: fleet.ClusterCSRGenerateName(h.cluster),
			Labels: map[string]string{fleet.LabelClusterName: h.cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: fleet.SignerGRPC, Usages: []certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
			Request: signingRequest(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: fleet.ClusterUser(h.cluster, "agent"),
				Organization: fleet.ClusterGroups(h.cluster)}}, key)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.grant(t, hub, request.Name)
	env.Eventually(t, func(ctx context.Context) error {
		found, err := requests.Clients().Get(ctx, request.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(found.Status.Certificate) == 0 {
			return fmt.Errorf("the request has no certificate: %+v", found.Status)
		}
		request = found
		return nil
	})
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(h.dir, "tls.crt"), string(request.Status.Certificate))
	writeFile(t, filepath.Join(h.dir, "tls.key"), string(encoded))
}

// awaitSubscription waits until the client knows what is on the hub: it asks for nothing later that it has missed before.
func (h *grpcHub) awaitSubscription(t *testing.T, hub client.Client, requests *csrclient.ClientHolder) {
	t.Helper()
	earlier := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "earlier", Labels: map[string]string{fleet.LabelClusterName: h.cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/none", Usages: []certificatesv1.KeyUsage{
			certificatesv1.UsageClientAuth}, Request: signingRequest(t, &x509.CertificateRequest{}, newKey(t))}}
	framework.Create(t, hub, earlier)
	env.Eventually(t, func(ctx context.Context) error {
		_, err := requests.Clients().Get(ctx, earlier.Name, metav1.GetOptions{})
		return err
	})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signingRequest is a request in PEM.
func signingRequest(t *testing.T, template *x509.CertificateRequest, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// grant accepts the cluster and approves its request, which the SDK has named.
func (h *grpcHub) grant(t *testing.T, hub client.Client, request string) {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := hub.Get(t.Context(), client.ObjectKey{Name: request}, csr); err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
		Status: corev1.ConditionTrue, Reason: "Test", Message: "it may"}}
	if err := hub.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: h.cluster}}
	framework.MergePatch(t, hub, cluster, `{"spec":{"hubAcceptsClient":true}}`)
	framework.AwaitObject(t, hub, cluster, func(cluster *clusterv1.ManagedCluster) error {
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted) {
			return fmt.Errorf("%v", cluster.Status.Conditions)
		}
		return nil
	})
}

func (h *grpcHub) reportStatus(t *testing.T, config *sdkgrpc.GRPCOptions) {
	t.Helper()
	clusters, err := clusterclient.NewClientHolder(t.Context(), grpcClient(h, config, clusterclient.NewManagedClusterCodec()))
	if err != nil {
		t.Fatal(err)
	}
	var before *ocmclusterv1.ManagedCluster
	env.Eventually(t, func(ctx context.Context) (err error) {
		before, err = clusters.ManagedClusters().Get(ctx, h.cluster, metav1.GetOptions{})
		return err
	})
	after := before.DeepCopy()
	after.Status.Version.Kubernetes = "v1.37.0"
	patch, err := mergePatch(before, after)
	if err != nil {
		t.Fatal(err)
	}
	_, err = clusters.ManagedClusters().Patch(t.Context(), h.cluster, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, h.Client(t), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: h.cluster}},
		func(cluster *clusterv1.ManagedCluster) error {
			if cluster.Status.Version.Kubernetes != "v1.37.0" || !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted) {
				return fmt.Errorf("%+v", cluster.Status)
			}
			return nil
		})
}

func (h *grpcHub) reportAddOn(t *testing.T, config *sdkgrpc.GRPCOptions) {
	t.Helper()
	onHub := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: h.cluster, Name: "hello"}}
	framework.Create(t, h.Client(t), onHub)
	options := grpcClient(h, config, addonclient.NewManagedClusterAddOnCodec())
	events, err := options.AgentClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addOns := addonclient.NewManagedClusterAddOnClient(events, options.WatcherStore()).Namespace(h.cluster)
	env.Eventually(t, func(ctx context.Context) error {
		before, err := addOns.Get(ctx, onHub.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		after := before.DeepCopy()
		meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{Type: ocmaddonv1beta1.ManagedClusterAddOnConditionAvailable,
			Status: metav1.ConditionTrue, Reason: "Test"})
		patch, err := mergePatch(before, after)
		if err != nil {
			return err
		}
		_, err = addOns.Patch(ctx, onHub.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	framework.AwaitObject(t, h.Client(t), onHub, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if !meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable) {
			return fmt.Errorf("%v", addOn.Status.Conditions)
		}
		return nil
	})
}

func (h *grpcHub) renewLease(t *testing.T, config *sdkgrpc.GRPCOptions) {
	t.Helper()
	leases, err := leaseclient.NewLeaseClient(t.Context(), grpcClient(h, config, leaseclient.NewLeaseCodec()), h.cluster)
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	env.Eventually(t, func(ctx context.Context) error {
		lease, err := leases.Get(ctx, fleet.ClusterNamespaceLease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: h.cluster, Name: fleet.ClusterNamespaceLease}}
	framework.AwaitObject(t, h.Client(t), lease, func(lease *coordinationv1.Lease) error {
		if lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.Equal(&now) {
			return fmt.Errorf("renewed at %v, want %v", lease.Spec.RenewTime, now)
		}
		return nil
	})
}

func (h *grpcHub) recordEvent(t *testing.T, config *sdkgrpc.GRPCOptions) {
	t.Helper()
	events, err := eventclient.NewClientHolder(t.Context(), grpcClient(h, config, eventclient.NewEventCodec()).WithSubscription(false))
	if err != nil {
		t.Fatal(err)
	}
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: h.cluster, Name: "e"}, EventTime: metav1.NewMicroTime(time.Now()),
		Reason: "Test", Action: "Test", Type: corev1.EventTypeNormal, ReportingController: "test", ReportingInstance: "test",
		Regarding: corev1.ObjectReference{Kind: "ManagedCluster", Name: h.cluster, Namespace: h.cluster}}
	if _, err := events.Events(h.cluster).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Client(t).Get(t.Context(), client.ObjectKeyFromObject(event), event); err != nil {
		t.Error(err)
	}
}

// requestToken: the hub has given the agent the right to tokens of one account, and to no others.
func (h *grpcHub) requestToken(t *testing.T, config *sdkgrpc.GRPCOptions) {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: h.cluster, Name: "hello-agent"}
	framework.Create(t, h.Client(t), &corev1.ServiceAccount{ObjectMeta: named}, &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{named.Name}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{fleet.VerbSubscribe}},
	}}, &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(h.cluster)}}})
	accounts := accountclient.NewServiceAccountClient(h.cluster, config)
	env.Eventually(t, func(ctx context.Context) error {
		token, err := accounts.CreateToken(ctx, named.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil && token.Status.Token == "" {
			err = errors.New("the answer has no token")
		}
		return err
	})
	if token, err := accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); err == nil {
		t.Errorf("a token of another account, until %s", token.Status.ExpirationTimestamp)
	}
}
