package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ConflictKind is what the installation of an agent would do to one that the cluster has.
type ConflictKind int

// Kinds of conflicts.
const (
	// ConflictDeletion is with a Klusterlet that is being deleted: it would be gone once its operator takes its finalizers off.
	ConflictDeletion ConflictKind = iota + 1
	// ConflictCluster is with a Klusterlet for another cluster.
	ConflictCluster
	// ConflictInstaller is with another tool, which keeps the Klusterlet.
	ConflictInstaller
	// ConflictHub is with another hub, which would lose its agent.
	ConflictHub
	// ConflictNamespace is with the agent of another Klusterlet in the same namespace, whose credentials would be replaced.
	ConflictNamespace
)

// Conflict is why an agent is not installed in a cluster that has one.
type Conflict struct {
	Kind ConflictKind
	// Klusterlet is the one that the cluster has, and Cluster the name that its cluster has on the hub, but for ConflictNamespace.
	Klusterlet *operatorv1.Klusterlet
	Cluster    string
	// Installed is the Klusterlet that would be installed in the same namespace, for ConflictNamespace.
	Installed *unstructured.Unstructured
	message   string
}

// Error implements error.
func (c *Conflict) Error() string { return c.message }

// CheckAgents refuses, with a Conflict, to install an agent for a cluster where that would do harm to one that is there.
func (c *Cluster) CheckAgents(ctx context.Context, cluster string, objects []*unstructured.Unstructured) error {
	existing, err := c.Klusterlets(ctx)
	if err != nil {
		return err
	}
	for i := range existing {
		if err := c.CheckKlusterlet(ctx, cluster, &existing[i], objects); err != nil {
			return err
		}
		move, err := c.MoveOf(ctx, &existing[i], objects)
		if err != nil {
			return err
		}
		if err := move.Check(cluster); err != nil {
			return err
		}
	}
	return nil
}

// CheckKlusterlet refuses, with a Conflict, to make a Klusterlet that is for one cluster into one for another, to install one that is being
// deleted or that another tool keeps, and to install another one in its namespace.
func (c *Cluster) CheckKlusterlet(ctx context.Context, cluster string, existing *operatorv1.Klusterlet,
	objects []*unstructured.Unstructured) error {
	if Find(objects, KindKlusterlet.Kind, existing.Name) == nil {
		return checkNamespaceOfAgent(existing, objects)
	}
	other, err := c.ClusterNameOf(ctx, existing)
	if err != nil {
		return err
	}
	conflict := &Conflict{Klusterlet: existing, Cluster: cmp.Or(other, cluster)}
	by := InstallerOf(existing.Labels, existing.Annotations)
	switch {
	case existing.DeletionTimestamp != nil:
		conflict.Kind, conflict.message = ConflictDeletion, fmt.Sprintf("Klusterlet %s is being deleted, and waits until its operator takes "+
			"these finalizers off: %s", existing.Name, strings.Join(existing.Finalizers, ", "))
	case conflict.Cluster != cluster:
		conflict.Kind, conflict.message = ConflictCluster, fmt.Sprintf("the cluster has joined a hub as %s already, by its Klusterlet %s", other,
			existing.Name)
	case by.Name != "":
		conflict.Kind, conflict.message = ConflictInstaller, fmt.Sprintf("Klusterlet %s is kept by %s", existing.Name, by.Name)
	default:
		return nil
	}
	return conflict
}

// checkNamespaceOfAgent refuses to install an agent in the namespace of another one: it would take the credentials of that, and the
// operator refuses it when it is too late.
func checkNamespaceOfAgent(existing *operatorv1.Klusterlet, objects []*unstructured.Unstructured) error {
	namespace := NamespaceOfAgent(existing)
	for _, object := range objects {
		if object.GroupVersionKind() == KindKlusterlet && NamespaceOfInstalled(object) == namespace {
			return &Conflict{Kind: ConflictNamespace, Klusterlet: existing, Installed: object,
				message: fmt.Sprintf("the agent of Klusterlet %s runs in the namespace %s, and that of Klusterlet %s would take its credentials there",
					existing.Name, namespace, object.GetName())}
		}
	}
	return nil
}

// Move is from where to where the agent of a Klusterlet would be taken. One without a Klusterlet is none.
type Move struct {
	Klusterlet *operatorv1.Klusterlet
	// Before and Now are the addresses of the hubs.
	Before, Now string
	// whyOther is why they are not known to be those of the same hub; empty if they are.
	whyOther string
}

// MoveOf compares the hub that an agent has joined with the one that it would join by the objects. A hub may have moved, or have another
// certificate authority, but not both. Where either hub is unknown, there is no move.
func (c *Cluster) MoveOf(ctx context.Context, existing *operatorv1.Klusterlet, objects []*unstructured.Unstructured) (Move, error) {
	bootstrap := Find(objects, KindSecret.Kind, fleet.SecretBootstrapHubKubeconfig)
	if bootstrap == nil ||
		Find(objects, KindKlusterlet.Kind, existing.Name) == nil && bootstrap.GetNamespace() != NamespaceOfAgent(existing) {
		return Move{}, nil
	}
	hubs, err := c.HubsOfAgent(ctx, existing)
	desired, given := apiclient.ClusterIn(DataOf(bootstrap, fleet.KeyKubeconfig))
	if err != nil || len(hubs) == 0 || !given ||
		slices.ContainsFunc(hubs, func(hub apiclient.KnownCluster) bool { return hub.IsAt(desired.Server) }) {
		return Move{}, err
	}
	move := Move{Klusterlet: existing, Before: hubs[0].Server, Now: desired.Server}
	switch {
	case slices.ContainsFunc(hubs, desired.SharesCA):
	case desired.HasCA() && slices.ContainsFunc(hubs, apiclient.KnownCluster.HasCA):
		move.whyOther = "neither the address nor the certificate authority is the same"
	default:
		move.whyOther = "the address is another, and nothing shows that it is the same hub"
	}
	return move, nil
}

// Check refuses, with a Conflict, to take the agent of a cluster from its hub, with whose works it would take off what they have applied.
func (m Move) Check(cluster string) error {
	if m.whyOther == "" {
		return nil
	}
	return &Conflict{Kind: ConflictHub, Klusterlet: m.Klusterlet, Cluster: cluster, message: fmt.Sprintf(
		"Klusterlet %s is the agent of cluster %s for the hub at %s, and would be taken from there to %s: %s. "+
			"Once there, it removes what works of the former hub have applied", m.Klusterlet.Name, cluster, m.Before, m.Now, m.whyOther)}
}
