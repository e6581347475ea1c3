package works

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// grpcAgent is a client of the server, for a cluster.
type grpcAgent struct {
	pb.CloudEventServiceClient
	cluster, token string
}

// connectByGRPC returns an agent with a token, a certificate, or neither.
func connectByGRPC(t *testing.T, h *framework.GRPCHub, cluster, token string, certificates ...tls.Certificate) *grpcAgent {
	t.Helper()
	connection, err := grpc.NewClient(h.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: h.Roots, Certificates: certificates})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &grpcAgent{pb.NewCloudEventServiceClient(connection), cluster, token}
}

func (a *grpcAgent) context(ctx context.Context) context.Context {
	if a.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token)
}

func (a *grpcAgent) send(t *testing.T, event *cloudevents.Event) error {
	t.Helper()
	message, err := event.ToProto()
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Publish(a.context(t.Context()), &pb.PublishRequest{Event: message}, grpc.WaitForReady(true))
	return cloudevents.APIError(err)
}

// write publishes an object.
func (a *grpcAgent) write(t *testing.T, dataType cloudevents.DataType, sub cloudevents.SubResource, action cloudevents.Action,
	object resource.Object) error {
	t.Helper()
	event, err := resource.Encode(a.cluster, cloudevents.Type{DataType: dataType, SubResource: sub, Action: action}, a.cluster, object,
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a.send(t, event)
}

// inbox has what an agent receives of a data type.
type inbox struct {
	mu     sync.Mutex
	events []*cloudevents.Event
	err    error
}

// subscribe subscribes, and asks for everything.
func (a *grpcAgent) subscribe(t *testing.T, dataType cloudevents.DataType) *inbox {
	t.Helper()
	stream, err := a.Subscribe(a.context(t.Context()), &pb.SubscriptionRequest{ClusterName: a.cluster, DataType: dataType.String()},
		grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if header, err := stream.Header(); err != nil || len(header.Get("subscription-id")) == 0 {
		_, err := stream.Recv()
		t.Fatalf("no subscription to %s: %v", dataType, err)
	}
	in := &inbox{}
	go in.receive(stream)
	if dataType == cloudevents.TokenRequests {
		return in
	}
	event := cloudevents.New(a.cluster, cloudevents.Type{DataType: dataType, SubResource: cloudevents.Spec, Action: cloudevents.Resync},
		time.Now())
	event.Extensions[cloudevents.ExtensionClusterName] = a.cluster
	if err := event.SetData(cloudevents.ResourceVersions{Versions: []cloudevents.ResourceVersion{}}); err != nil {
		t.Fatal(err)
	}
	if err := a.send(t, event); err != nil {
		t.Fatal(err)
	}
	return in
}

func (in *inbox) receive(stream grpc.ServerStreamingClient[pb.CloudEvent]) {
	for {
		message, err := stream.Recv()
		var event *cloudevents.Event
		if err == nil {
			event, err = cloudevents.FromProto(message)
		}
		in.mu.Lock()
		if err != nil {
			in.err = err
			in.mu.Unlock()
			return
		}
		in.events = append(in.events, event)
		in.mu.Unlock()
	}
}

// await waits for an event for which check returns nil.
func (in *inbox) await(t *testing.T, check func(*cloudevents.Event) error) *cloudevents.Event {
	t.Helper()
	var found *cloudevents.Event
	env.Eventually(t, func(context.Context) error {
		in.mu.Lock()
		defer in.mu.Unlock()
		err := fmt.Errorf("no event; the subscription: %w", in.err)
		for _, event := range in.events {
			if err = check(event); err == nil {
				found = event
				return nil
			}
		}
		return err
	})
	return found
}

// RG-51 GR-01 GR-06 GR-07 GR-08 GR-09: a cluster joins, works and reports through the gRPC server alone, with the rights that its agent
// has, and with no others; when it is denied, what it has open ends.
func TestGRPC(t *testing.T) {
	t.Parallel()
	const cluster = "grpc1"
	h := framework.StartGRPCHub(t)
	c := h.Client(t)
	joining := connectByGRPC(t, h, cluster, h.BootstrapToken(t))
	if err := joining.write(t, cloudevents.ManagedClusters, cloudevents.Spec, cloudevents.Create,
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}); err != nil {
		t.Fatal(err)
	}
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(mc), mc); err != nil {
		t.Fatal(err)
	}
	if by := mc.Annotations[fleet.AnnotationRequestedBy]; !strings.HasPrefix(by, "system:bootstrap:") || mc.Spec.HubAcceptsClient {
		t.Errorf("the cluster is requested by %q, accepted: %t", by, mc.Spec.HubAcceptsClient)
	}
	err := joining.write(t, cloudevents.ManagedClusters, cloudevents.Spec, cloudevents.Create, mc)
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	certificate := registerByGRPC(t, h, joining)

	agent := connectByGRPC(t, h, cluster, "", certificate)
	testGRPCWorks(t, c, agent)
	testGRPCReports(t, c, agent)
	testGRPCRefusals(t, h, agent, certificate)
	works := agent.subscribe(t, cloudevents.ManifestBundles)
	framework.MergePatch(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, `{"spec":{"hubAcceptsClient":false}}`)
	env.Eventually(t, func(context.Context) error {
		works.mu.Lock()
		defer works.mu.Unlock()
		if code := status.Code(works.err); code != codes.PermissionDenied && code != codes.Unauthenticated {
			return fmt.Errorf("the subscription of a denied cluster: %w", works.err)
		}
		return nil
	})
}

