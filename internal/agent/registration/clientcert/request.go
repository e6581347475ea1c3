// Package clientcert gets client certificates for the agent from the hub: the first one with the bootstrap credential,
// and every later one, in time, with the one before it.
package clientcert

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/certrequest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// maxPending is how many requests of a cluster may be undecided on the hub before its agent makes no more.
const maxPending = 10

// DeniedError says that an administrator of the hub denied the request.
type DeniedError struct{ Request, Message string }

func (e *DeniedError) Error() string {
	return fmt.Sprintf("CertificateSigningRequest %s was denied on the hub: %s", e.Request, e.Message)
}

// HaltedError says that the hub holds so many undecided requests of the cluster, or of its add-on, that no more are made.
type HaltedError struct {
	Cluster  string
	AddOn    string
	Requests int
}

func (e *HaltedError) Error() string {
	if e.AddOn != "" {
		return fmt.Sprintf("the hub already holds %d undecided CertificateSigningRequests of add-on %s on cluster %s; no more are made "+
			"until some are decided upon or removed: approve one on the hub, or delete stale requests with kubectl delete csr -l %s=%s,%s=%s",
			e.Requests, e.AddOn, e.Cluster, fleet.LabelClusterName, e.Cluster, fleet.LabelAddOnName, e.AddOn)
	}
	return fmt.Sprintf("the hub already holds %d undecided CertificateSigningRequests of cluster %s; no more are made until some are decided "+
		"upon or removed: accept the cluster on the hub, or delete stale requests with kubectl delete csr -l %s=%s",
		e.Requests, e.Cluster, fleet.LabelClusterName, e.Cluster)
}

// Recorder takes events of an agent, which are about its own cluster.
type Recorder func(eventType, reason, action, note string, args ...any)

// errGone says that the request vanished: the hub removes requests that are not decided upon within a day, and issued ones within
// an hour, which may pass while the agent cannot reach the hub.
var errGone = errors.New("the CertificateSigningRequest was deleted before its certificate could be fetched")

// Keys keep the key of a request until its certificate is saved.
type Keys interface {
	PendingKey() (key *ecdsa.PrivateKey, encoded []byte, err error)
}

// Requester requests from one hub certificates of one identity.
type Requester struct {
	// Hub reaches the hub with the credential for the request.
	Hub client.WithWatch
	// Keys let a request be taken up again after a restart. Without them, every call makes a request of its own.
	Keys Keys
	// Identity is the agent's, and what the certificate will say unless it is for an add-on.
	Identity identity.Identity
	// Author is as whom Hub authenticates, if that is not the user of Identity: an agent that joined by AWS IAM has another one.
	Author string
	// AddOn is the add-on that the certificate is for; nil means the agent itself.
	AddOn *AddOn
	// Renews says that Hub authenticates as Author already. Requests of other authors then do not count, whatever they are for; until then,
	// those for other keys do not.
	Renews bool
	// NotBefore is from when on the hub takes certificates for the cluster; the zero time stands for always. It decides on no requests from
	// before, for which another one is made. What it has approved for an agent that joins, it signs.
	NotBefore time.Time
	// Clock says which certificates for an agent that joins have expired; without it, none has.
	Clock clock.PassiveClock
	// NewCluster says that the hub did not know the cluster until now, so that it has no earlier requests: of a hub with many
	// clusters, each such search reads the requests of all.
	NewCluster bool
	// Signer is who is to sign the agent's own certificate; empty stands for the signer of clients of the API server.
	Signer string
	// Brokered says that Hub is a broker, which creates requests in its own name and says in an annotation who requested them.
	Brokered bool
	// Lifetime requests a validity; zero leaves it to the hub. The hub may grant less.
	Lifetime time.Duration
	// Record takes the events of a request; nil drops them.
	Record Recorder
}

// Request makes a key and a CertificateSigningRequest for it, or takes up one that it made before, and waits until
// the hub has issued the certificate. Both results are PEM. It fails with a *DeniedError if the request is denied.
func (r *Requester) Request(ctx context.Context) (certificate, key []byte, err error) {
	private, key, err := r.key()
	if err != nil {
		return nil, nil, err
	}
	name, version, err := r.request(ctx, private)
	if err != nil {
		return nil, nil, err
	}
	if certificate, err = r.await(ctx, name, version); err != nil {
		return nil, nil, err
	}
	r.event(corev1.EventTypeNormal, fleet.EventClientCertificateCreated, "Request", "The hub issued a client certificate on request %s", name)
	return certificate, key, nil
}

// request returns the name of the request with this key, and from which version on to watch it: from its creation, if it is new.
func (r *Requester) request(ctx context.Context, private *ecdsa.PrivateKey) (name, version string, err error) {
	if !r.NewCluster {
		earlier, err := r.pending(ctx, private)
		var halted *HaltedError
		if errors.As(err, &halted) {
			r.event(corev1.EventTypeWarning, fleet.EventClientCertificateCreationHalted, "Request", "%s", halted)
		}
		if err != nil {
			return "", "", err
		}
		if earlier != nil {
			return earlier.Name, "", nil
		}
	}
	created, err := r.create(ctx, private)
	if err != nil {
		return "", "", err
	}
	return created.Name, created.ResourceVersion, nil
}

