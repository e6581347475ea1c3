package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
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
	existing, err := klusterlets(ctx, cluster)
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
		name, namespace := installed[i].GetName(), agentNamespace(&installed[i])
		if slices.ContainsFunc(existing, func(k operatorv1.Klusterlet) bool { return k.Name == name && namespaceOfAgent(&k) == namespace }) {
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
	if isHosted(klusterlet) {
		return "klusterlet.name"
	}
	return "klusterlet.namespace"
}

// checkKlusterlet refuses to make a Klusterlet that is for one cluster into one for another, to take its agent from one hub to another, to
// install one that is being deleted, and to install another one in its namespace.
func (c *clusterJoin) checkKlusterlet(ctx context.Context, cluster *Cluster, existing *operatorv1.Klusterlet,
	objects []*unstructured.Unstructured) error {
	if installation.Find(objects, installation.KindKlusterlet.Kind, existing.Name) == nil {
		return checkNamespaceOfAgent(existing, objects)
	}
	other, err := clusterNameOf(ctx, cluster, existing)
	if err != nil {
		return err
	}
	if existing.DeletionTimestamp != nil {
		of := installation.Reference{GroupVersionKind: installation.KindKlusterlet, Name: existing.Name}
		return beingDeleted(of, existing.Finalizers, "capstan unjoin --force --cluster-name "+cmp.Or(other, c.cluster))
	}
	if other != "" && other != c.cluster {
		return fmt.Errorf("this cluster has joined a hub as %s already: \"capstan unjoin --cluster-name %s\" takes it from there. "+
			"For a second hub, "+nameAnother, other, other)
	}
	if err := checkKlusterletInstaller(existing); err != nil {
		return err
	}
	bootstrap := installation.Find(objects, installation.KindSecret.Kind, fleet.SecretBootstrapHubKubeconfig)
	if bootstrap == nil {
		return nil
	}
	return c.checkHub(ctx, cluster, existing, dataOf(bootstrap, fleet.KeyKubeconfig))
}

// checkNamespaceOfAgent refuses to install an agent in the namespace of another one: it would take the credentials of that, and the
// operator refuses it when it is too late.
func checkNamespaceOfAgent(existing *operatorv1.Klusterlet, objects []*unstructured.Unstructured) error {
	namespace, installed := namespaceOfAgent(existing), ofKind(objects, installation.KindKlusterlet)
	for i := range installed {
		if agentNamespace(&installed[i]) == namespace {
			return fmt.Errorf("the agent of Klusterlet %s runs in the namespace %s, and that of Klusterlet %s would take its credentials there: "+
				"name another %s in the file of --klusterlet-values-file", existing.Name, namespace, installed[i].GetName(),
				namespaceValue(&installed[i]))
		}
	}
	return nil
}

// checkHub refuses to take an agent from its hub, with whose works it would take off what they have applied. A hub may have moved, or have
// another certificate authority, but not both.
func (c *clusterJoin) checkHub(ctx context.Context, cluster *Cluster, existing *operatorv1.Klusterlet, bootstrap []byte) error {
	hubs, err := hubsOfAgent(ctx, cluster, existing)
	desired, given := hubapi.ClusterIn(bootstrap)
	if err != nil || len(hubs) == 0 || !given {
		return err
	}
	if c.mode == modeHosted {
		return c.checkHubOfHosted(existing, hubs[0], desired.Server)
	}
	switch {
	case slices.ContainsFunc(hubs, func(hub hubapi.KnownCluster) bool { return hub.IsAt(desired.Server) }):
		return nil
	case slices.ContainsFunc(hubs, desired.SharesCA):
		c.warnOfMove(hubs[0].Server, desired.Server, nameAnother)
		return nil
	}
	why := "neither the address nor the certificate authority is the same"
	if !slices.ContainsFunc(hubs, hubapi.KnownCluster.HasCA) || !desired.HasCA() {
		why = "the address is another, and nothing shows that it is the same hub"
	}
	return fmt.Errorf("Klusterlet %s is the agent of cluster %s for the hub at %s, and would be taken from there to %s: %s. "+
		"Once there, it removes what works of the former hub have applied. For a second hub, "+nameAnother+"; "+
		"--force takes the agent to the other hub", existing.Name, c.cluster, hubs[0].Server, desired.Server, why)
}

// checkHubOfHosted refuses to take a hosted agent from its hub, or to another address of it: nameHosted may have found it by the name of
// the cluster alone, which the cluster may have on several hubs.
func (c *clusterJoin) checkHubOfHosted(existing *operatorv1.Klusterlet, hub hubapi.KnownCluster, desired string) error {
	if hub.IsAt(desired) {
		return nil
	}
	return fmt.Errorf("Klusterlet %s is the hosted agent of cluster %s for the hub at %s, and would be taken from there to %s. "+
		"For a second hub, "+nameAnother+"; "+
		"--force takes the agent to the other hub, or to another address of the same one", existing.Name, c.cluster, hub.Server, desired)
}
