package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// nameAnother is how a cluster gets an agent for a second hub.
const nameAnother = "name another klusterlet.name and klusterlet.namespace in a file for --klusterlet-values-file"

// preflight makes sure that applying can succeed, before anything is changed.
func (c *clusterJoin) preflight(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	if err := c.checkNamespace(ctx, cluster, fleet.NamespaceOperators); err != nil {
		return err
	}
	if !c.keepsOperator() {
		if err := checkInstaller(c.operator, fleet.NamespaceOperators, klusterletOperator, "upgrade the agent with that"); err != nil {
			return err
		}
		if err := upgradableAgent.checkReplaced(ctx, cluster, c.operator, objects); err != nil {
			return err
		}
	}
	if err := checkRights(ctx, cluster, objects); err != nil {
		return err
	}
	return c.checkJoined(ctx, cluster, objects) // which reads Secrets
}

// checkJoined refuses to do harm to an agent that the cluster has, and to install one that its operator would refuse.
func (c *clusterJoin) checkJoined(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	existing, err := cluster.Klusterlets(ctx)
	if err != nil {
		return err
	}
	for i := range existing {
		if err := c.checkKlusterlet(ctx, cluster, &existing[i], objects); err != nil {
			return err
		}
	}
	return checkUse(ctx, cluster, existing, objects)
}

// checkUse refuses to install an agent in a namespace that is for something else, too: the operator refuses it when it is too late. An
// agent that runs in it already goes on.
func checkUse(ctx context.Context, cluster *Cluster, existing []operatorv1.Klusterlet, objects []*unstructured.Unstructured) error {
	installed := ofKind(objects, installation.KindKlusterlet)
	for i := range installed {
		name, namespace := installed[i].GetName(), installation.NamespaceOfInstalled(&installed[i])
		if slices.ContainsFunc(existing, func(k operatorv1.Klusterlet) bool {
			return k.Name == name && installation.NamespaceOfAgent(&k) == namespace
		}) {
			continue
		}
		use, err := otherUse(ctx, cluster, namespace)
		if err != nil {
			return err
		}
		if use != "" {
			return fmt.Errorf("the agent of Klusterlet %s would run in the namespace %s, which has another use: it %s. Name another %s in the file "+
				"of --klusterlet-values-file", name, namespace, use, namespaceValue(&installed[i]))
		}
	}
	return nil
}

// namespaceValue is the value of the chart that the namespace of an agent follows from.
func namespaceValue(klusterlet *unstructured.Unstructured) string {
	if installation.IsHosted(klusterlet) {
		return "klusterlet.name"
	}
	return "klusterlet.namespace"
}

// checkKlusterlet refuses to do harm to the agent of a Klusterlet, or to take it to another hub.
func (c *clusterJoin) checkKlusterlet(ctx context.Context, cluster *Cluster, existing *operatorv1.Klusterlet,
	objects []*unstructured.Unstructured) error {
	if err := cluster.CheckKlusterlet(ctx, c.cluster, existing, objects); err != nil {
		return c.advise(err)
	}
	move, err := cluster.MoveOf(ctx, existing, objects)
	if err != nil || move.Klusterlet == nil {
		return err
	}
	if c.mode == modeHosted {
		return c.refuseMoveOfHosted(move)
	}
	if err := move.Check(c.cluster); err != nil {
		return c.advise(err)
	}
	c.warnOfMove(move.Before, move.Now, nameAnother)
	return nil
}

// advise adds to a conflict what a user can do about it.
func (c *clusterJoin) advise(err error) error {
	conflict := (*installation.Conflict)(nil)
	if !errors.As(err, &conflict) {
		return err
	}
	switch conflict.Kind {
	case installation.ConflictDeletion:
		of := installation.Reference{GroupVersionKind: installation.KindKlusterlet, Name: conflict.Klusterlet.Name}
		return beingDeleted(of, conflict.Klusterlet.Finalizers, "capstan unjoin --force --cluster-name "+conflict.Cluster)
	case installation.ConflictCluster:
		return fmt.Errorf("%w: \"capstan unjoin --cluster-name %s\" takes it from there. For a second hub, "+nameAnother, conflict,
			conflict.Cluster)
	case installation.ConflictInstaller:
		return checkKlusterletInstaller(conflict.Klusterlet)
	case installation.ConflictHub:
		return fmt.Errorf("%w. For a second hub, "+nameAnother+"; --force takes the agent to the other hub", conflict)
	case installation.ConflictNamespace:
		return fmt.Errorf("%w: name another %s in the file of --klusterlet-values-file", conflict, namespaceValue(conflict.Installed))
	}
	return err
}

// refuseMoveOfHosted refuses to take a hosted agent from its hub, or to another address of it: nameHosted may have found it by the name of
// the cluster alone, which the cluster may have on several hubs.
func (c *clusterJoin) refuseMoveOfHosted(move installation.Move) error {
	return fmt.Errorf("Klusterlet %s is the hosted agent of cluster %s for the hub at %s, and would be taken from there to %s. "+
		"For a second hub, "+nameAnother+"; --force takes the agent to the other hub, or to another address of the same one",
		move.Klusterlet.Name, c.cluster, move.Before, move.Now)
}
