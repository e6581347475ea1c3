package install

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

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
	if err := c.checkJoined(ctx, cluster, objects); err != nil {
		return err
	}
	return checkRights(ctx, cluster, objects)
}

// checkJoined refuses to make a Klusterlet that is for one cluster into one for another, to take a hosted agent from one hub to another,
// and to install a Klusterlet that is being deleted.
func (c *clusterJoin) checkJoined(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	existing, err := klusterlets(ctx, cluster)
	if err != nil {
		return err
	}
	for i := range existing {
		if installation.Find(objects, installation.KindKlusterlet.Kind, existing[i].Name) == nil {
			continue
		}
		other := existing[i].Spec.ClusterName
		if existing[i].DeletionTimestamp != nil {
			of := installation.Reference{GroupVersionKind: installation.KindKlusterlet, Name: existing[i].Name}
			return beingDeleted(of, existing[i].Finalizers, "capstan unjoin --force --cluster-name "+cmp.Or(other, c.cluster))
		}
		if other != "" && other != c.cluster {
			return fmt.Errorf("this cluster has joined a hub as %s already: \"capstan unjoin --cluster-name %s\" takes it from there. "+
				"For a second hub, name another klusterlet.name and klusterlet.namespace in a file for --klusterlet-values-file", other, other)
		}
		if err := c.checkHubOfHosted(ctx, cluster, &existing[i], objects); err != nil {
			return err
		}
	}
	return nil
}

// checkHubOfHosted refuses to take a hosted agent from its hub: nameHosted finds it by the name of the cluster alone, which the cluster may
// have on several hubs.
func (c *clusterJoin) checkHubOfHosted(ctx context.Context, cluster *Cluster, existing *operatorv1.Klusterlet,
	objects []*unstructured.Unstructured) error {
	bootstrap := installation.Find(objects, installation.KindSecret.Kind, fleet.SecretBootstrapHubKubeconfig)
	if c.mode != modeHosted || bootstrap == nil {
		return nil
	}
	hub, err := hubOfAgent(ctx, cluster, existing)
	desired := hubapi.ServerIn(dataOf(bootstrap, fleet.KeyKubeconfig))
	if err != nil || hub == "" || hub == desired {
		return err
	}
	return fmt.Errorf("Klusterlet %s is the hosted agent of cluster %s for the hub at %s, and would be taken from there to %s. "+
		"For a second hub, name another klusterlet.name and klusterlet.namespace in a file for --klusterlet-values-file; "+
		"--force takes the agent to the other hub, or to another address of the same one", existing.Name, c.cluster, hub, desired)
}
