// Package deletion takes off the managed cluster what ManifestWorks have put there.
//
// The objects of a work are owned by its AppliedManifestWork, which lists them. What ends a work deletes the AppliedManifestWork, and its
// finalizer deletes the objects. Objects that a work gives up while it stays are deleted by themselves.
//
//	event                                              deletes                        in
//	a work is deleted on the hub                       its AppliedManifestWork        manifestwork.go
//	a work is missing on the hub for the grace period  its AppliedManifestWork        evict.go
//	an AppliedManifestWork is deleted, by whomever     the objects that it owns       finalize.go
//	a work does not name an object any more            the object                     prune.go
//
// A work whose time to live is over is deleted by the hub: to the agent, it is deleted as any other.
//
// # The order
//
//  1. A work is deleted on the hub, where its finalizer keeps it. Package apply calls DeleteApplied.
//  2. DeleteApplied releases the objects that the delete option orphans (release.go), has the AppliedManifestWork say by which
//     propagation policy the others are deleted, and deletes it; its finalizer keeps it, too. An eviction deletes it as it is.
//     A delete option that changes later has it release objects, or change the policy, while the AppliedManifestWork is being deleted.
//  3. Finalizer deletes the objects that the AppliedManifestWork owns, many at a time: definitions after all others, and then namespaces
//     (remove.go). An object that other works own as well only loses one owner.
//  4. While objects do not go, Finalizer says what they wait for (delay.go). When all have gone, it removes the finalizer of the
//     AppliedManifestWork.
//  5. The end of the AppliedManifestWork requeues the work, and package apply removes the finalizer of the work.
//
// # What is in package apply
//
// The first and the last step are in apply/finalize.go, because a work has one controller for passes over it and for its deletion: these
// never run at once, and share what is remembered of the work, and of a hub that does not answer. A pass finds out which objects are
// obsolete, and calls Prune (apply/inventory.go). It deletes an AppliedManifestWork that it has just made, and that owns nothing, if the
// work gets no finalizer (apply/appliedwork.go): nothing else would.
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
	// HasAnswered reports whether a source of works counts as having answered: it has said itself which works it has since the agent started,
	// or has been silent for the given time. It is nil where there is one source, the hub.
	HasAnswered func(source string, patience time.Duration) (counts, itself bool)
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
