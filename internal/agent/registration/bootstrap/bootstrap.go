// Package bootstrap registers an agent with a hub: with a credential that may only join, it creates the
// ManagedCluster and requests the client certificate under which the agent will work. Where there are several hubs it
// chooses one, and it follows what the bootstrap kubeconfigs say of them.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/hubreport"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// registrationBackoff has the delays between attempts to register, with a jitter: a fleet that a hub could not take at once does not come
// back at once.
func registrationBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 16, Cap: 30 * time.Second}
}

// pendingRetry is the longest wait for a hub to accept the cluster while the agent has a credential, whose hub may answer to that again
// meanwhile.
const pendingRetry = 30 * time.Second

// undecidedCheck is the time between two looks whether the hub still has the ManagedCluster whose certificate request is undecided.
const undecidedCheck = 5 * time.Minute

// Bootstrap registers one agent with one of its hubs, and again where it has to.
type Bootstrap struct {
	// Kubeconfigs are the files with the bootstrap credentials, one for each hub, in the order of preference. They are read
	// for every attempt, so that a new one is taken up.
	Kubeconfigs []string
	// Access is the transport to the hubs; nil stands for that to their API servers. For other transports, Kubeconfigs say where the hubs are.
	Access *hubaccess.Access
	// Identity is the name under which to register.
	Identity identity.Identity
	// ClientConfigs say how the hub's users may reach the cluster.
	ClientConfigs []clusterv1.ClientConfig
	// Annotations go on the ManagedCluster.
	Annotations map[string]string
	// Labels go on it, too, if the hub lets the agent set labels.
	Labels map[string]string
	// CertificateLifetime requests a validity of the client certificate; zero leaves it to the hub.
	CertificateLifetime time.Duration
	// AWS registers by AWS IAM; nil means by a certificate request.
	AWS *eks.Pair
	// Store receives the credential.
	Store *hubkubeconfig.Store
	// Record takes the events of registration.
	Record clientcert.Recorder
	// Report takes the results of attempts; nil if nobody wants them.
	Report *hubreport.Report
	Clock  clock.Clock

	left       *departure
	registered bool
	reported   string // the hub that was last logged as the one to register with
	lack       string // what was last reported to be wrong with the credential
	// notBefore is from when on the hub takes certificates of the cluster; the zero time stands for always.
	notBefore time.Time
}

// departure is from a hub that the agent could not work with any more.
type departure struct {
	file    string // of its bootstrap kubeconfig; empty if there is none any more
	refused bool   // the hub does not know the certificate
}

// Leave makes the next Ensure turn to another hub, if one accepts registrations of the cluster. refused says that the hub does not
// know the credential, which is then not used again.
func (b *Bootstrap) Leave(refused bool) {
	b.left = &departure{refused: refused}
	credential, err := b.Store.Load()
	if err != nil || credential == nil {
		return
	}
	for _, c := range b.candidates() {
		if c.err == nil && credential.MadeFor(c.config) == nil {
			b.left.file = c.file
			return
		}
	}
}

// Ensure returns once the store holds a credential to work with, registering for as long as that takes. Why an attempt
// fails is logged each time. It fails only when the context ends.
func (b *Bootstrap) Ensure(ctx context.Context) error {
	b.registered = false
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := b.watch(watching)
	backoff := registrationBackoff()
	for {
		changed, err := b.attemptUntil(ctx, changes)
		switch {
		case err == nil:
			b.left, b.reported = nil, ""
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case changed:
			log.FromContext(ctx).Info("The bootstrap kubeconfig changed; registering again")
			backoff = registrationBackoff()
			continue
		case errors.Is(err, errNotAccepted):
			continue
		}
		b.reportFailure(ctx, err)
		delay := backoff.Step()
		log.FromContext(ctx).Error(explain(err, strings.Join(b.Kubeconfigs, ", ")), "Registration failed and is tried again", "after",
			delay.Round(time.Millisecond).String())
		timer := b.Clock.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-changes:
			backoff = registrationBackoff()
		case <-timer.C():
		}
		timer.Stop()
	}
}

