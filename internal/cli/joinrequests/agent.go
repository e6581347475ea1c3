package joinrequests

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Agent is an agent that has been started to join a hub.
type Agent struct {
	Cluster string
	// User is who it is on the hub; empty while that is not known.
	User func() string
	// Earlier are the certificate requests of the cluster that the hub had before the agent was started, as Names returns them.
	Earlier map[string]bool
	// Credential is the hub as the agent reaches it with what it has obtained in an earlier run; nil if there is none.
	Credential *hubapi.Hub
}

// InvisibleError is why it cannot be seen whether an agent works with a hub.
type InvisibleError struct{ Reason string }

// Error says so.
func (e *InvisibleError) Error() string {
	return "whether its agent works with the hub cannot be seen from here: " + e.Reason
}

var (
	errHidden = &InvisibleError{"the hub does not let you see certificate requests"}
	errIdle   = &InvisibleError{"it has a certificate of the hub, and does nothing there before the cluster is accepted"}
)

// AwaitRegistered returns once the agent requests a certificate, or renews the lease of its cluster with the credential that it has.
// Whatever else the hub has of the cluster may be from before, or of another agent. It fails with an InvisibleError where neither can be
// seen.
func (a Agent) AwaitRegistered(ctx context.Context, hub *hubapi.Hub) error {
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	requested, renewed := make(chan error, 1), make(chan error, 1)
	go func() { requested <- a.awaitRequest(either, hub) }()
	if a.Credential != nil {
		go func() { renewed <- awaitNextHeartbeat(either, a.Credential, a.Cluster) }()
	}
	hidden := false
	for {
		select {
		case err := <-requested:
			if !apierrors.IsForbidden(err) {
				return err
			}
			if hidden = true; a.Credential == nil {
				return errHidden
			}
		case err := <-renewed:
			switch {
			case err == nil || ctx.Err() != nil:
				return err
			case apierrors.IsForbidden(err):
				return errIdle
			case hidden:
				return errHidden
			}
			a.Credential, renewed = nil, nil
		}
	}
}

// awaitRequest returns once the agent has a pending certificate request, or has made one that is not among the earlier ones.
func (a Agent) awaitRequest(ctx context.Context, hub *hubapi.Hub) error {
	err := hubapi.Until(ctx, hub.Client(Resource), ofCluster(a.Cluster), func(csr *certificatesv1.CertificateSigningRequest) bool {
		commonName, _, _ := checkSubject(csr, a.Cluster)
		return commonName != "" && commonName == a.User() && (len(csr.Status.Conditions) == 0 || !a.Earlier[csr.Name])
	})
	return hub.Explain("wait for a certificate request of cluster "+a.Cluster, err)
}

// awaitNextHeartbeat returns once the agent of a cluster has renewed its lease, whatever its clock says.
func awaitNextHeartbeat(ctx context.Context, hub *hubapi.Hub, cluster string) error {
	leases := hub.Client(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(cluster)
	last := &coordinationv1.Lease{}
	// It is read before it is watched: the first that a watch has of it may be renewed already. What keeps it from being read, the watch says.
	seen := leases.Get(ctx, fleet.ClusterNamespaceLease, last) == nil
	err := hubapi.Until(ctx, leases, hubapi.Named(fleet.ClusterNamespaceLease), func(lease *coordinationv1.Lease) bool {
		renewed := seen && !lease.Spec.RenewTime.Equal(last.Spec.RenewTime)
		last, seen = lease, true
		return renewed
	})
	return hub.Explain("wait for the agent of cluster "+cluster, err)
}
