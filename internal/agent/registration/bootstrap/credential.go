package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// credentialState is how a credential fits the bootstrap kubeconfigs.
type credentialState int

const (
	// credentialCurrent: it is of a hub that they name, or they cannot be read.
	credentialCurrent credentialState = iota
	// credentialUnknown: what they say of the hub has changed, and whether the hub knows the credential cannot be found out now.
	credentialUnknown
	// credentialForeign: they name other hubs, which do not know the credential.
	credentialForeign
)

// syncCredential brings a credential in line with the bootstrap kubeconfigs. What these say of the hub may change, its CA or its
// proxy for instance, while it stays the same hub: the client certificate is then kept, if the hub knows it.
func (b *Bootstrap) syncCredential(ctx context.Context, credential *hubkubeconfig.Credential) (credentialState, error) {
	var changed []candidate
	var change error
	for _, c := range b.candidates() {
		if c.err != nil {
			continue
		}
		if change = credential.MadeFor(c.config); change == nil {
			return credentialCurrent, nil
		}
		changed = append(changed, c)
	}
	if len(changed) == 0 {
		return credentialCurrent, nil
	}
	log.FromContext(ctx).Info("The bootstrap kubeconfig changed", "change", change.Error())
	found := credentialForeign
	for _, c := range changed {
		next, err := credential.For(c.config)
		if err != nil {
			return credentialCurrent, fmt.Errorf("bootstrap kubeconfig %s: %w", c.file, err)
		}
		switch err := b.checkAuthentication(ctx, next); {
		case err == nil:
			log.FromContext(ctx).Info("The hub knows the client certificate, which is kept")
			err := b.Store.Update(ctx, func(now hubkubeconfig.Credential) (*hubkubeconfig.Credential, error) { return now.For(c.config) })
			if err == nil {
				b.Record(corev1.EventTypeNormal, fleet.EventAdditionalSecretDataChanged, "Register",
					"The bootstrap kubeconfig changed, and the hub kubeconfig with it: %v", credential.MadeFor(c.config))
			}
			return credentialCurrent, err
		case !apierrors.IsUnauthorized(err), apierrors.IsUnexpectedServerError(err):
			log.FromContext(ctx).Info("The hub cannot be reached as the bootstrap kubeconfig now says", "file", c.file, "reason", err.Error())
			found = credentialUnknown
		}
	}
	return found, nil
}

// checkAuthentication fails if the hub does not authenticate the credential. What the credential may read there does not matter, and what a
// proxy answers says nothing of the hub.
func (b *Bootstrap) checkAuthentication(ctx context.Context, credential *hubkubeconfig.Credential) error {
	_, err := b.ownCluster(ctx, credential)
	if apierrors.IsUnexpectedServerError(err) {
		return fmt.Errorf("it is not the hub that answers: %w", err)
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// hasBack reports whether the hub that the agent has left answers to the agent's own credential again, and does not deny the cluster.
// Bootstrap credentials do not matter: they may have expired long since.
func (b *Bootstrap) hasBack(ctx context.Context, credential *hubkubeconfig.Credential) bool {
	cluster, err := b.ownCluster(ctx, credential)
	return err == nil && !monitor.Denies(cluster)
}

// ownCluster is the ManagedCluster of the agent, as the hub shows it to the credential.
func (b *Bootstrap) ownCluster(ctx context.Context, credential *hubkubeconfig.Credential) (*clusterv1.ManagedCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	config, err := credential.ClientConfig(ctx, b.access())
	if err != nil {
		return nil, err
	}
	hub, closeIdle, err := newClient(config)
	if err != nil {
		return nil, err
	}
	defer closeIdle()
	cluster := &clusterv1.ManagedCluster{}
	err = hub.Get(ctx, client.ObjectKey{Name: b.Identity.Cluster}, cluster)
	return cluster, err
}

// ChangedError ends the work on a hub that the bootstrap kubeconfigs do not name any more.
type ChangedError struct{}

func (*ChangedError) Error() string {
	return "the bootstrap kubeconfig is of another hub now, which does not know the client certificate"
}

// changeBackoff has the delays before a bootstrap kubeconfig is tried again that differs from the credential and whose hub does not answer.
// Meanwhile the agent works with the hub of its credential.
func changeBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Steps: 16, Cap: 10 * time.Minute}
}

// Follow syncs the credential in the store at once, as the bootstrap kubeconfigs may have changed since Ensure read them, and
// again whenever they change, until the context ends. It is what makes a changed hub CA, proxy or address take effect while the
// agent works. It returns a *ChangedError when the agent has to register again.
func (b *Bootstrap) Follow(ctx context.Context) error {
	changes := b.watch(ctx)
	for backoff := changeBackoff(); ; {
		credential, err := b.Store.Load()
		if err == nil && credential == nil {
			return nil // the rotation sees that too
		}
		found := credentialUnknown
		if err == nil {
			credential.Identity = b.Identity
			found, err = b.syncCredential(ctx, credential)
		}
		var again <-chan time.Time
		switch {
		case err != nil, found == credentialUnknown:
			delay := backoff.Step()
			if err != nil {
				log.FromContext(ctx).Error(err, "The change of the bootstrap kubeconfig has no effect yet; that is tried again", "after",
					delay.String())
			}
			again = b.Clock.After(delay)
		case found == credentialForeign:
			return &ChangedError{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			backoff = changeBackoff()
		case <-again:
		}
	}
}

// watch notifies of changes of the bootstrap kubeconfigs from now on, until the context ends.
func (b *Bootstrap) watch(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	files := filewatch.New(b.files)
	go files.Run(ctx, func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	return changes
}
