package scope

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Credentials refuses the certificates of agents and add-ons that are older than what they were issued for: that of a cluster which had the
// name before, or one from before the cluster was cut off. They name an identity, and to accept a cluster of the same name would
// give it rights again. Nobody is let in by a restart: until it is known from when on certificates are accepted, a request with
// one of a cluster waits.
type Credentials struct {
	// known is closed when clusters has all there are.
	known chan struct{}
	mu    sync.RWMutex
	// clusters are those whose certificates are accepted from some time on.
	clusters map[string]time.Time
	watches  *Watches
}

// NewCredentials returns Credentials that have to be run.
func NewCredentials() *Credentials {
	return &Credentials{known: make(chan struct{}), clusters: map[string]time.Time{}}
}

// Authenticator refuses what it has to of what another one lets in, and keeps who has been let in.
func (c *Credentials) Authenticator(others authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := others.AuthenticateRequest(r)
		if err != nil || !ok {
			return response, ok, err
		}
		if asksWho(r.Context()) {
			return response, true, nil
		}
		if err := c.check(r.Context(), response.User, certificateOf(r, response.User)); err != nil {
			return nil, false, err
		}
		senderOf(r.Context()).who = response.User
		return response, true, nil
	})
}

// certificateOf is what a client has shown to be who they are, nil if that was something else, such as a token or the word of a proxy.
func certificateOf(r *http.Request, who user.Info) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	for _, id := range who.GetExtra()[user.CredentialIDKey] {
		if strings.HasPrefix(id, certificateID) {
			return r.TLS.PeerCertificates[0]
		}
	}
	return nil
}

// certificateID is the prefix of the credential IDs of those who have shown a certificate.
const certificateID = "X509SHA256="

// check fails if a client has shown a certificate that is no longer accepted. A certificate starts to be valid a while before it is signed,
// but the hub's signer has none start before those of its cluster are accepted.
func (c *Credentials) check(ctx context.Context, who user.Info, certificate *x509.Certificate) error {
	if certificate == nil {
		return nil
	}
	clusters := fleet.ClustersBehind(who.GetName(), who.GetGroups())
	if len(clusters) == 0 {
		return nil
	}
	if !await(ctx, c.known, nil) {
		return fmt.Errorf("the hub does not know yet from when on certificates hold: %w", ctx.Err())
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, cluster := range clusters {
		if notBefore := c.clusters[cluster]; certificate.NotBefore.Before(notBefore) {
			return fmt.Errorf("the certificate of %q is valid from %s on, and those of cluster %q hold from %s on (%s), "+
				"when the cluster was created or cut off: the agent has to join again", who.GetName(), certificate.NotBefore.UTC().Format(time.RFC3339),
				cluster, notBefore.UTC().Format(time.RFC3339), fleet.AnnotationCredentialsNotBefore)
		}
	}
	return nil
}

// Run follows from when on certificates are accepted, until ctx ends. The API has to serve ManagedClusters. It is called once.
func (c *Credentials) Run(ctx context.Context, client metadata.Interface) error {
	clusters := managedClusters.WithVersion("v1")
	informer := metadatainformer.NewFilteredMetadataInformer(client, clusters, metav1.NamespaceAll, resync, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(onlyCredentials); err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.observe,
		UpdateFunc: func(_, o any) { c.observe(o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if cluster, ok := o.(*metav1.PartialObjectMetadata); ok {
				c.set(cluster.Name, time.Time{})
			}
		},
	})
	if err != nil {
		return err
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			close(c.known)
		}
	}()
	informer.RunWithContext(ctx)
	return nil
}

// onlyCredentials keeps of a cluster what is read here: there is one for each.
func onlyCredentials(o any) (any, error) {
	cluster, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, ResourceVersion: cluster.ResourceVersion}}
	if value, ok := cluster.Annotations[fleet.AnnotationCredentialsNotBefore]; ok {
		kept.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: value}
	}
	return kept, nil
}

// never is when certificates are accepted again of a cluster that says no time: admission refuses that, so a writer has gone around it.
var never = time.Unix(1<<40, 0)

func (c *Credentials) observe(o any) {
	cluster, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	notBefore, err := fleet.CredentialsNotBefore(cluster.Annotations)
	if err != nil {
		klog.Background().Error(err, "All certificates of a cluster are refused", "cluster", cluster.Name)
		notBefore = never
	}
	c.set(cluster.Name, notBefore)
}

// set records from when on the certificates of a cluster are accepted; the zero time stands for always.
func (c *Credentials) set(cluster string, notBefore time.Time) {
	c.mu.Lock()
	before := c.clusters[cluster]
	if notBefore.IsZero() {
		delete(c.clusters, cluster)
	} else {
		c.clusters[cluster] = notBefore
	}
	c.mu.Unlock()
	if notBefore.After(before) && c.watches != nil {
		c.watches.checkFor(cluster)
	}
}
