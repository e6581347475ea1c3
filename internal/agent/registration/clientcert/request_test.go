package clientcert_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-06 RG-07: what becomes of a request while the agent cannot reach the hub is found out when it can again. The watch that it
// starts then, without events of what happened before.
func TestDecidedWithoutAWatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens     func(context.Context, client.Client, *certificatesv1.CertificateSigningRequest) error
		certificate string
		err         string
	}{
		"deleted": {func(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
			return hub.Delete(ctx, csr)
		}, "", "was deleted"},
		"issued": {func(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Certificate = []byte("issued")
			return hub.Status().Update(ctx, csr)
		}, "issued", ""},
		"denied": {func(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
			return hub.Status().Update(ctx, csr)
		}, "", "was denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watches := 0
			hub := interceptor.NewClient(newHub(), interceptor.Funcs{
				Watch: func(ctx context.Context, hub client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
					w := watch.NewFake()
					if watches++; watches > 1 {
						return w, nil
					}
					// The first one breaks.
					go func() {
						defer w.Stop()
						list := &certificatesv1.CertificateSigningRequestList{}
						if err := hub.List(ctx, list); err != nil || len(list.Items) != 1 {
							t.Errorf("requests %v, %v", list.Items, err)
							return
						}
						if err := test.happens(ctx, hub, &list.Items[0]); err != nil {
							t.Error(err)
						}
					}()
					return w, nil
				},
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			certificate, _, err := (&clientcert.Requester{Hub: hub, Identity: self}).Request(ctx)
			if string(certificate) != test.certificate || (err == nil) != (test.err == "") || err != nil &&
				!strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v", certificate, err)
			}
		})
	}
}

// RG-06: of a request that it has just made, an agent learns by the watch alone, from its creation on; that of a cluster which is new to
// the hub looks for no earlier one.
func TestRequestsOfARegistration(t *testing.T) {
	t.Parallel()
	for _, isNew := range []bool{false, true} {
		var made []string
		hub := interceptor.NewClient(newHub(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				made = append(made, "list")
				return nil
			},
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				made = append(made, "get")
				return nil
			},
			Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
				made = append(made, "watch from "+(&client.ListOptions{}).ApplyOptions(opts).AsListOptions().ResourceVersion)
				w := watch.NewFake()
				go w.Modify(&certificatesv1.CertificateSigningRequest{
					Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("issued")}})
				return w, nil
			},
		})
		certificate, _, err := (&clientcert.Requester{Hub: hub, Identity: self, NewCluster: isNew}).Request(t.Context())
		want := []string{"list", "watch from 1"}
		if isNew {
			want = want[1:]
		}
		if string(certificate) != "issued" || err != nil || !slices.Equal(made, want) {
			t.Errorf("new %t: %q, %v after %q, want %q", isNew, certificate, err, made, want)
		}
	}
}

// RG-06: where the hub does not know any more what has happened since the creation of a request, the agent reads it.
func TestExpiredWatchOfARequest(t *testing.T) {
	t.Parallel()
	watches := 0
	hub := interceptor.NewClient(newHub(), interceptor.Funcs{
		Watch: func(ctx context.Context, hub client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
			if watches++; watches > 1 {
				return watch.NewFake(), nil
			}
			list := &certificatesv1.CertificateSigningRequestList{}
			if err := hub.List(ctx, list); err != nil || len(list.Items) != 1 {
				return nil, fmt.Errorf("%d requests: %w", len(list.Items), err)
			}
			list.Items[0].Status.Certificate = []byte("issued")
			if err := hub.Status().Update(ctx, &list.Items[0]); err != nil {
				return nil, err
			}
			return nil, apierrors.NewResourceExpired("too old")
		},
	})
	certificate, _, err := (&clientcert.Requester{Hub: hub, Identity: self}).Request(t.Context())
	if string(certificate) != "issued" || err != nil {
		t.Errorf("%q, %v", certificate, err)
	}
}

