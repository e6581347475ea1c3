package workload

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/addon"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// side is one of the two clusters that an add-on may have objects on: its own cluster, and the one that hosts its agent.
type side struct {
	hosting bool
	// namespace of the cluster on the hub: the cluster's name.
	namespace string
	// cluster is nil if there is none, or, of a hosting cluster, while it is being deleted.
	cluster *clusterv1.ManagedCluster
	// condition is the type of the condition that reports whether the objects are applied.
	condition string
	// preDelete is the finalizer that keeps the add-on until the hooks on this side are done.
	preDelete finalizer
}

func (p *planner) managedSide() side {
	return side{
		namespace: p.Installation.AddOn.Namespace, cluster: p.Installation.Cluster,
		condition: fleet.ConditionManifestApplied, preDelete: finalizers[0],
	}
}

// hostingSide has no cluster while the hosting cluster is being deleted, because new objects would be left behind there.
func (p *planner) hostingSide() side {
	s := side{hosting: true, condition: fleet.ConditionHostingManifestApplied, preDelete: finalizers[1]}
	if p.hosted() {
		s.namespace = p.Installation.HostingCluster
		if p.Hosting != nil && p.Hosting.DeletionTimestamp.IsZero() {
			s.cluster = p.Hosting
		}
	}
	return s
}

// takesNew reports whether the cluster of a side, which has one, gets new objects; otherwise it keeps those that it has. A hosting cluster
// has to be accepted: an add-on may name any cluster, and the works go to the namespace of that name.
func (s side) takesNew() bool {
	if s.hosting {
		return managedcluster.Accepted(s.cluster)
	}
	return !managedcluster.Denied(s.cluster)
}

// hosted reports whether the agent of the add-on runs on another cluster.
func (p *planner) hosted() bool { return p.Installation.Mode() == addon.Hosted }

// at returns the objects for a side: its hooks, or all others.
func (p *planner) at(s side, hooks bool) (objects []*object) {
	for _, o := range p.objects {
		if o.hook == hooks && p.isFor(o, s) {
			objects = append(objects, o)
		}
	}
	return objects
}

// isFor reports whether an object goes to a side.
func (p *planner) isFor(o *object, s side) bool {
	location := fleet.HostedManifestLocationManaged
	if p.hosted() {
		location = o.location
	}
	if s.hosting {
		return location == fleet.HostedManifestLocationHosting
	}
	return location == fleet.HostedManifestLocationManaged
}

// Validity returns the condition HostingClusterValidity of an add-on in hosted mode; nil in default mode. A Plan has it, too. A caller
// that has no Plan has to write it as well: an add-on without the condition counts as one that runs on its own cluster.
func Validity(in Input) *metav1.Condition {
	p := &planner{Input: in}
	if !p.hosted() {
		return nil
	}
	return new(p.validity())
}

// validity returns the condition HostingClusterValidity.
func (p *planner) validity() metav1.Condition {
	name := p.Installation.HostingCluster
	switch {
	case p.Hosting == nil:
		return falseCondition(fleet.ConditionHostingClusterValidity, fleet.ReasonHostingClusterInvalid,
			fmt.Sprintf("There is no ManagedCluster %s to host the agent: import it, or name another one in the annotation %s",
				name, fleet.AnnotationHostingClusterName))
	case !p.Hosting.DeletionTimestamp.IsZero():
		return falseCondition(fleet.ConditionHostingClusterValidity, fleet.ReasonHostingClusterInvalid,
			fmt.Sprintf("ManagedCluster %s, which hosts the agent, is being deleted: name another one in the annotation %s",
				name, fleet.AnnotationHostingClusterName))
	case !managedcluster.ActedOn(p.Hosting):
		return falseCondition(fleet.ConditionHostingClusterValidity, fleet.ReasonHostingClusterInvalid,
			fmt.Sprintf("ManagedCluster %s, which is to host the agent, is not accepted: accept it, or name another one in the annotation %s",
				name, fleet.AnnotationHostingClusterName))
	default:
		return trueCondition(fleet.ConditionHostingClusterValidity, fleet.ReasonHostingClusterValid,
			fmt.Sprintf("ManagedCluster %s hosts the agent", name))
	}
}

func trueCondition(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func falseCondition(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