// registerByGRPC gets a certificate for the agent, whose request an administrator approves, along with the cluster.
func registerByGRPC(t *testing.T, h *framework.GRPCHub, joining *grpcAgent) tls.Certificate {
	t.Helper()
	c := h.Client(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: fleet.ClusterUser(joining.cluster, "agent"), Organization: fleet.ClusterGroups(joining.cluster)}}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := joining.write(t, cloudevents.SigningRequests, cloudevents.Spec, cloudevents.Create, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: fleet.ClusterCSRGenerateName(joining.cluster),
			Labels: map[string]string{fleet.LabelClusterName: joining.cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: fleet.SignerGRPC,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
				certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
	}); err != nil {
		t.Fatal(err)
	}
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), requests, client.MatchingLabels{fleet.LabelClusterName: joining.cluster}); err != nil ||
		len(requests.Items) != 1 {
		t.Fatalf("%d requests, %v", len(requests.Items), err)
	}
	csr := &requests.Items[0]
	if user := csr.Annotations[fleet.AnnotationCSRUser]; !strings.HasPrefix(user, "system:bootstrap:") {
		t.Errorf("the request is of %q", user)
	}
	inbox := joining.subscribe(t, cloudevents.SigningRequests)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
		Status: corev1.ConditionTrue, Reason: "Test", Message: "it may"}}
	if err := c.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	framework.MergePatch(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: joining.cluster}},
		`{"spec":{"hubAcceptsClient":true}}`)
	signed := &certificatesv1.CertificateSigningRequest{}
	inbox.await(t, func(event *cloudevents.Event) error {
		if err := resource.Decode(event, signed); err != nil {
			return err
		}
		if len(signed.Status.Certificate) == 0 {
			return fmt.Errorf("the request has no certificate: %v", signed.Status.Conditions)
		}
		return nil
	})
	block, _ := pem.Decode(signed.Status.Certificate)
	framework.AwaitObject(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: joining.cluster}},
		func(mc *clusterv1.ManagedCluster) error {
			if !meta.IsStatusConditionTrue(mc.Status.Conditions, fleet.ConditionHubAccepted) {
				return fmt.Errorf("%v", mc.Status.Conditions)
			}
			return nil
		})
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// testGRPCWorks: a work gets to the agent, its status to the hub, and its deletion waits for the agent.
func testGRPCWorks(t *testing.T, c client.Client, agent *grpcAgent) {
	t.Helper()
	works := agent.subscribe(t, cloudevents.ManifestBundles)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: agent.cluster, Name: "w"}}
	work.Spec.Workload.Manifests = framework.RawManifests(framework.ConfigMap("default", "w", "v"))
	framework.Create(t, c, work)
	var received *workv1.ManifestWork
	works.await(t, func(event *cloudevents.Event) (err error) {
		received, err = manifestbundle.DecodeSpec(event)
		return err
	})
	report := func(condition string) error {
		t.Helper()
		received.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Test",
			LastTransitionTime: metav1.Now()}}
		event, err := manifestbundle.EncodeStatus(agent.cluster, cloudevents.Update, received, "1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return agent.send(t, event)
	}
	if err := report("Applied"); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, c, work, func(w *workv1.ManifestWork) error {
		if !meta.IsStatusConditionTrue(w.Status.Conditions, "Applied") || len(w.Finalizers) != 1 {
			return fmt.Errorf("%v, finalizers %v", w.Status.Conditions, w.Finalizers)
		}
		return nil
	})
	if err := c.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	works.await(t, func(event *cloudevents.Event) error {
		if event.Extensions[cloudevents.ExtensionDeletedAt] == nil {
			return fmt.Errorf("%s", event.Type)
		}
		return nil
	})
	if err := report("Deleted"); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, work)
}

