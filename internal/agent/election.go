package agent

import (
	"context"
	"errors"
	"fmt"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// elects reports whether several replicas may run as this agent, so that one of them has to be the one that acts. They share an
// identity through the Secret, or through a volume of it; an agent that keeps it in files of its own is the only one of its kind.
func (a *Agent) elects() bool {
	return (a.LeaderElect || a.HubKubeconfigSecret != "") && !a.DisableLeaderElection
}

// lock is the name of the Lease, in the agent's namespace. Registration and work in processes of their own do not compete.
func (p Parts) lock() string {
	switch {
	case !p.Work:
		return fleet.LeaseRegistrationAgent
	case !p.Registration:
		return fleet.LeaseWorkAgent
	}
	return fleet.LeaseKlusterletAgent
}

// asLeader calls act once this replica leads, and fails when another one leads instead: the process then has to end, and its
// successor waits to lead again.
func (a *Agent) asLeader(ctx context.Context, act func(context.Context) error) error {
	if !a.elects() {
		return act(ctx)
	}
	leases, err := coordinationv1client.NewForConfig(a.management)
	if err != nil {
		return fmt.Errorf("make a client for the election of a leader: %w", err)
	}
	log.FromContext(ctx).Info("Waiting to lead the replicas of this agent", "namespace", a.Namespace, "lease", a.parts.lock())
	lock, err := leaderelection.Lock(leases, a.Namespace, a.parts.lock())
	if err != nil {
		return err
	}
	err = leaderelection.Lead(ctx, lock, act)
	if errors.Is(err, leaderelection.ErrLost) {
		return fmt.Errorf("this replica of the agent does not lead any more: %w", err)
	}
	return err
}
