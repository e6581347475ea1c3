// Package deletion takes off the managed cluster what ManifestWorks have put there.
//
// The objects of a work are owned by its AppliedManifestWork, which lists them. What ends a work deletes the AppliedManifestWork, and the
// end of that one deletes the objects. Objects that a work gives up while it stays are deleted alone.
package deletion

import (
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// Cluster is where the objects are.
type Cluster struct {
	Objects metadata.Interface
	// Complete reads what metadata does not have.
	Complete dynamic.Interface
	// Discovery has which resources are served, and in which version.
	Discovery discovery.DiscoveryInterfaceWithContext
	Tracked   *tracker.Tracker
	// requested has the objects whose deletion was requested, by UID: of these, the tracker is trusted when it reports that they have
	// gone, or that nothing has happened yet, so that a work of a thousand objects does not read each of them again.
	requested sync.Map
	delays    delays
}

// Options configure the controllers of AppliedManifestWorks.
type Options struct {
	// Hub has the ManifestWorks.
	Hub cluster.Cluster
	// Applied deletes objects from the managed cluster.
	Applied *Cluster
	// Namespace of the works on the hub: the cluster's name.
	Namespace string
	// HubHash distinguishes AppliedManifestWorks of this hub from those of others.
	HubHash string
	// AgentID is recorded with what this agent applies, for whatever hub.
	AgentID string
	// Clusters knows which other clusters are on the hub.
	Clusters *predecessor.Clusters
	// GracePeriod is the time from the moment that a work is missed to the deletion of its AppliedManifestWork.
	GracePeriod time.Duration
	// Workers is how many AppliedManifestWorks are finalized at once.
	Workers int
	Clock   clock.PassiveClock
}

// Register adds the controllers to the manager of the managed cluster: the one that finalizes AppliedManifestWorks, and the one that
// deletes those without a work.
func Register(mgr ctrl.Manager, o Options) error {
	if err := registerFinalizer(mgr, o); err != nil {
		return err
	}
	return registerEvictor(mgr, o)
}
