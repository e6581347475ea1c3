package access_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/broker/access"
)

type tokens struct {
	authenticationclient.TokenReviewInterface
	valid  bool
	err    error
	review int
}

func (t *tokens) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview,
	error) {
	t.review++
	review.Status.Authenticated = t.valid
	review.Status.User = authenticationv1.UserInfo{Username: "token-user", UID: "u", Groups: []string{"g"},
		Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	return review, t.err
}

type reviews struct {
	authorizationclient.SubjectAccessReviewInterface
	status authorizationv1.SubjectAccessReviewStatus
	err    error
	asked  []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviews) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (
	*authorizationv1.SubjectAccessReview, error) {
	r.asked = append(r.asked, review.Spec)
	review.Status = r.status
	return review, r.err
}

var now = time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC)

// authority signs client certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// client returns the context of a call with a client certificate.
func (a authority) client(ctx context.Context, t *testing.T, change func(*x509.Certificate)) context.Context {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Minute),
		Subject:     pkix.Name{CommonName: "system:open-cluster-management:c1:a1", Organization: []string{"system:open-cluster-management:c1"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
}

func withToken(ctx context.Context) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer secret"))
}

// GR-06: a valid token goes before a certificate; the user of a certificate is its CN, and the groups are its Os.
func TestAuthenticate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	trusted := ca.pool()
	valid := &tokens{valid: true}
	options := access.Options{Tokens: valid, Clock: clocktesting.NewFakeClock(now), ClientCAs: func() *x509.CertPool { return trusted },
		NotBefore: func(context.Context, string) (time.Time, error) { return time.Time{}, nil }}
	reviewer := access.New(options)
	both := ca.client(withToken(t.Context()), t, nil)
	for range 2 {
		if caller, err := reviewer.Authenticate(both); err != nil || caller.Username != "token-user" || caller.Certificate != nil {
			t.Errorf("by token: %+v, %v", caller, err)
		}
	}
	if valid.review != 1 {
		t.Errorf("%d reviews of a token that was valid a moment ago", valid.review)
	}
	options.Tokens = &tokens{}
	caller, err := access.New(options).Authenticate(both)
	if err != nil || caller.Username != "system:open-cluster-management:c1:a1" ||
		!slices.Equal(caller.Groups, []string{"system:open-cluster-management:c1", "system:authenticated"}) {
		t.Errorf("by certificate: %+v, %v", caller, err)
	}
	options.Tokens = &tokens{err: errors.New("down")}
	if _, err := access.New(options).Authenticate(withToken(t.Context())); status.Code(err) != codes.Unavailable {
		t.Errorf("with an API that is down: %v", err)
	}
	trusted = newAuthority(t).pool()
	if _, err := reviewer.Authenticate(ca.client(t.Context(), t, nil)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("by a certificate of a CA that is not trusted any more: %v", err)
	}
}

// GR-06: certificates that do not hold let nobody in: expired ones, those of servers, those without a user, and those from before the
// cluster was cut off.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, test := range map[string]struct {
		change    func(*x509.Certificate)
		notBefore time.Time
		err       error
		want      codes.Code
	}{
		"a valid one":   {nil, time.Time{}, nil, codes.OK},
		"expired":       {func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }, time.Time{}, nil, codes.Unauthenticated},
		"not valid yet": {func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) }, time.Time{}, nil, codes.Unauthenticated},
		"of a server": {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, time.Time{}, nil,
			codes.Unauthenticated},
		"of nobody":      {func(c *x509.Certificate) { c.Subject.CommonName = "" }, time.Time{}, nil, codes.Unauthenticated},
		"cut off":        {nil, now.Add(-time.Second), nil, codes.Unauthenticated},
		"cut off before": {nil, now.Add(-time.Hour), nil, codes.OK},
		"unknown":        {nil, time.Time{}, errors.New("down"), codes.Unavailable},
	} {
		reviewer := access.New(access.Options{Tokens: &tokens{}, Clock: clocktesting.NewFakeClock(now), ClientCAs: ca.pool,
			NotBefore: func(_ context.Context, cluster string) (time.Time, error) {
				if cluster != "c1" {
					t.Errorf("%s: asked for cluster %q", name, cluster)
				}
				return test.notBefore, test.err
			}})
		if _, err := reviewer.Authenticate(ca.client(t.Context(), t, test.change)); status.Code(err) != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

func caller(groups ...string) *access.Caller {
	return &access.Caller{UserInfo: authenticationv1.UserInfo{Username: "u", Groups: groups}}
}

func watch(cluster string) access.Attributes {
	return access.Attributes{Cluster: cluster, ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "watch", Namespace: cluster}}
}

