// Package access says who calls the gRPC server of a hub, and asks the hub what they may.
//
// Callers are known by a token of the hub, or else by a client certificate. What they may is what RBAC of the hub says; the server itself
// has rights for all clusters. Answers of the hub are kept for a short time: see the constants. A change of whether a cluster is accepted
// ends that at once, by [Reviewer.Forget].
package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	lru "k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// How long answers of the hub are kept, and how many. A right that has been taken away without a change of the acceptance of the cluster
// ends within allowedFor.
const (
	// allowedFor is for allowed requests, and is how often open subscriptions are reviewed.
	allowedFor = 30 * time.Second
	// deniedFor is for denied ones: an agent that has just got its rights asks again soon.
	deniedFor = 3 * time.Second
	// tokenFor is for tokens, valid ones and others.
	tokenFor = 10 * time.Second
	// mostDecisions takes the subscriptions of some thousand agents. An entry takes less than 1 KiB.
	mostDecisions = 32 << 10
	mostTokens    = 8 << 10
)

// reviewTimeout is how long the API may take to review a caller.
const reviewTimeout = 10 * time.Second

// Caller is who calls.
type Caller struct {
	authenticationv1.UserInfo
	// Certificate is what the caller is known by; nil if that is a token.
	Certificate *x509.Certificate
}

func (c *Caller) extra() map[string]authorizationv1.ExtraValue {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range c.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return extra
}

// Attributes are what a caller wants to do.
type Attributes struct {
	// Cluster is whose resources these are.
	Cluster string
	authorizationv1.ResourceAttributes
}

func (a Attributes) String() string {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Group != "" {
		resource += "." + a.Group
	}
	if a.Name != "" {
		resource += fmt.Sprintf(" %q", a.Name)
	}
	return fmt.Sprintf("%s %s of cluster %q", a.Verb, resource, a.Cluster)
}

// Options configure a [Reviewer].
type Options struct {
	Tokens authenticationclient.TokenReviewInterface
	Access authorizationclient.SubjectAccessReviewInterface
	// ClientCAs returns what client certificates are verified by now.
	ClientCAs func() *x509.CertPool
	// NotBefore returns from when on the certificates of a cluster hold; the zero time stands for always.
	NotBefore func(ctx context.Context, cluster string) (time.Time, error)
	Clock     clock.Clock
}

// Reviewer asks the hub about callers.
type Reviewer struct {
	Options
	tokens, decisions *lru.LRUExpireCache
	mu                sync.Mutex
	// epochs count what has happened to the acceptance of clusters. Decisions are of one epoch.
	epochs map[string]uint64
}

// New returns a Reviewer.
func New(o Options) *Reviewer {
	return &Reviewer{
		Options: o, epochs: map[string]uint64{},
		tokens:    lru.NewLRUExpireCacheWithClock(mostTokens, o.Clock),
		decisions: lru.NewLRUExpireCacheWithClock(mostDecisions, o.Clock),
	}
}

// Period is how often what goes on is to be reviewed.
func (r *Reviewer) Period() time.Duration { return allowedFor }

// Authenticate returns who makes a call. A token goes before a certificate. It fails with Unauthenticated for a caller with neither, and
// with Unavailable if the hub does not answer.
func (r *Reviewer) Authenticate(ctx context.Context) (*Caller, error) {
	token, err := bearerToken(ctx)
	if err != nil {
		return nil, err
	}
	if token != "" {
		user, err := r.reviewToken(ctx, token)
		switch {
		case err != nil:
			return nil, status.Errorf(codes.Unavailable, "the token cannot be reviewed now: %v", err)
		case user != nil:
			return &Caller{UserInfo: *user}, nil
		}
	}
	certificates := peerCertificates(ctx)
	if len(certificates) == 0 && token != "" {
		return nil, status.Error(codes.Unauthenticated, "the token is none of this hub, or has expired")
	}
	if len(certificates) == 0 {
		return nil, status.Errorf(codes.Unauthenticated, "send a token of the hub as %q: \"Bearer TOKEN\", or use a client certificate",
			cloudevents.MetadataAuthorization)
	}
	return r.verify(ctx, certificates)
}

// bearerToken returns the token of a call; an empty one if there is none.
func bearerToken(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, cloudevents.MetadataAuthorization)
	if len(values) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", status.Errorf(codes.Unauthenticated, "%s has to be one value: \"Bearer TOKEN\"", cloudevents.MetadataAuthorization)
	}
	return token, nil
}