func (r *Requester) event(eventType, reason, action, note string, args ...any) {
	if r.Record != nil {
		r.Record(eventType, reason, action, note, args...)
	}
}

func (r *Requester) key() (*ecdsa.PrivateKey, []byte, error) {
	if r.Keys == nil {
		return hubkubeconfig.NewKey()
	}
	return r.Keys.PendingKey()
}

func (r *Requester) create(ctx context.Context, private *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	subject := r.subject()
	request, err := cert.MakeCSR(private, &subject, r.dnsNames(), nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate signing request: %w", err)
	}
	csr := r.newRequest(request)
	if err := r.Hub.Create(ctx, csr); err != nil {
		return nil, fmt.Errorf("create a CertificateSigningRequest for %s: %w", subject.CommonName, err)
	}
	log.FromContext(ctx).Info("Certificate requested", "request", csr.Name, "signer", csr.Spec.SignerName, "user", subject.CommonName)
	r.event(corev1.EventTypeNormal, fleet.EventCSRCreated, "Request", "CertificateSigningRequest %s asks the hub for a client certificate",
		csr.Name)
	return csr, nil
}

func (r *Requester) newRequest(request []byte) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: r.generateName(),
			Labels:       r.labels(),
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    request,
			SignerName: r.signer(),
			Usages:     usages(),
		},
	}
	if r.Lifetime > 0 {
		csr.Spec.ExpirationSeconds = ptr.To(int32(r.Lifetime.Seconds()))
	}
	return csr
}

// usages are what all certificates are for.
func usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageClientAuth}
}

// pending is the request with this key that counts most, if there is one. Of several that count the same, it is the last: those before it
// are for former ManagedClusters of the name. Where there is none, it fails if too many requests of this agent are undecided to make
// another, or one was refused. A refusal counts until the refused request is deleted, or there is another one that counts more.
func (r *Requester) pending(ctx context.Context, private *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := r.Hub.List(ctx, list, client.MatchingLabels(r.labels())); err != nil {
		return nil, fmt.Errorf("list the CertificateSigningRequests of cluster %s: %w", r.Identity.Cluster, err)
	}
	var best *certificatesv1.CertificateSigningRequest
	bestRank, undecided := rank{}, 0
	for i := range list.Items {
		csr := &list.Items[i]
		if csr.Labels[fleet.LabelAddOnName] != r.addOnName() || !r.isOwn(csr, private) || r.isOutdated(csr) {
			continue
		}
		if r.Renews && isUndecided(csr) {
			undecided++
		}
		this := r.rankOf(csr, private)
		more := this.compare(bestRank)
		if this.state != unrelated && (more > 0 || more == 0 && best.CreationTimestamp.Before(&csr.CreationTimestamp)) {
			best, bestRank = csr, this
		}
	}
	switch {
	case best == nil && undecided >= maxPending:
		return nil, &HaltedError{Cluster: r.Identity.Cluster, AddOn: r.addOnName(), Requests: undecided}
	case best == nil:
		return nil, nil
	case bestRank.state == refused:
		return nil, refusal(best) // it would be refused again
	}
	log.FromContext(ctx).Info("Request for a certificate taken up again", "request", best.Name, "user", r.subject().CommonName)
	return best, nil
}

// state is what has become of a request, as far as the agent can use it: the more, the better.
type state int

const (
	unrelated state = iota
	refused
	waiting
	approved
	signed
)

// rank is how much a request counts: one for the ManagedCluster that there is more than one for a former one of the name, whatever has
// become of them.
type rank struct {
	current bool
	state   state
}

func (r rank) compare(other rank) int {
	switch {
	case r.current == other.current:
		return cmp.Compare(r.state, other.state)
	case r.current:
		return 1
	}
	return -1
}

func (r *Requester) rankOf(csr *certificatesv1.CertificateSigningRequest, private *ecdsa.PrivateKey) rank {
	return rank{current: !r.isEarlier(csr) || r.isSignedSince(csr), state: r.stateOf(csr, private)}
}

// stateOf is what has become of a request for the agent's certificate. Anyone who sees one can copy it with its key, and change the rest:
// to have a copy signed does no harm, and one for other usages is neither refused nor waited for.
func (r *Requester) stateOf(csr *certificatesv1.CertificateSigningRequest, private *ecdsa.PrivateKey) state {
	own, usual := isFor(csr, private), sets.New(csr.Spec.Usages...).Equal(sets.New(usages()...))
	switch {
	case !r.isSameRequest(csr):
		return unrelated
	case own && r.isExpired(csr):
		return unrelated
	case own && len(csr.Status.Certificate) > 0:
		return signed
	case usual && refusal(csr) != nil:
		return refused
	case !own || refusal(csr) != nil:
		return unrelated
	case !isUndecided(csr):
		return approved
	case usual:
		return waiting
	}
	return unrelated
}