// GR-07 O12: decisions are kept for a short time, each for its caller, groups and cluster; what the hub decides about a cluster ends them.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	c, api := clocktesting.NewFakeClock(now), &reviews{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	reviewer := access.New(access.Options{Access: api, Clock: c})
	want := func(what string, asked int, code codes.Code, who *access.Caller, attributes access.Attributes) {
		t.Helper()
		if err := reviewer.Authorize(t.Context(), who, attributes); status.Code(err) != code || len(api.asked) != asked {
			t.Errorf("%s: %v after %d reviews; want %s after %d", what, err, len(api.asked), code, asked)
		}
	}
	want("first", 1, codes.OK, caller("g"), watch("c1"))
	want("again", 1, codes.OK, caller("g"), watch("c1"))
	want("in other groups", 2, codes.OK, caller("h"), watch("c1"))
	want("of another cluster", 3, codes.OK, caller("g"), watch("c2"))
	api.status.Allowed = false
	want("from the cache", 3, codes.OK, caller("g"), watch("c1"))
	reviewer.Forget("c1")
	want("after a decision of the hub", 4, codes.PermissionDenied, caller("g"), watch("c1"))
	want("denied, from the cache", 4, codes.PermissionDenied, caller("g"), watch("c1"))
	want("of a cluster without a decision", 4, codes.OK, caller("g"), watch("c2"))
	api.status.Allowed = true
	c.Step(4 * time.Second)
	want("denied, soon after", 5, codes.OK, caller("g"), watch("c1"))
	api.status.Allowed = false
	c.Step(31 * time.Second)
	want("allowed, half a minute after", 6, codes.PermissionDenied, caller("g"), watch("c2"))
	api.err = errors.New("down")
	c.Step(4 * time.Second)
	want("while the API is down", 7, codes.Unavailable, caller("g"), watch("c2"))
}

// GR-07: what the hub denies because it cannot decide, as one that has just started, is no denial, and not kept as one.
func TestAuthorizeUndecided(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status      authorizationv1.SubjectAccessReviewStatus
		want, again codes.Code
	}{
		{authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "unknown"}, codes.Unavailable, codes.OK},
		{authorizationv1.SubjectAccessReviewStatus{Denied: true}, codes.PermissionDenied, codes.PermissionDenied},
		{authorizationv1.SubjectAccessReviewStatus{EvaluationError: "no such role"}, codes.PermissionDenied, codes.PermissionDenied},
		{authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "no such role"}, codes.OK, codes.OK},
	} {
		api := &reviews{status: test.status}
		reviewer := access.New(access.Options{Access: api, Clock: clocktesting.NewFakeClock(now)})
		first := reviewer.Authorize(t.Context(), caller("g"), watch("c1"))
		api.status = authorizationv1.SubjectAccessReviewStatus{Allowed: true}
		again := reviewer.Authorize(t.Context(), caller("g"), watch("c1"))
		if status.Code(first) != test.want || status.Code(again) != test.again {
			t.Errorf("%+v: %v, then %v; want %s, then %s", test.status, first, again, test.want, test.again)
		}
	}
}

// GR-07: the review has everything that the hub knows of the caller.
func TestReviewOfCaller(t *testing.T) {
	t.Parallel()
	api := &reviews{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	reviewer := access.New(access.Options{Tokens: &tokens{valid: true}, Access: api, Clock: clocktesting.NewFakeClock(now)})
	who, err := reviewer.Authenticate(withToken(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := reviewer.Authorize(t.Context(), who, watch("c1")); err != nil {
		t.Fatal(err)
	}
	if spec := api.asked[0]; spec.User != "token-user" || spec.UID != "u" || !slices.Equal(spec.Groups, []string{"g"}) ||
		len(spec.Extra["k"]) != 1 {
		t.Errorf("asked for %+v", spec)
	}
}
