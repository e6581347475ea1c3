// Package hubca keeps the agent's trust in its hub current while the hub's certificate authority is rotated.
package hubca

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// interval is the time between two checks. A hub publishes its next CA weeks before that signs anything, so a watch would
// cost every hub a connection for each cluster and gain nothing.
const interval = 12 * time.Hour

// clusterInfo is where a hub publishes the CA bundle that its clients are to trust, as clusters made by kubeadm do.
var clusterInfo = client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}

// Follower writes the bundle that the hub publishes into the hub kubeconfig in the store. It is a manager's Runnable.
type Follower struct {
	hub     client.Reader
	store   *hubkubeconfig.Store
	current bool
	clock   clock.Clock
}

// New returns a Follower of the hub that config reaches. It sends no credential: what a hub publishes is for
// unauthenticated clients. current says that the bundle in the store is that of a moment ago.
func New(config *rest.Config, store *hubkubeconfig.Store, current bool, clk clock.Clock) (*Follower, error) {
	hub, err := hubclient.New(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, fmt.Errorf("make a client for the hub's CA bundle: %w", err)
	}
	return &Follower{hub: hub, store: store, current: current, clock: clk}, nil
}

// Start checks at once, unless the bundle is current, and then every interval, until the context ends.
func (f *Follower) Start(ctx context.Context) error {
	if !f.current {
		f.check(ctx)
	}
	for f.wait(ctx) {
		f.check(ctx)
	}
	return nil
}

func (f *Follower) check(ctx context.Context) {
	if err := f.follow(ctx); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "The hub's certificate authority could not be followed; that is tried again", "after", interval.String())
	}
}

// wait reports false if the context ended first.
func (f *Follower) wait(ctx context.Context) bool {
	timer := f.clock.NewTimer(interval + rand.N(interval/10)) //nolint:gosec // it spreads requests and protects nothing
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

func (f *Follower) follow(ctx context.Context) error {
	info := &corev1.ConfigMap{}
	err := f.hub.Get(ctx, clusterInfo, info)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return nil // a hub that does not publish
	}
	if err != nil {
		return fmt.Errorf("get ConfigMap %s: %w", clusterInfo, err)
	}
	published, err := bundleOf(info)
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", clusterInfo, err)
	}
	credential, err := f.store.Load()
	if credential == nil || err != nil {
		return err
	}
	next, err := withPublished(credential, published, f.clock.Now())
	if err != nil || next == credential {
		return err
	}
	log.FromContext(ctx).Info("The hub publishes another CA bundle, which is taken over")
	return f.store.Update(ctx, func(now hubkubeconfig.Credential) (*hubkubeconfig.Credential, error) {
		return withPublished(&now, published, f.clock.Now())
	})
}

// withPublished is the credential that trusts what the hub publishes, too. It is the given one if it does so already.
func withPublished(credential *hubkubeconfig.Credential, published []byte, now time.Time) (*hubkubeconfig.Credential, error) {
	trusted, err := credential.TrustBundle()
	if err != nil {
		return nil, err
	}
	bundle := join(trusted, published, now)
	if bundle == nil {
		return credential, nil
	}
	return credential.WithTrustBundle(bundle)
}

func bundleOf(info *corev1.ConfigMap) ([]byte, error) {
	config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		return cluster.CertificateAuthorityData, nil
	}
	return nil, nil
}

// join is the trusted bundle with what it lacks of the published one; nil if it lacks nothing. What has been trusted stays
// until it expires: it may be of a proxy. Where the two have no certificate in common, the agent reaches the hub through
// something that terminates TLS with a CA of its own, which the hub does not know.
func join(trusted, published []byte, now time.Time) []byte {
	existing, err := cert.ParseCertsPEM(trusted)
	if err != nil {
		return nil
	}
	current, err := cert.ParseCertsPEM(published)
	if err != nil {
		return nil
	}
	isKnown := func(c *x509.Certificate) bool { return slices.ContainsFunc(existing, c.Equal) }
	lacking := slices.DeleteFunc(slices.Clone(current), isKnown)
	if len(lacking) == 0 || len(lacking) == len(current) {
		return nil
	}
	existing = slices.DeleteFunc(existing, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	bundle, err := cert.EncodeCertificates(append(existing, lacking...)...)
	if err != nil {
		return nil
	}
	return append(bundle, forwardproxy.OfProxy(trusted)...)
}