// RG-07 RG-61: requests that were decided upon, which the hub keeps for a while, do not halt further ones: those of add-ons that were
// installed and of clusters that have joined again and again.
func TestDecidedRequestsDoNotHalt(t *testing.T) {
	t.Parallel()
	condition := func(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestStatus {
		return certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: kind}}}
	}
	issued := condition(certificatesv1.CertificateApproved)
	issued.Certificate = []byte("issued")
	for name, test := range map[string]struct {
		status certificatesv1.CertificateSigningRequestStatus
		halts  bool
	}{
		"undecided": {certificatesv1.CertificateSigningRequestStatus{}, true},
		"approved":  {condition(certificatesv1.CertificateApproved), false},
		"issued":    {issued, false},
		"denied":    {condition(certificatesv1.CertificateDenied), false},
		"failed":    {condition(certificatesv1.CertificateFailed), false},
	} {
		for _, addOn := range []*clientcert.AddOn{nil, {Name: "hello", SignerName: "example.com/a"}} {
			var earlier []client.Object
			for i := range 10 {
				csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("earlier-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster},
				}, Spec: certificatesv1.CertificateSigningRequestSpec{Username: self.User()}, Status: test.status}
				if addOn != nil {
					csr.Labels[fleet.LabelAddOnName] = addOn.Name
				}
				earlier = append(earlier, csr)
			}
			ctx, stop := context.WithCancel(t.Context())
			created := false
			requester := &clientcert.Requester{Hub: newHub(earlier...), Identity: self, AddOn: addOn, Renews: true,
				Record: func(_, reason, _, _ string, _ ...any) {
					created = created || reason == fleet.EventCSRCreated
					stop()
				}}
			_, _, err := requester.Request(ctx)
			var halted *clientcert.HaltedError
			if errors.As(err, &halted) != test.halts || created == test.halts {
				t.Errorf("after ten that are %s: created %t, %v", name, created, err)
			}
		}
	}
}

