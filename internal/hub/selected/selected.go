// Package selected returns the clusters that the hub acts on because a placement selects them, and makes one error of those of the writes
// to them.
//
// A user with the right to write PlacementDecisions in a namespace can name any clusters in them, and the controllers that read them have
// the right to write to the namespaces of all clusters. So a decision counts only for clusters that a placement of its namespace could
// have selected: they exist, are accepted and not being deleted, and are in a ManagedClusterSet with a binding in the namespace. This is
// checked with these objects on each read, no matter who wrote the decision.
package selected

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/placement/decided"
	"github.com/capstan-io/capstan/internal/rollout"
)

// Reader reads the clusters that placements select.
type Reader struct {
	Client client.Reader
	// Trust accepts all decisions without checks, as Open Cluster Management does.
	Trust bool
}

// Clusters returns the clusters of the decisions of one placement in the namespace that the hub acts on, in the state ToApply, and those
// that it passes over.
func (r Reader) Clusters(ctx context.Context, namespace string, decisions []clusterv1beta1.PlacementDecision) ([]rollout.Cluster,
	decided.PassedOver, error) {
	named := rollout.Selected(decisions)
	if r.Trust || len(named) == 0 {
		return named, nil, nil
	}
	sets, err := r.boundSets(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	passedOver := decided.PassedOver{}
	for _, cluster := range named {
		reason, err := r.reasonNotActedOn(ctx, cluster.Name, namespace, sets)
		if err != nil {
			return nil, nil, err
		}
		if reason != "" {
			passedOver[cluster.Name] = reason
		}
	}
	return slices.DeleteFunc(named, func(c rollout.Cluster) bool { return passedOver[c.Name] != "" }), passedOver, nil
}

// Named is like Clusters, for clusters by their names.
func (r Reader) Named(ctx context.Context, namespace string, names ...string) ([]rollout.Cluster, decided.PassedOver, error) {
	decision := clusterv1beta1.PlacementDecision{}
	for _, name := range names {
		decision.Status.Decisions = append(decision.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
	}
	return r.Clusters(ctx, namespace, []clusterv1beta1.PlacementDecision{decision})
}

// boundSets returns the selectors of the ManagedClusterSets with a binding in the namespace. As for the scheduler, bindings count by
// their names.
func (r Reader) boundSets(ctx context.Context, namespace string) (members []labels.Selector, err error) {
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := r.Client.List(ctx, bindings, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the ManagedClusterSetBindings of namespace %s: %w", namespace, err)
	}
	for i := range bindings.Items {
		set := &clusterv1beta2.ManagedClusterSet{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: bindings.Items[i].Name}, set)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get ManagedClusterSet %s: %w", bindings.Items[i].Name, err)
		}
		// A set with an invalid selector has no members; its status says so.
		if selector, err := managedcluster.SetSelector(set); err == nil {
			members = append(members, selector)
		}
	}
	return members, nil
}

// reasonNotActedOn returns why the hub does not act on a cluster; empty if it does.
func (r Reader) reasonNotActedOn(ctx context.Context, name, namespace string, sets []labels.Selector) (string, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, cluster, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return decided.WhyPassedOver(nil, namespace, sets), nil
	case err != nil:
		return "", fmt.Errorf("get ManagedCluster %s: %w", name, err)
	}
	return decided.WhyPassedOver(cluster, namespace, sets), nil
}