// reviewToken returns nil for a token that is not valid.
func (r *Reviewer) reviewToken(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	sum := sha256.Sum256([]byte(token))
	key := hex.EncodeToString(sum[:])
	if kept, ok := r.tokens.Get(key); ok {
		user, _ := kept.(*authenticationv1.UserInfo)
		return user, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := r.Tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	var user *authenticationv1.UserInfo
	if review.Status.Authenticated {
		user = &review.Status.User
	}
	r.tokens.Add(key, user, tokenFor)
	return user, nil
}

func peerCertificates(ctx context.Context) []*x509.Certificate {
	client, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := client.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return info.State.PeerCertificates
}

// verify checks the certificate by what the server trusts now: a connection may be older than that.
func (r *Reviewer) verify(ctx context.Context, certificates []*x509.Certificate) (*Caller, error) {
	leaf := certificates[0]
	intermediates := x509.NewCertPool()
	for _, one := range certificates[1:] {
		intermediates.AddCert(one)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: r.ClientCAs(), Intermediates: intermediates, CurrentTime: r.Clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "the client certificate of %q: %v", leaf.Subject.CommonName, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, status.Error(codes.Unauthenticated, "the client certificate has no common name, which would be the user")
	}
	caller := &Caller{Certificate: leaf, UserInfo: authenticationv1.UserInfo{Username: leaf.Subject.CommonName,
		Groups: withAuthenticated(leaf.Subject.Organization)}}
	for _, cluster := range fleet.ClustersBehind(caller.Username, caller.Groups) {
		notBefore, err := r.NotBefore(ctx, cluster)
		if err != nil {
			return nil, status.Errorf(codes.Unavailable, "find out from when on certificates of cluster %q hold: %v", cluster, err)
		}
		if leaf.NotBefore.Before(notBefore) {
			return nil, status.Errorf(codes.Unauthenticated,
				"the certificate of %q is valid from %s on, and those of cluster %q hold from %s on (%s), "+
					"when the cluster was created or cut off: the agent has to join again", caller.Username, leaf.NotBefore.UTC().Format(time.RFC3339),
				cluster, notBefore.UTC().Format(time.RFC3339), fleet.AnnotationCredentialsNotBefore)
		}
	}
	return caller, nil
}

// withAuthenticated adds the group that the API server puts everybody with a certificate into.
func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, fleet.GroupAuthenticated) {
		return groups
	}
	return append(slices.Clone(groups), fleet.GroupAuthenticated)
}

// Authorize fails with PermissionDenied if the caller may not do what the attributes say, and with Unavailable if the hub does not answer.
func (r *Reviewer) Authorize(ctx context.Context, caller *Caller, attributes Attributes) error {
	key, err := r.decisionKey(caller, attributes)
	if err != nil {
		return err
	}
	allowed, known := r.decisions.Get(key)
	if !known {
		answer, err := r.review(ctx, caller, attributes)
		if err != nil {
			return status.Errorf(codes.Unavailable, "it cannot be reviewed now whether %q may %s: %v", caller.Username, attributes, err)
		}
		lifetime := deniedFor
		if answer {
			lifetime = allowedFor
		}
		r.decisions.Add(key, answer, lifetime)
		allowed = answer
	}
	if allowed != true {
		return status.Errorf(codes.PermissionDenied, "user %q may not %s", caller.Username, attributes)
	}
	return nil
}

// decisionKey stands for everything that a decision depends on: two callers of one name may have different groups.
func (r *Reviewer) decisionKey(caller *Caller, attributes Attributes) (string, error) {
	encoded, err := json.Marshal([]any{caller.UserInfo, attributes.ResourceAttributes})
	if err != nil {
		return "", status.Errorf(codes.Internal, "user %q: %v", caller.Username, err)
	}
	sum := sha256.Sum256(encoded)
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%s/%d/%x", attributes.Cluster, r.epochs[attributes.Cluster], sum), nil
}

// review fails if the hub denies because it could not decide. Where it only has no opinion, an error may be of a role that does not exist.
func (r *Reviewer) review(ctx context.Context, caller *Caller, attributes Attributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := r.Access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: caller.Username, UID: caller.UID, Groups: caller.Groups, Extra: caller.extra(), ResourceAttributes: &attributes.ResourceAttributes,
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	if review.Status.Denied && review.Status.EvaluationError != "" {
		return false, errors.New(review.Status.EvaluationError)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

// Forget has all decisions about a cluster made anew.
func (r *Reviewer) Forget(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epochs[cluster]++
}