// await watches the one request until the hub has decided upon it. A watch that ends is taken up again.
func (r *Requester) await(ctx context.Context, name, version string) (issued []byte, err error) {
	err = retry.Until(ctx, func(ctx context.Context) (bool, error) {
		issued, err = r.watch(ctx, name, version)
		version = ""
		return issued != nil, err
	})
	return issued, err
}

// watch returns when there is a certificate or a denial. Nothing at all means that the watch ended. Without a version it starts with what
// there is.
func (r *Requester) watch(ctx context.Context, name, version string) ([]byte, error) {
	w, err := r.Hub.Watch(ctx, &certificatesv1.CertificateSigningRequestList{}, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name), Raw: &metav1.ListOptions{ResourceVersion: version},
	})
	if version != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("watch CertificateSigningRequest %s: %w", name, err)
	}
	defer w.Stop()
	now := &certificatesv1.CertificateSigningRequest{}
	if version == "" {
		// Such a watch is silent about what was deleted before it started.
		switch err := r.Hub.Get(ctx, client.ObjectKey{Name: name}, now); {
		case apierrors.IsNotFound(err):
			return nil, errGone
		case err != nil:
			return nil, fmt.Errorf("get CertificateSigningRequest %s: %w", name, err)
		}
	}
	for {
		if issued, err := decision(now); issued != nil || err != nil {
			return issued, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case event, open := <-w.ResultChan():
			switch csr, ok := event.Object.(*certificatesv1.CertificateSigningRequest); {
			case !open || event.Type == watch.Error:
				return nil, nil
			case event.Type == watch.Deleted:
				return nil, errGone
			case ok:
				now = csr
			}
		}
	}
}

// decision is the certificate or the denial; nothing while the request is undecided.
func decision(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	if len(csr.Status.Certificate) > 0 {
		return csr.Status.Certificate, nil
	}
	return nil, refusal(csr)
}

// isUndecided reports whether a request waits for its approval or denial. The hub keeps decided ones for a while.
func isUndecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Conditions) == 0 && len(csr.Status.Certificate) == 0
}

func refusal(csr *certificatesv1.CertificateSigningRequest) error {
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return &DeniedError{Request: csr.Name, Message: c.Message}
		}
	}
	return nil
}

// isOwn reports whether a request is of this agent. One that joins is not known as their author yet, but by its key: anyone who may join
// can make requests with the label of its cluster and in its name. How many who joins makes is limited by the hub.
func (r *Requester) isOwn(csr *certificatesv1.CertificateSigningRequest, private *ecdsa.PrivateKey) bool {
	if r.Renews {
		return r.author(csr) == cmp.Or(r.Author, r.Identity.User())
	}
	return isFor(csr, private)
}

// isOutdated reports whether a request is from before the hub took certificates of the cluster, and nothing comes of it any more.
func (r *Requester) isOutdated(csr *certificatesv1.CertificateSigningRequest) bool {
	if !r.isEarlier(csr) {
		return false
	}
	return r.Renews || len(csr.Status.Certificate) == 0 && (isUndecided(csr) || refusal(csr) != nil)
}

// isEarlier reports whether a request is from before the hub took certificates of the cluster.
func (r *Requester) isEarlier(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.CreationTimestamp.Time.Before(r.NotBefore)
}

// isSignedSince reports whether the hub has issued a certificate since it takes those of the cluster.
func (r *Requester) isSignedSince(csr *certificatesv1.CertificateSigningRequest) bool {
	leaf := leafOf(csr)
	return leaf != nil && !leaf.NotBefore.Before(r.NotBefore)
}

// isExpired reports whether the hub has issued a certificate for an agent that joins that it does not take any more.
func (r *Requester) isExpired(csr *certificatesv1.CertificateSigningRequest) bool {
	leaf := leafOf(csr)
	return !r.Renews && r.Clock != nil && leaf != nil && !r.Clock.Now().Before(leaf.NotAfter)
}

// leafOf reads the certificate of a request; nil if there is none that can be read.
func leafOf(csr *certificatesv1.CertificateSigningRequest) *x509.Certificate {
	chain, err := cert.ParseCertsPEM(csr.Status.Certificate)
	if err != nil {
		return nil
	}
	return chain[0]
}

// isFor reports whether the certificate is requested for a key.
func isFor(csr *certificatesv1.CertificateSigningRequest, private *ecdsa.PrivateKey) bool {
	request, err := certrequest.Parse(csr)
	return err == nil && private.PublicKey.Equal(request.PublicKey)
}

// author is who requested a certificate.
func (r *Requester) author(csr *certificatesv1.CertificateSigningRequest) string {
	if r.Brokered {
		return csr.Annotations[fleet.AnnotationCSRUser]
	}
	return csr.Spec.Username
}