// Registered reports whether the last Ensure has registered, so that the credential is as the bootstrap kubeconfig says of the hub.
func (b *Bootstrap) Registered() bool { return b.registered }

// reportFailure reports an attempt that failed, unless the hub has denied the request of a certificate: it is reached.
func (b *Bootstrap) reportFailure(ctx context.Context, err error) {
	var denied *clientcert.DeniedError
	if !errors.As(err, &denied) {
		b.Report.Attempted(ctx, err)
	}
}

// attemptUntil makes an attempt, which a change of the bootstrap kubeconfigs ends.
func (b *Bootstrap) attemptUntil(ctx context.Context, changes <-chan struct{}) (changed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.attempt(ctx) }()
	select {
	case err := <-done:
		return false, err
	case <-changes:
		cancel()
		err := <-done
		return err != nil, err
	}
}

// attempt tries once to get a credential for the hub. A credential that is valid is used even when the bootstrap kubeconfig has become
// unusable.
func (b *Bootstrap) attempt(ctx context.Context) error {
	if err := b.Store.Restore(ctx); err != nil {
		return err
	}
	credential, err := b.credential(ctx)
	if err != nil {
		return err
	}
	if credential != nil {
		stays, err := b.stays(ctx, credential)
		if stays || err != nil {
			return err
		}
	}
	hub, err := b.choose(ctx, b.candidates())
	if err != nil {
		return err
	}
	if credential == nil {
		return b.register(ctx, hub)
	}
	waiting, cancel := context.WithTimeout(ctx, pendingRetry)
	defer cancel()
	err = b.register(waiting, hub)
	if err != nil && waiting.Err() != nil {
		return errNotAccepted
	}
	return err
}

// errNotAccepted says that the hub has not accepted the cluster yet.
var errNotAccepted = errors.New("the hub has not let the cluster in yet")

// credential is the one in the store; nil if there is none that may be used.
func (b *Bootstrap) credential(ctx context.Context) (*hubkubeconfig.Credential, error) {
	credential, err := b.Store.Load()
	if err != nil {
		return nil, err
	}
	if credential == nil {
		b.recordLack(corev1.EventTypeNormal, fleet.EventNoValidCertificateFound, "There is no client certificate for the hub; registering")
		return nil, nil
	}
	if invalid := credential.Valid(b.Identity, b.Clock.Now()); invalid != nil {
		log.FromContext(ctx).Info("The hub credential cannot be used any more; registering again", "reason", invalid.Error())
		b.recordLack(corev1.EventTypeWarning, fleet.EventCertificateValidationFailed, "The hub credential cannot be used any more: "+
			invalid.Error()+"; registering again")
		return nil, nil
	}
	command := b.command()
	if other := credential.MadeBy(command); other != nil {
		log.FromContext(ctx).Info("The hub credential is not what this agent is to use; registering again", "reason", other.Error())
		return nil, nil
	}
	if command != nil && !credential.RunsAs(command) {
		if credential, err = b.replaceCommand(ctx, command); err != nil {
			return nil, err
		}
	}
	b.lack = ""
	credential.Identity = b.Identity
	return credential, nil
}

// recordLack records once, and not at every attempt, why the agent registers.
func (b *Bootstrap) recordLack(eventType, reason, note string) {
	if b.lack == note {
		return
	}
	b.lack = note
	b.Record(eventType, reason, "Register", "%s", note)
}

// stays reports whether the agent goes on with the credential that it has.
func (b *Bootstrap) stays(ctx context.Context, credential *hubkubeconfig.Credential) (bool, error) {
	switch {
	case b.left == nil:
		found, err := b.syncCredential(ctx, credential)
		return found != credentialForeign, err
	case b.left.refused:
		return b.checkAuthentication(ctx, credential) == nil, nil
	case b.left.file != "":
		return b.hasBack(ctx, credential), nil
	}
	return false, nil
}

