package clientcert_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
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

// RG-07: an agent that joins is neither halted nor refused by requests that others make with the label of its cluster, whomever they name:
// only those for its own key are its own.
func TestRequestsOfOthersDoNotHaltJoining(t *testing.T) {
	t.Parallel()
	denied := []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
	key, encoded, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	asking := func(private *ecdsa.PrivateKey, user string) []byte {
		request, err := cert.MakeCSR(private, &pkix.Name{CommonName: user}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return request
	}
	for name, test := range map[string]struct {
		request    []byte
		conditions []certificatesv1.CertificateSigningRequestCondition
		refused    bool
	}{
		"in its name":            {request: asking(other, self.User())},
		"in its name, denied":    {request: asking(other, self.User()), conditions: denied},
		"its own, denied":        {request: asking(key, self.User()), conditions: denied, refused: true},
		"in another agent's":     {request: asking(other, fleet.ClusterUser(self.Cluster, "another"))},
		"unreadable":             {request: []byte("no request")},
		"unreadable, and denied": {request: []byte("no request"), conditions: denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var earlier []client.Object
			for i := range 10 {
				earlier = append(earlier, &certificatesv1.CertificateSigningRequest{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("earlier-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster}},
					Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:abcdef", Request: test.request,
						SignerName: fleet.SignerKubeAPIServerClient, Usages: usages},
					Status: certificatesv1.CertificateSigningRequestStatus{Conditions: test.conditions},
				})
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			created := false
			requester := &clientcert.Requester{Hub: newHub(earlier...), Keys: sameKey{key, encoded}, Identity: self,
				Record: func(_, reason, _, _ string, _ ...any) {
					created = created || reason == fleet.EventCSRCreated
					stop()
				}}
			_, _, err := requester.Request(ctx)
			var refused *clientcert.DeniedError
			if errors.As(err, &refused) != test.refused || created == test.refused {
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

// usages are those of all requests of agents.
var usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageClientAuth}

// RG-07: anyone who may join can copy the request of an agent that joins, with its key, and have the copy denied or left alone. The agent
// takes up what it can use, and is neither refused nor halted by the rest.
func TestCopiedRequests(t *testing.T) {
	t.Parallel()
	key, encoded, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: self.User()}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string, usages []certificatesv1.KeyUsage, certificate string,
		kinds ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterName: self.Cluster}},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:abcdef", Request: request,
				SignerName: fleet.SignerKubeAPIServerClient, Usages: usages},
			Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte(certificate)},
		}
		for _, kind := range kinds {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		}
		return csr
	}
	all := func(requests ...*certificatesv1.CertificateSigningRequest) []*certificatesv1.CertificateSigningRequest {
		return requests
	}
	others := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	var ten []*certificatesv1.CertificateSigningRequest
	for i := range 10 {
		ten = append(ten, of(fmt.Sprintf("copy-%d", i), others, ""))
	}
	for name, test := range map[string]struct {
		requests []*certificatesv1.CertificateSigningRequest // as they are made
		want     string
	}{
		"signed, and a copy denied":      {all(of("own", usages, "signed"), of("copy", usages, "", denied)), "signed"},
		"approved, and a copy undecided": {all(of("own", usages, "", approved), of("copy", usages, "")), "waits for own"},
		"approved, and a copy failed": {all(of("own", usages, "", approved), of("copy", others, "", approved, failed)),
			"waits for own"},
		"undecided, and a copy denied":     {all(of("own", usages, ""), of("copy", usages, "", denied)), "waits for own"},
		"undecided, and one for others":    {all(of("own", usages, ""), of("copy", others, "")), "waits for own"},
		"undecided, and a copy signed":     {all(of("own", usages, ""), of("copy", others, "signed")), "signed"},
		"denied, and one for other usages": {all(of("own", usages, "", denied), of("copy", others, "")), "refused"},
		"only one for others, denied":      {all(of("copy", others, "", denied)), "made"},
		"ten for other usages":             {ten, "made"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []client.Object
			for i, csr := range test.requests {
				csr = csr.DeepCopy()
				csr.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(i) * time.Hour))
				objects = append(objects, csr)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			got := ""
			hub := interceptor.NewClient(newHub(objects...), interceptor.Funcs{
				Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					selected := (&client.ListOptions{}).ApplyOptions(opts).AsListOptions().FieldSelector
					got = cmp.Or(got, "waits for "+strings.TrimPrefix(selected, "metadata.name="))
					stop()
					return watch.NewFake(), nil
				},
			})
			requester := &clientcert.Requester{Hub: hub, Keys: sameKey{key, encoded}, Identity: self,
				Record: func(_, reason, _, _ string, _ ...any) {
					if reason == fleet.EventCSRCreated {
						got = "made"
					}
				}}
			certificate, _, err := requester.Request(ctx)
			var denial *clientcert.DeniedError
			switch {
			case err == nil:
				got = string(certificate)
			case errors.As(err, &denial):
				got = "refused"
			}
			if got != test.want {
				t.Errorf("%s, want %s: %v", got, test.want, err)
			}
		})
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