// testGRPCReports: lease, status of the cluster and of an add-on, events and tokens.
func testGRPCReports(t *testing.T, c client.Client, agent *grpcAgent) {
	t.Helper()
	now := metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: agent.cluster, Name: fleet.ClusterNamespaceLease},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: agent.cluster}, Status: clusterv1.ManagedClusterStatus{
		Version: clusterv1.ManagedClusterVersion{Kubernetes: "v1.37.0"}}}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: agent.cluster, Name: "a"}}
	framework.Create(t, c, addOn.DeepCopy(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: agent.cluster, Name: "a-agent"}})
	addOn.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.Now()}}
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: agent.cluster, Name: "e"}, EventTime: now, Reason: "Test",
		Action: "Test",
		Type:   "Normal", ReportingController: "test", ReportingInstance: "test",
		Regarding: corev1.ObjectReference{Kind: "ManagedCluster", Name: agent.cluster, Namespace: agent.cluster}}
	for _, write := range []struct {
		dataType cloudevents.DataType
		sub      cloudevents.SubResource
		action   cloudevents.Action
		object   resource.Object
	}{
		{cloudevents.Leases, cloudevents.Spec, cloudevents.Update, lease},
		{cloudevents.ManagedClusters, cloudevents.Status, cloudevents.Update, mc},
		{cloudevents.AddOnsOfBetaAPI, cloudevents.Status, cloudevents.Update, addOn},
		{cloudevents.Events, cloudevents.Spec, cloudevents.Create, event},
	} {
		if err := agent.write(t, write.dataType, write.sub, write.action, write.object); err != nil {
			t.Errorf("%s of %s: %v", write.action, write.dataType, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(write.object), write.object); err != nil {
			t.Errorf("%s: %v", write.dataType, err)
		}
	}
	if lease.Spec.RenewTime == nil || mc.Status.Version.Kubernetes != "v1.37.0" || !meta.IsStatusConditionTrue(addOn.Status.Conditions,
		"Available") ||
		!meta.IsStatusConditionTrue(mc.Status.Conditions, fleet.ConditionHubAccepted) {
		t.Errorf("lease %+v, cluster %+v, add-on %+v", lease.Spec, mc.Status, addOn.Status)
	}
	testGRPCTokens(t, c, agent)
}

// testGRPCTokens: the hub has given the agent the right to tokens of one account.
func testGRPCTokens(t *testing.T, c client.Client, agent *grpcAgent) {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: agent.cluster, Name: "token"}
	framework.Create(t, c, &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"a-agent"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{fleet.VerbSubscribe}},
	}}, &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(agent.cluster)}}})
	tokens := agent.subscribe(t, cloudevents.TokenRequests)
	request := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: agent.cluster, Name: "a-agent", UID: "request"}}
	if err := agent.write(t, cloudevents.TokenRequests, cloudevents.Spec, cloudevents.Create, request); err != nil {
		t.Fatal(err)
	}
	tokens.await(t, func(event *cloudevents.Event) error {
		answer := &authenticationv1.TokenRequest{}
		if err := resource.Decode(event, answer); err != nil {
			return err
		}
		if answer.UID != "request" || answer.Status.Token == "" {
			return fmt.Errorf("the answer to %q has a token of %d bytes", answer.UID, len(answer.Status.Token))
		}
		return nil
	})
	request.Name = "default"
	if err := agent.write(t, cloudevents.TokenRequests, cloudevents.Spec, cloudevents.Create,
		request); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a token of another account: %v", err)
	}
}

// testGRPCRefusals: the agent of one cluster has no rights for another, and nobody has any without a credential.
func testGRPCRefusals(t *testing.T, h *framework.GRPCHub, agent *grpcAgent, certificate tls.Certificate) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fleet.ClusterNamespaceLease}}
	if err := agent.write(t, cloudevents.Leases, cloudevents.Spec, cloudevents.Update, lease); !apierrors.IsForbidden(err) {
		t.Errorf("a lease of another cluster, in the data: %v", err)
	}
	for name, test := range map[string]struct {
		agent *grpcAgent
		want  codes.Code
	}{
		"another cluster": {connectByGRPC(t, h, "other", "", certificate), codes.PermissionDenied},
		"no credential":   {connectByGRPC(t, h, agent.cluster, ""), codes.Unauthenticated},
		"a wrong token":   {connectByGRPC(t, h, agent.cluster, "nothing"), codes.Unauthenticated},
	} {
		lease.Namespace = test.agent.cluster
		if err := test.agent.write(t, cloudevents.Leases, cloudevents.Spec, cloudevents.Update, lease); status.Code(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