func (b *Bootstrap) register(ctx context.Context, c *candidate) error {
	config, err := b.registrationConfig(ctx, c, b.Identity.Cluster)
	if err != nil {
		return err
	}
	hub, closeIdle, err := newClient(config)
	if err != nil {
		return fmt.Errorf("use the bootstrap kubeconfig: %w", err)
	}
	defer closeIdle()
	// The ManagedCluster comes first: a hub that refuses it must not be left with a request at every attempt.
	created, err := b.ensureManagedCluster(ctx, hub)
	if err != nil {
		return err
	}
	b.Report.Attempted(ctx, nil)
	b.reportHub(ctx, config.Host)
	if b.AWS != nil {
		return b.registerByAWS(ctx, hub, c)
	}
	for {
		if err := b.obtain(ctx, hub, c, config.Host, created); err != nil {
			return err
		}
		// A request is for the ManagedCluster that there was: to accept the one that has been created again, the hub needs another.
		if created, err = b.awaitAccepted(ctx, hub); err != nil || !created {
			return err
		}
	}
}

// obtain requests a certificate, and stores it as the credential for the hub.
func (b *Bootstrap) obtain(ctx context.Context, hub client.WithWatch, c *candidate, host string, created bool) error {
	requester := &clientcert.Requester{Hub: hub, Keys: b.Store, Identity: b.Identity, Lifetime: b.CertificateLifetime,
		Signer: b.access().Signer, Brokered: b.access().Brokered, NewCluster: created, NotBefore: b.notBefore,
		Clock: b.Clock, Record: b.Record}
	certificate, key, err := b.request(ctx, requester)
	if err != nil {
		return err
	}
	credential, err := hubkubeconfig.New(c.config, b.Identity, certificate, key)
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", c.file, err)
	}
	if err := b.Store.Save(ctx, credential); err != nil {
		return err
	}
	// From now on, the credential is of this hub: if the wait for its acceptance ends early, the next attempt goes on with it.
	b.registered, b.left = true, nil
	b.Record(corev1.EventTypeNormal, fleet.EventHubClientConfigReady, "Register", "The hub kubeconfig for %s is ready", host)
	return nil
}

// request returns when the hub has issued a certificate for the ManagedCluster that there is. One that is created again gets a request of
// its own.
func (b *Bootstrap) request(ctx context.Context, requester *clientcert.Requester) (certificate, key []byte, err error) {
	for {
		waiting, cancel := context.WithCancel(ctx)
		recreated := make(chan bool, 1)
		go func() {
			recreated <- b.awaitRecreated(waiting, requester.Hub)
			cancel()
		}()
		certificate, key, err = requester.Request(waiting)
		cancel()
		if !<-recreated {
			return certificate, key, err
		}
		requester.NewCluster = true
	}
}

// reportHub logs and records once which hub the agent turns to.
func (b *Bootstrap) reportHub(ctx context.Context, hub string) {
	if b.reported == hub {
		return
	}
	b.reported = hub
	log.FromContext(ctx).Info("Registering; an administrator of the hub has to accept the cluster", "hub", hub,
		"command", "capstan accept --clusters "+b.Identity.Cluster)
	b.Record(corev1.EventTypeNormal, fleet.EventBootstrapSelected, "Register", "Registering with hub %s", hub)
}

// registrationConfig is how to reach a hub to register. An earlier credential for it, expired perhaps, knows the CA that the
// hub has moved on to since the bootstrap kubeconfig was made.
func (b *Bootstrap) registrationConfig(ctx context.Context, c *candidate, cluster string) (*rest.Config, error) {
	config := c.config.DeepCopy()
	earlier, err := b.Store.Load()
	if err == nil && earlier != nil && earlier.MadeFor(c.config) == nil {
		if bundle, err := earlier.TrustBundle(); err == nil && len(bundle) > 0 {
			for _, hub := range config.Clusters {
				hub.CertificateAuthorityData = bundle
			}
		}
	}
	return b.connect(ctx, c.file, config, cluster)
}