// RG-07: an agent that joins is halted by requests for its own identity, and not by those that others make with the label of its cluster.
func TestRequestsForOthersDoNotHaltJoining(t *testing.T) {
	t.Parallel()
	key, _, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	asking := func(user string) []byte {
		request, err := cert.MakeCSR(key, &pkix.Name{CommonName: user}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return request
	}
	for name, test := range map[string]struct {
		request []byte
		signer  string
		halts   bool
	}{
		"its own":         {asking(self.User()), fleet.SignerKubeAPIServerClient, true},
		"another agent's": {asking(fleet.ClusterUser(self.Cluster, "another")), fleet.SignerKubeAPIServerClient, false},
		"another user's":  {asking("ann"), fleet.SignerKubeAPIServerClient, false},
		"another signer":  {asking(self.User()), "example.com/a", false},
		"unreadable":      {[]byte("no request"), fleet.SignerKubeAPIServerClient, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var earlier []client.Object
			for i := range 10 {
				earlier = append(earlier, &certificatesv1.CertificateSigningRequest{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("earlier-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster}},
					Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:abcdef", Request: test.request,
						SignerName: test.signer},
				})
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			created := false
			requester := &clientcert.Requester{Hub: newHub(earlier...), Identity: self, Record: func(_, reason, _, _ string, _ ...any) {
				created = created || reason == fleet.EventCSRCreated
				stop()
			}}
			_, _, err := requester.Request(ctx)
			var halted *clientcert.HaltedError
			if errors.As(err, &halted) != test.halts || created == test.halts {
				t.Errorf("created %t, %v", created, err)
			}
		})
	}
}

// RG-51: where a broker creates the requests, they are of the signer of its certificates, and of whom the annotation names.
func TestBrokeredRequests(t *testing.T) {
	t.Parallel()
	var pending []client.Object
	for i := range 10 {
		pending = append(pending, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("cluster1-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster},
			Annotations: map[string]string{fleet.AnnotationCSRUser: self.User()},
		}, Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:serviceaccount:hub:grpc-server"}})
	}
	hub := newHub(pending...)
	requester := &clientcert.Requester{Hub: hub, Identity: self, Signer: fleet.SignerGRPC, Brokered: true, Renews: true}
	var halted *clientcert.HaltedError
	if _, _, err := requester.Request(t.Context()); !errors.As(err, &halted) {
		t.Errorf("got %v", err)
	}
	for _, csr := range pending {
		if err := hub.Delete(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	watched := interceptor.NewClient(hub, interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			stop()
			return watch.NewFake(), nil
		},
	})
	requester.Hub = watched
	if _, _, err := requester.Request(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	all := &certificatesv1.CertificateSigningRequestList{}
	if err := hub.List(t.Context(), all); err != nil || len(all.Items) != 1 || all.Items[0].Spec.SignerName != fleet.SignerGRPC {
		t.Errorf("%+v, %v", all.Items, err)
	}
}

// sameKey is the key of a request that was made before a restart.
type sameKey struct {
	key     *ecdsa.PrivateKey
	encoded []byte
}

func (k sameKey) PendingKey() (*ecdsa.PrivateKey, []byte, error) { return k.key, k.encoded, nil }

// RG-07: after a restart, an agent takes up the request of its own user on the hub, which is another one after joining by AWS IAM.
func TestRequestTakenUpAgain(t *testing.T) {
	t.Parallel()
	const aws = "open-cluster-management:cluster1"
	for name, test := range map[string]struct {
		author  string
		madeBy  string
		takenUp bool
	}{
		"by certificate":            {"", self.User(), true},
		"by certificate, of others": {"", aws, false},
		"by AWS IAM":                {aws, aws, true},
		"by AWS IAM, of others":     {aws, self.User(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, encoded, err := hubkubeconfig.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			hub := newHub()
			request := func() (certificate []byte, err error) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				certificate, _, err = (&clientcert.Requester{Hub: hub, Keys: sameKey{key, encoded}, Identity: self, Author: test.author, Renews: true,
					AddOn: &clientcert.AddOn{Name: "hello", SignerName: "example.com/a"},
					Record: func(_, reason, _, _ string, _ ...any) {
						if reason == fleet.EventCSRCreated {
							stop()
						}
					}}).Request(ctx)
				return certificate, err
			}
			if _, err := request(); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			list := &certificatesv1.CertificateSigningRequestList{}
			if err := hub.List(t.Context(), list); err != nil || len(list.Items) != 1 {
				t.Fatalf("requests %v, %v", list.Items, err)
			}
			csr := &list.Items[0]
			csr.Spec.Username = test.madeBy
			if err := hub.Update(t.Context(), csr); err != nil {
				t.Fatal(err)
			}
			csr.Status.Certificate = []byte("issued")
			if err := hub.Status().Update(t.Context(), csr); err != nil {
				t.Fatal(err)
			}
			if certificate, err := request(); (string(certificate) == "issued") != test.takenUp || (err == nil) != test.takenUp {
				t.Errorf("%q, %v", certificate, err)
			}
		})
	}
}

// RG-07 RG-12: of several requests with its key, an agent takes up the last one, whatever became of those for former ManagedClusters.
func TestLastRequestIsTakenUp(t *testing.T) {
	t.Parallel()
	issued := func(certificate string) certificatesv1.CertificateSigningRequestStatus {
		return certificatesv1.CertificateSigningRequestStatus{Certificate: []byte(certificate)}
	}
	denied := certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}}
	for name, test := range map[string]struct {
		earlier, later certificatesv1.CertificateSigningRequestStatus
		certificate    string
	}{
		"both issued":        {issued("earlier"), issued("later"), "later"},
		"the earlier denied": {denied, issued("later"), "later"},
		"the later denied":   {issued("earlier"), denied, ""},
	} {
		for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
			key, encoded, err := hubkubeconfig.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			request, err := cert.MakeCSR(key, &pkix.Name{CommonName: self.User()}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var requests []client.Object
			for i, status := range []certificatesv1.CertificateSigningRequestStatus{test.earlier, test.later} {
				requests = append(requests, &certificatesv1.CertificateSigningRequest{
					ObjectMeta: metav1.ObjectMeta{Name: names[i], Labels: map[string]string{fleet.LabelClusterName: self.Cluster},
						CreationTimestamp: metav1.NewTime(start.Add(time.Duration(i) * time.Hour))},
					Spec:   certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: fleet.SignerKubeAPIServerClient},
					Status: status,
				})
			}
			requester := &clientcert.Requester{Hub: newHub(requests...), Keys: sameKey{key, encoded}, Identity: self}
			certificate, _, err := requester.Request(t.Context())
			var refused *clientcert.DeniedError
			if string(certificate) != test.certificate || errors.As(err, &refused) != (test.certificate == "") {
				t.Errorf("%s, in the order %q: %q, %v", name, names, certificate, err)
			}
		}
	}
}
