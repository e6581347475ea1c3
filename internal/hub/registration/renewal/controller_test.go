package renewal_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"regexp"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/renewal"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// created is when the agent requests.
var created = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

// renewalOf is a request of the agent a1 of the cluster c1 for its own identity.
func renewalOf(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const user = "system:open-cluster-management:c1:a1"
	subject := pkix.Name{CommonName: user, Organization: []string{"system:open-cluster-management:c1",
		"system:open-cluster-management:managed-clusters"}}
	request, err := certutil.MakeCSR(key, &subject, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "c1-x", CreationTimestamp: metav1.NewTime(created),
			Labels: map[string]string{"open-cluster-management.io/cluster-name": "c1"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Username: user, SignerName: "kubernetes.io/kube-apiserver-client",
			Usages:  []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"},
			Request: request,
		},
	}
}

// RG-15: whoever may renew gets a new certificate only for a cluster that is there and accepted, and it is said why not.
func TestRenewal(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, authorizationv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := func(accepted bool) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
			Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted}}
	}
	since := func(notBefore time.Time) *clusterv1.ManagedCluster {
		c := cluster(true)
		c.Annotations = map[string]string{"capstan.io/credentials-not-before": notBefore.Format(time.RFC3339)}
		return c
	}
	for name, test := range map[string]struct {
		cluster  *clusterv1.ManagedCluster
		mayRenew bool
		approved bool
		event    string
	}{
		"accepted, since before": {since(created), true, true, "Normal ManagedClusterCSRAutoApproved"},
		"accepted, and newer": {since(created.Add(time.Second)), true, false,
			"Warning ManagedClusterRenewalWithheld The request stays as it is: it is older than the certificates that hold for ManagedCluster c1"},
		"accepted":                    {cluster(true), true, true, "Normal ManagedClusterCSRAutoApproved"},
		"accepted, without the right": {cluster(true), false, false, ""},
		"not accepted, with a right": {cluster(false), true, false,
			"Warning ManagedClusterRenewalWithheld ManagedCluster c1 does not exist or is not accepted"},
		"not there, with a right": {nil, true, false,
			"Warning ManagedClusterRenewalWithheld ManagedCluster c1 does not exist or is not accepted"},
		"not there, and without rights": {nil, false, false, "Warning ManagedClusterRenewalWithheld"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := renewalOf(t)
			objects := []client.Object{csr}
			if test.cluster != nil {
				objects = append(objects, test.cluster)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(csr).
				WithInterceptorFuncs(interceptor.Funcs{
					Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
						review, ok := o.(*authorizationv1.SubjectAccessReview)
						if !ok {
							return c.Create(ctx, o, opts...)
						}
						review.Status.Allowed = test.mayRenew
						return nil
					},
					SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
						return c.Status().Update(ctx, o)
					},
				}).Build()
			recorder := events.NewFakeRecorder(10)
			controller := renewal.New(c, recorder, renewal.Options{Clock: clock.RealClock{}})
			if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil || signingrequest.Decided(csr) != test.approved {
				t.Errorf("decided: %v, error %v", csr.Status.Conditions, err)
			}
			var event string
			select {
			case event = <-recorder.Events:
			default:
			}
			if (event == "") != (test.event == "") || !strings.HasPrefix(event, test.event) {
				t.Errorf("event %q, want %q", event, test.event)
			}
			accepts := regexp.MustCompile(`capstan accept --clusters ([a-z0-9-]+)`).FindStringSubmatch(event)
			if accepts == nil || test.cluster == nil || !test.mayRenew {
				return
			}
			advised := &clusterv1.ManagedCluster{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: accepts[1]}, advised); err != nil {
				t.Fatal(err)
			}
			advised.Spec.HubAcceptsClient = true
			if err := c.Update(t.Context(), advised); err != nil {
				t.Fatal(err)
			}
			if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil || !signingrequest.Decided(csr) {
				t.Errorf("after the advice: decided %v, error %v", csr.Status.Conditions, err)
			}
		})
	}
}

// RG-51: an agent renews by the gRPC server, too: its name is in an annotation, which counts in requests of the server alone.
func TestRenewalByGRPC(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, authorizationv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	const agent, server = "system:open-cluster-management:c1:a1", "system:serviceaccount:hub:grpc-server-sa"
	for name, test := range map[string]struct {
		requester, says string
		approved        bool
	}{
		"by the server":                {server, agent, true},
		"by the server, of another":    {server, "system:open-cluster-management:c1:a2", false},
		"by the server, of nobody":     {server, "", false},
		"by who says so":               {"system:open-cluster-management:c2:a1", agent, false},
		"by the server of another hub": {"system:serviceaccount:other:grpc-server-sa", agent, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := renewalOf(t)
			csr.Spec.SignerName, csr.Spec.Username = "open-cluster-management.io/grpc", test.requester
			csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": test.says}
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
				Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(csr, cluster).WithStatusSubresource(csr).
				WithInterceptorFuncs(interceptor.Funcs{
					Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
						if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
							review.Status.Allowed = review.Spec.User == agent && len(review.Spec.Groups) == 2
						}
						return nil
					},
					SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
						return c.Status().Update(ctx, o)
					},
				}).Build()
			controller := renewal.New(c, events.NewFakeRecorder(10),
				renewal.Options{Clock: clock.RealClock{}, GRPC: signingrequest.GRPC{Server: server}})
			if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil || signingrequest.Decided(csr) != test.approved {
				t.Errorf("decided: %v, error %v", csr.Status.Conditions, err)
			}
		})
	}
}