// connect returns how clients for a cluster reach a hub, until the context ends.
func (b *Bootstrap) connect(ctx context.Context, file string, config *clientcmdapi.Config, cluster string) (*rest.Config, error) {
	reached, err := b.access().Connect(ctx, config, cluster)
	if err != nil {
		return nil, fmt.Errorf("bootstrap kubeconfig %s: %w", file, err)
	}
	return reached, nil
}

// newClient returns a client for a few requests, and what closes its connections then: a hub has better use for its memory.
func newClient(config *rest.Config) (hub client.WithWatch, closeIdle func(), err error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	closeIdle = func() {}
	if config.Transport == nil { // else the connections belong to others
		closeIdle = func() { utilnet.CloseIdleConnectionsFor(transport.Transport) }
	}
	hub, err = hubclient.NewOver(transport, config)
	return hub, closeIdle, err
}

func (b *Bootstrap) access() *hubaccess.Access {
	if b.Access == nil {
		return hubaccess.API
	}
	return b.Access
}

// ensureManagedCluster creates the ManagedCluster if it does not exist, never accepted: that is for an administrator. It creates before it
// reads, because most agents that register are those of new clusters.
func (b *Bootstrap) ensureManagedCluster(ctx context.Context, hub client.Client) (created bool, _ error) {
	cluster := &clusterv1.ManagedCluster{}
	cluster.Name = b.Identity.Cluster
	cluster.Annotations, cluster.Labels = b.annotations(), b.Labels
	cluster.Spec.ManagedClusterClientConfigs = b.ClientConfigs
	b.notBefore = time.Time{}
	refused := hub.Create(ctx, cluster)
	if refused != nil {
		// Whatever the reason: to an agent that may create no more clusters, a hub does not say that there is this one.
		existing := &clusterv1.ManagedCluster{}
		err := hub.Get(ctx, client.ObjectKeyFromObject(cluster), existing)
		if err == nil {
			b.warnOfNameClash(ctx, existing)
			b.notBefore, _ = fleet.CredentialsNotBefore(existing.Annotations) // what is no time leaves all requests
			return false, b.checkAWSAnnotations(existing)
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("get ManagedCluster %s: %w", b.Identity.Cluster, err)
		}
	}
	if apierrors.IsForbidden(refused) && len(b.Labels) > 0 {
		log.FromContext(ctx).Info("The hub does not let the agent set labels, and gets none; let an administrator of the hub set them", "labels", b.Labels,
			"reason", refused.Error())
		cluster.Labels = nil
		refused = hub.Create(ctx, cluster)
	}
	if refused != nil {
		return false, fmt.Errorf("create ManagedCluster %s: %w", b.Identity.Cluster, refused)
	}
	b.Record(corev1.EventTypeNormal, fleet.EventManagedClusterCreated, "Register", "ManagedCluster %s is created on the hub",
		b.Identity.Cluster)
	return true, nil
}

// warnOfNameClash logs that two clusters may be about to share a name. It may also be the same cluster that has lost
// its credential, so the decision is left to the administrator who accepts it.
func (b *Bootstrap) warnOfNameClash(ctx context.Context, cluster *clusterv1.ManagedCluster) {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionJoined) {
		return
	}
	log.FromContext(ctx).Info("A cluster of this name has joined the hub before. If it was another one, stop this agent and choose another --cluster-name: "+
		"both would report as the same cluster and apply the same works", "cluster", cluster.Name, "agent", b.Identity.Agent)
}

// explain adds to an error what to do about it.
func explain(err error, kubeconfig string) error {
	var denied *clientcert.DeniedError
	switch {
	case errors.As(err, &denied):
		return fmt.Errorf("%w; if that was a mistake, delete the request on the hub and a new one is made: kubectl delete csr %s", err,
			denied.Request)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the hub does not accept the bootstrap credential in %s; its token is wrong or has expired: get a new one with «capstan get token» "+
			"on the hub and put it there: %w", kubeconfig, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the bootstrap credential in %s lacks a right on the hub; use one from «capstan get token»: %w", kubeconfig, err)
	}
	return err
}
