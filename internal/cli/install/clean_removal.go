package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// removeBootstrap deletes what clusters join with.
func (c *cleaning) removeBootstrap(ctx context.Context, removal *removal) error {
	refs := []installation.Reference{
		{GroupVersionKind: installation.KindClusterRoleBinding, Name: fleet.ClusterRoleBindingBootstrapServiceAccount},
		{GroupVersionKind: installation.KindClusterRoleBinding, Name: "open-cluster-management:bootstrap:managedcluster"},
		{GroupVersionKind: installation.KindClusterRoleBinding, Name: "agent-registration-bootstrap"},
		{GroupVersionKind: installation.KindClusterRole, Name: fleet.ClusterRoleBootstrap},
		{GroupVersionKind: installation.KindServiceAccount, Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap},
	}
	tokens, err := c.hub.List(ctx, installation.KindSecret, metav1.NamespaceSystem, fleet.LabelApp+"="+fleet.AppClusterManager)
	if err != nil {
		return err
	}
	for i := range tokens {
		refs = append(refs, installation.Reference{
			GroupVersionKind: installation.KindSecret, Namespace: metav1.NamespaceSystem, Name: tokens[i].GetName(),
		})
	}
	return removal.deleteAll(ctx, refs)
}

// removeHub deletes the ClusterManager, and its operator what it has installed for it.
func (c *cleaning) removeHub(ctx context.Context, manager *unstructured.Unstructured, removal *removal) error {
	if manager == nil {
		return nil
	}
	err := removal.deleteCustom(ctx, installation.ReferenceTo(manager), clusterManagerOperator, forced{
		deleted: func(ctx context.Context) error { return c.releaseObjects(ctx, manager, removal) },
		release: func(ctx context.Context) error { return c.deleteRelated(ctx, manager, removal) },
	})
	if err != nil && !c.force {
		return errors.Join(err, c.blockers(ctx))
	}
	return err
}

// hubKinds are the kinds whose objects have finalizers that controllers of the hub and agents take off, in the order to delete them in.
var hubKinds = []schema.GroupVersionKind{
	addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOn"), workv1.GroupVersion.WithKind("ManifestWork"), kindManagedCluster,
	{Group: "work.open-cluster-management.io", Version: "v1alpha1", Kind: "ManifestWorkReplicaSet"},
}