// RG-07: a request from before the hub cut the cluster off, or deleted it, is not taken up: the hub never decides on it, or has refused it.
// What it has approved for an agent that joins, it signs.
func TestRequestFromBeforeACutOff(t *testing.T) {
	t.Parallel()
	decided := func(kinds ...certificatesv1.RequestConditionType) (status certificatesv1.CertificateSigningRequestStatus) {
		for _, kind := range kinds {
			status.Conditions = append(status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		}
		return status
	}
	issued := decided(certificatesv1.CertificateApproved)
	issued.Certificate = []byte("issued")
	for name, test := range map[string]struct {
		status certificatesv1.CertificateSigningRequestStatus
		counts bool // for an agent that joins
	}{
		"undecided": {},
		"issued":    {status: issued, counts: true},
		"approved":  {status: decided(certificatesv1.CertificateApproved), counts: true},
		"denied":    {status: decided(certificatesv1.CertificateDenied)},
		"failed":    {status: decided(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed)},
	} {
		for _, addOn := range []*clientcert.AddOn{nil, {Name: "hello", SignerName: "example.com/a"}} {
			for notBefore, outdated := range map[time.Time]bool{{}: false, start: false, start.Add(time.Second): true} {
				want := outdated && (addOn != nil || !test.counts)
				key, encoded, err := hubkubeconfig.NewKey()
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				created := false
				requester := &clientcert.Requester{Keys: sameKey{key, encoded}, Identity: self, AddOn: addOn, Renews: addOn != nil,
					NotBefore: notBefore, Record: func(_, reason, _, _ string, _ ...any) {
						created = created || reason == fleet.EventCSRCreated
						stop()
					}}
				subject, signer, requestLabels := pkix.Name{CommonName: self.User()}, fleet.SignerKubeAPIServerClient,
					map[string]string{fleet.LabelClusterName: self.Cluster}
				if addOn != nil {
					subject, signer, requestLabels[fleet.LabelAddOnName] = addOn.Subject, addOn.SignerName, addOn.Name
				}
				request, err := cert.MakeCSR(key, &subject, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				requester.Hub = interceptor.NewClient(newHub(&certificatesv1.CertificateSigningRequest{
					ObjectMeta: metav1.ObjectMeta{Name: "earlier", Labels: requestLabels, CreationTimestamp: metav1.NewTime(start)},
					Spec: certificatesv1.CertificateSigningRequestSpec{Username: self.User(), Request: request, SignerName: signer,
						Usages: usages},
					Status: test.status,
				}), interceptor.Funcs{
					Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
						if len(test.status.Certificate) == 0 {
							stop() // that it waits is known
						}
						return watch.NewFake(), nil
					},
				})
				_, _, err = requester.Request(ctx)
				stop()
				if taken := name == "issued" && !want; created != want || (err == nil) != taken {
					t.Errorf("%s, for the add-on %v, when requests count from %s on: another is made: %t, %v", name, addOn, notBefore, created, err)
				}
			}
		}
	}
}

// RG-07 RG-12: of several requests with its key, an agent takes up one that is for the ManagedCluster that there is, of those the one of
// which most has become, and of the same the last. A certificate from before a cut-off is not taken any more, nor one that has expired.
func TestLastRequestIsTakenUp(t *testing.T) {
	t.Parallel()
	cutOff, now := start.Add(30*time.Minute), start.Add(time.Minute)
	signed := func(from time.Time) certificatesv1.CertificateSigningRequestStatus {
		return certificatesv1.CertificateSigningRequestStatus{Certificate: certificateFrom(t, from)}
	}
	decided := func(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestStatus {
		return certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: kind}}}
	}
	undecided := certificatesv1.CertificateSigningRequestStatus{}
	approved, denied := decided(certificatesv1.CertificateApproved), decided(certificatesv1.CertificateDenied)
	expired := signed(now.Add(-time.Hour))
	for name, test := range map[string]struct {
		earlier, later certificatesv1.CertificateSigningRequestStatus
		notBefore      time.Time
		want           string
	}{
		"both signed":                                   {signed(start), signed(start), time.Time{}, "later"},
		"the earlier denied":                            {denied, signed(start), time.Time{}, "later"},
		"the later denied":                              {signed(start), denied, time.Time{}, "earlier"},
		"both denied":                                   {denied, denied, time.Time{}, "refused"},
		"the earlier from before a cut-off":             {signed(start), undecided, cutOff, "waits for later"},
		"the earlier from before, the later denied":     {signed(start), denied, cutOff, "refused"},
		"the earlier from before, the later expired":    {signed(start), expired, cutOff, "earlier"},
		"the earlier signed since":                      {signed(cutOff), undecided, cutOff, "earlier"},
		"the earlier signed since, the later too":       {signed(cutOff), signed(cutOff), cutOff, "later"},
		"the earlier approved before, the later since":  {approved, approved, cutOff, "waits for later"},
		"the earlier approved before, the later waits":  {approved, undecided, cutOff, "waits for later"},
		"the later expired":                             {undecided, expired, time.Time{}, "waits for earlier"},
		"the later expired, and the earlier was denied": {denied, expired, time.Time{}, "refused"},
		"both expired":                                  {expired, expired, time.Time{}, "made"},
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
					Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: fleet.SignerKubeAPIServerClient,
						Usages: usages},
					Status: status,
				})
			}
			ctx, stop := context.WithCancel(t.Context())
			got := ""
			hub := interceptor.NewClient(newHub(requests...), interceptor.Funcs{
				Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					selected := (&client.ListOptions{}).ApplyOptions(opts).AsListOptions().FieldSelector
					named := strings.NewReplacer(names[0], "earlier", names[1], "later").Replace(strings.TrimPrefix(selected, "metadata.name="))
					got = cmp.Or(got, "waits for "+named)
					stop()
					return watch.NewFake(), nil
				},
			})
			requester := &clientcert.Requester{Hub: hub, Keys: sameKey{key, encoded}, Identity: self, NotBefore: test.notBefore,
				Clock: clocktesting.NewFakePassiveClock(now), Record: func(_, reason, _, _ string, _ ...any) {
					if reason == fleet.EventCSRCreated {
						got = "made"
					}
				}}
			certificate, _, err := requester.Request(ctx)
			stop()
			var denial *clientcert.DeniedError
			switch {
			case errors.As(err, &denial):
				got = "refused"
			case err == nil && bytes.Equal(certificate, test.later.Certificate):
				got = "later"
			case err == nil && bytes.Equal(certificate, test.earlier.Certificate):
				got = "earlier"
			}
			if got != test.want {
				t.Errorf("%s, in the order %q: %s, want %s: %v", name, names, got, test.want, err)
			}
		}
	}
}

// certificateFrom is a certificate that is valid for an hour, in PEM.
func certificateFrom(t *testing.T, notBefore time.Time) []byte {
	t.Helper()
	key, _, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: self.User()}, NotBefore: notBefore,
		NotAfter: notBefore.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
