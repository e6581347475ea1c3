package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/registration/bootstrap"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// identify finds out who the agent is. The Secret comes before the folder, which may be a new pod's. A work agent in its own process has
// the identity of the credential that registration obtains.
func (a *Agent) identify(ctx context.Context) error {
	if !a.parts.Registration {
		return nil
	}
	for backoff := restartBackoff(); ; {
		err := a.store.Restore(ctx)
		if err == nil {
			break
		}
		delay := backoff.Step()
		log.FromContext(ctx).Error(err, "The hub credential could not be looked for; that is tried again", "after", delay.String())
		if !a.sleep(ctx, delay) {
			return ctx.Err()
		}
	}
	var err error
	a.identity, err = identity.Resolve(a.ClusterName, a.AgentID, a.HubKubeconfigDir)
	return err
}

// ensureCredential returns when the agent has a credential for the hub. A work agent in its own process waits until registration has
// obtained it.
func (a *Agent) ensureCredential(ctx context.Context) error {
	if !a.parts.Registration {
		return a.awaitCredential(ctx)
	}
	return a.bootstrap.Ensure(ctx)
}

func (a *Agent) newBootstrap() *bootstrap.Bootstrap {
	annotations, _ := a.annotations()
	return &bootstrap.Bootstrap{
		Kubeconfigs: a.bootstrapKubeconfigs(), Access: a.registrationAccess(), Identity: a.identity, ClientConfigs: a.clientConfigs,
		Annotations:         annotations,
		Labels:              a.ClusterLabels,
		AWS:                 a.aws,
		CertificateLifetime: a.certificateLifetime(), Store: a.store, Record: a.record, Report: a.report, Clock: a.clock,
	}
}

// credentialPollInterval is how often a work agent in its own process polls for the credential: another process writes it, perhaps to
// files, for which there is no watch through an API.
const credentialPollInterval = time.Second

func (a *Agent) awaitCredential(ctx context.Context) error {
	logged := ""
	for {
		err := a.takeOverCredential(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != logged {
			logged = err.Error()
			log.FromContext(ctx).Info("Waiting for the registration agent to obtain the credential for the hub", "reason", logged)
		}
		if !a.sleep(ctx, credentialPollInterval) {
			return ctx.Err()
		}
	}
}

// takeOverCredential gives a work agent in its own process the identity of the credential. It fails while there is none that can be used.
func (a *Agent) takeOverCredential(ctx context.Context) error {
	if err := a.store.Restore(ctx); err != nil {
		return err
	}
	credential, err := a.store.Load()
	if err != nil {
		return err
	}
	if credential == nil {
		return fmt.Errorf("there is none in %s yet", a.HubKubeconfigDir)
	}
	holder, err := credential.Holder()
	switch {
	case err != nil:
		return err
	case a.ClusterName != "" && holder.Cluster != a.ClusterName:
		return fmt.Errorf("the one in %s is of cluster %q, and --spoke-cluster-name says %q", a.HubKubeconfigDir, holder.Cluster, a.ClusterName)
	}
	if err := credential.Valid(holder, a.clock.Now()); err != nil {
		return err
	}
	a.identity = holder
	return nil
}

// hubHashOf stands for the hub on the managed cluster. A hub that has moved with its keys is the same hub, and keeps the hash of the
// address at which the agent registered: under another hash, Jobs that have ended would run again, and what completed works have applied
// would be evicted.
func (a *Agent) hubHashOf(config *rest.Config) (string, error) {
	if a.access.Brokered {
		return fleet.HubHash(config.Host), nil
	}
	credential, err := a.store.Load()
	if err != nil || credential == nil {
		return fleet.HubHash(config.Host), err
	}
	first, err := credential.MovedFrom()
	return fleet.HubHash(cmp.Or(first, config.Host)), err
}

// appliedBy is the agent ID in AppliedManifestWorks.
func (a *Agent) appliedBy(hubHash string) string {
	switch {
	case a.AgentID != "":
		return a.AgentID
	case a.parts.Registration:
		return a.identity.Agent
	default:
		return hubHash
	}
}

func (a *Agent) certificateLifetime() time.Duration {
	return time.Duration(a.ClientCertExpirationSeconds) * time.Second
}