// blockers lists the objects of the hub that have to go and do not, with the finalizers that keep them.
func (c *cleaning) blockers(ctx context.Context) error {
	if c.hub == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
	defer cancel()
	var lines []string
	for _, kind := range hubKinds {
		objects, err := c.hub.List(ctx, kind, "", "")
		if err != nil {
			continue
		}
		for i := range objects {
			object := &objects[i]
			object.SetGroupVersionKind(kind)
			if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) > 0 {
				lines = append(lines, fmt.Sprintf("  %s: finalizer %s", installation.ReferenceTo(object), strings.Join(object.GetFinalizers(), ", ")))
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("these objects wait for agents or controllers; --force does without:\n%s", strings.Join(lines, "\n"))
}

// removeWebhooks deletes the configurations of the hub's webhooks. One that does not answer, or whose certificate nobody has renewed, would
// have the API server refuse what is changed to release objects; all of these go, so there is nothing left to check.
func removeWebhooks(ctx context.Context, manager *unstructured.Unstructured, there *removal) error {
	for _, kind := range []schema.GroupVersionKind{installation.KindValidatingWebhooks, installation.KindMutatingWebhooks} {
		configurations, err := there.in.List(ctx, kind, "", fleet.LabelCreatedByClusterManager+"="+manager.GetName())
		if err != nil {
			return err
		}
		for i := range configurations {
			if err := there.delete(ctx, installation.Reference{GroupVersionKind: kind, Name: configurations[i].GetName()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseObjects deletes the clusters, works and add-ons of the hub, and takes off the finalizers that wait for agents.
func (c *cleaning) releaseObjects(ctx context.Context, manager *unstructured.Unstructured, here *removal) error {
	if c.hub == nil {
		return nil
	}
	err := c.onHub(ctx, here, func(ctx context.Context, there *removal) error { return removeWebhooks(ctx, manager, there) })
	if err != nil {
		return err
	}
	for _, kind := range hubKinds {
		objects, err := c.hub.List(ctx, kind, "", "")
		if err != nil {
			return err
		}
		for i := range objects {
			of := installation.Reference{GroupVersionKind: kind, Namespace: objects[i].GetNamespace(), Name: objects[i].GetName()}
			if _, err := c.hub.Delete(ctx, of); err != nil {
				return err
			}
			if _, err := c.hub.RemoveFinalizers(ctx, of, func(string) bool { return true }); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteRelated does what the operator does not: it deletes what that has installed, as the status of the ClusterManager lists it. The list
// does not say on which of the two clusters of a hosted hub an object is, and the other one may have one of that name.
func (c *cleaning) deleteRelated(ctx context.Context, manager *unstructured.Unstructured, here *removal) error {
	refs, err := related(ctx, c.in, manager)
	if err != nil {
		return err
	}
	deleteOwn := func(ctx context.Context, on *removal, of installation.Reference) error {
		return on.deleteOf(ctx, of, fleet.LabelCreatedByClusterManager, c.name)
	}
	for _, of := range refs {
		if of.GroupVersionKind == installation.KindCRD && strings.HasSuffix(of.Name, groupOfSIG) {
			c.Note("%s stays: others may use it, too", of)
			continue
		}
		if c.hub == c.in {
			if err := here.delete(ctx, of); err != nil {
				return err
			}
			continue
		}
		if of.Namespace == c.name { // what runs a hosted hub is in its namespace, which is the user's
			if err := deleteOwn(ctx, here, of); err != nil {
				return err
			}
		}
		if err := c.onHub(ctx, here, func(ctx context.Context, there *removal) error { return deleteOwn(ctx, there, of) }); err != nil {
			return err
		}
	}
	return c.onHub(ctx, here, removeRolesOfAgents)
}

// removeRolesOfAgents deletes what the controllers of the hub have made for the agents of all clusters.
func removeRolesOfAgents(ctx context.Context, there *removal) error {
	for _, name := range []string{fleet.ClusterRoleRegistration, fleet.ClusterRoleWork} {
		if err := there.delete(ctx, installation.Reference{GroupVersionKind: installation.KindClusterRole, Name: name}); err != nil {
			return err
		}
	}
	return nil
}

// removeOfClusters deletes what a hub has of clusters next to their objects: certificate requests, and the namespaces in which nobody else
// has put anything.
func (c *cleaning) removeOfClusters(ctx context.Context, there *removal) error {
	clusters, err := there.in.List(ctx, kindManagedCluster, "", "")
	if err != nil {
		return err
	}
	if len(clusters) > 0 && !c.DryRun {
		c.Note("The namespaces and certificate requests of clusters stay, because there are still these ManagedClusters: %s",
			strings.Join(hubapi.ObjectNames(clusters), ", "))
		return nil
	}
	requests, err := there.in.List(ctx, installation.KindCSR, "", fleet.LabelClusterName)
	if err != nil {
		return err
	}
	for i := range requests {
		if err := there.delete(ctx, installation.Reference{GroupVersionKind: installation.KindCSR, Name: requests[i].GetName()}); err != nil {
			return err
		}
	}
	namespaces, err := there.in.List(ctx, installation.KindNamespace, "", fleet.LabelClusterName)
	if err != nil {
		return err
	}
	for i := range namespaces {
		name := namespaces[i].GetName()
		if namespaces[i].GetLabels()[fleet.LabelClusterName] != name {
			continue // it is about a cluster, and not the one of the cluster
		}
		if err := there.deleteNamespaceOfCluster(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// checkInstallers finds out, before anything is changed, who keeps what is to be removed.
func (c *cleaning) checkInstallers(ctx context.Context, manager *unstructured.Unstructured, removal *removal) error {
	if manager != nil {
		removal.warnOfInstaller(installation.ReferenceTo(manager), installation.InstallerOf(manager.GetLabels(), manager.GetAnnotations()))
	}
	why, err := c.whyOperatorStays(ctx)
	if err != nil || why != "" {
		return err
	}
	return removal.checkOperator(ctx, clusterManagerOperator, "the hub")
}

// whyOperatorStays says that the operator stays because a flag says so, or another hub needs it; empty if it goes.
func (c *cleaning) whyOperatorStays(ctx context.Context) (string, error) {
	if !c.purgeOperator {
		return "The operator stays, with its kinds: --purge-operator is false.", nil
	}
	managers, err := c.in.List(ctx, installation.KindClusterManager, "", "")
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(managers, func(m unstructured.Unstructured) bool { return m.GetName() != c.name }) {
		return "The operator stays: there are other ClusterManagers.", nil
	}
	return "", nil
}

// operatorObjects are the operator, unless it stays.
func (c *cleaning) operatorObjects(ctx context.Context) ([]installation.Reference, error) {
	why, err := c.whyOperatorStays(ctx)
	if err != nil {
		return nil, err
	}
	if why != "" {
		c.Note("%s", why)
		return nil, nil
	}
	return chartReferences(ctx, c.in, "cluster-manager", map[string]any{
		"clusterManager": map[string]any{"create": false},
		"images":         map[string]any{"imageCredentials": map[string]any{"createImageCredentials": true, "dockerConfigJson": "{}"}},
	}, klusterletOperator)
}

// unpublish deletes the ConfigMap cluster-info, and the permission to read it, of which "capstan init" has created either; and, of a hosted
// hub, the namespace for what clusters join with.
func (c *cleaning) unpublish(ctx context.Context, removal *removal) error {
	if c.hub != c.in {
		if err := removal.deleteNamespaceIfEmpty(ctx, fleet.NamespaceOperators); err != nil {
			return err
		}
	}
	for _, name := range append(clusterInfoReaders[:2:2], clusterInfo) {
		object, err := removal.in.Get(ctx, name)
		if err != nil {
			return err
		}
		if object == nil || object.GetAnnotations()[annotationCreatedBy] == "" {
			continue
		}
		if err := removal.delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
