package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// cleaning is one run of "capstan clean".
type cleaning struct {
	*options.Global
	name          string
	purgeOperator bool
	outputFile    string
	wait, force   bool

	in *Cluster
	// hub has the API of the hub: the same cluster, unless the hub is hosted. It is nil if that cannot be reached and --force does without, or
	// if the hub there is that of another ClusterManager.
	hub *Cluster
}

const cleanLong = `Take a hub out of the cluster of the kubeconfig: what clusters join with, the ClusterManager with all that its operator has
installed for it, the kinds of the hub with their objects, and the operator.

As long as there are clusters that are available, the command refuses, for their agents would go on without a hub: "capstan unjoin"
takes them away. --wait waits until that is done, --force does without. If something is not gone in time, the error names it with the
finalizers that keep it; --force takes those off where the operator does not run any more, and those of clusters and works that wait
for agents.

A hosted hub is removed from the cluster where it runs, and from that with its API. The namespace of the ClusterManager stays, with the
kubeconfig that you have stored there.

An operator that Helm, the Operator Lifecycle Manager, Argo CD or Flux keeps is for these to uninstall: the command refuses, unless
--purge-operator=false leaves it, or --force insists. It also refuses a standalone hub, and says how that is removed.

A run that was interrupted is run again: it goes on with what is left.`

// NewCleanCommand is "capstan clean".
func NewCleanCommand(global *options.Global) *cobra.Command {
	run := &cleaning{Global: global}
	command := &cobra.Command{
		Use:   "clean",
		Short: "Take a hub out of a cluster",
		Long:  cleanLong,
		Example: "  capstan clean\n  capstan clean --dry-run\n" +
			"  capstan clean --wait      # while users run \"capstan unjoin\" for the clusters",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVar(&run.name, "name", clusterManagerOperator, "name of the ClusterManager")
	flags.BoolVar(&run.purgeOperator, "purge-operator", true, "remove the operator, too")
	flags.StringVar(&run.outputFile, "output-file", "", "write what was deleted to this file, which only you can read")
	flags.BoolVar(&run.wait, "wait", false, "wait until no cluster is available any more, for --timeout seconds at most")
	flags.BoolVar(&run.force, "force", false, "do without clusters that are available, and without an operator or agents that do not answer")
	command.MarkFlagsMutuallyExclusive("wait", "force")
	options.Complete(command, "name", cobra.NoFileCompletions)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := options.CheckOutputFile(run.outputFile); err != nil {
			return err
		}
		return run.RunLimited(command, run.clean)
	}
	return command
}

func (c *cleaning) clean(ctx context.Context) error {
	manager, err := c.connect(ctx)
	if err != nil {
		return err
	}
	removal := &removal{Global: c.Global, in: c.in, force: c.force}
	if err := c.checkInstallers(ctx, manager, removal); err != nil {
		return err
	}
	if err := c.ensureNoneAvailable(ctx); err != nil {
		return err
	}
	operator, err := c.operatorObjects(ctx)
	if err != nil {
		return err
	}
	if err := c.annotateNamespace(ctx, ptr.To(fleet.LabelTrue)); err != nil {
		return err
	}
	if err := c.onHub(ctx, removal, c.removeBootstrap); err != nil {
		return err
	}
	if err := c.removeHub(ctx, manager, removal); err != nil {
		return err
	}
	if err := c.onHub(ctx, removal, c.removeOfClusters); err != nil {
		return err
	}
	if err := removal.deleteAll(ctx, operator); err != nil {
		return err
	}
	if err := c.onHub(ctx, removal, c.unpublish); err != nil || c.DryRun {
		return err
	}
	if err := c.annotateNamespace(ctx, nil); err != nil {
		return err
	}
	if err := writeObjects(c.Global, c.outputFile, removal.deleted); err != nil {
		return err
	}
	if len(removal.deleted) == 0 {
		c.sayNoHub(ctx)
		return nil
	}
	removal.noteRecord(ctx)
	c.Say("The multicluster hub control plane has been cleaned up successfully!")
	return nil
}

// sayNoHub says that there was nothing to remove. A standalone hub, which this command does not remove, is named with what does; who
// cannot list Deployments in all namespaces learns of none.
func (c *cleaning) sayNoHub(ctx context.Context) {
	c.Say("There is no hub in %s that an operator has installed, and nothing is left of one.", c.in.Server())
	deployments, err := c.in.List(ctx, installation.KindDeployment, "", "app="+installer.StandaloneHubName)
	if err != nil {
		return
	}
	for i := range deployments {
		if deployments[i].GetName() == installer.StandaloneHubName {
			c.noteStandalone(deployments[i].GetNamespace(), installation.InstallerOf(deployments[i].GetLabels(), deployments[i].GetAnnotations()))
		}
	}
}

// noteStandalone says how a standalone hub is removed, which a tool may keep.
func (c *cleaning) noteStandalone(namespace string, by installation.Installer) {
	if by.Name != "" {
		c.Note("Namespace %s has a standalone hub, which is kept by %s. To remove it, %s; then delete its volume, which has all that is stored "+
			"in it.", namespace, by.Name, by.Uninstall)
		return
	}
	c.Note("Namespace %[1]s has a standalone hub. These commands remove it, with all that is stored in it:\n\n"+
		"    kubectl delete namespace %[1]s\n    kubectl delete clusterrolebinding %[2]s\n    kubectl delete clusterrole %[2]s\n",
		namespace, rightsOfStandalone(namespace))
}

// rightsOfStandalone is the name of the ClusterRole of a standalone hub, and of its binding.
func rightsOfStandalone(namespace string) string {
	return "open-cluster-management:" + installer.StandaloneHubName + ":" + namespace
}

// connect finds the ClusterManager, nil if there is none any more, and the cluster with the API of the hub.
func (c *cleaning) connect(ctx context.Context) (*unstructured.Unstructured, error) {
	var err error
	if c.in, err = connect(c.InstallTarget()); err != nil {
		return nil, err
	}
	if err := c.ensureRunsPods(ctx); err != nil {
		return nil, err
	}
	manager, err := c.in.Get(ctx, installation.Reference{GroupVersionKind: installation.KindClusterManager, Name: c.name})
	if err != nil {
		return nil, err
	}
	if c.hub, err = c.findHub(ctx, manager); err == nil {
		if manager == nil && c.hub == c.in {
			return nil, c.checkName(ctx)
		}
		return manager, c.leaveOtherHub(ctx)
	}
	if c.force {
		c.Note("Warning: the cluster with the API of the hub cannot be reached, so what is there stays: %v", err)
		return manager, nil
	}
	return nil, fmt.Errorf("the cluster with the API of the hub cannot be reached: %w\n--force removes what runs in %s and leaves what is there",
		err, c.in.Server())
}

// ensureRunsPods refuses a cluster in which no operator can run. It is a standalone hub, which would go on without what clusters join with,
// or has the API of a hub that runs elsewhere.
func (c *cleaning) ensureRunsPods(ctx context.Context) error {
	served, err := c.in.Serves(ctx, installation.KindDeployment.GroupVersion())
	if err != nil || served {
		return err
	}
	return fmt.Errorf("the cluster at %s, where %s leads, runs no pods, so no operator has installed a hub in it: it is a standalone hub, or "+
		"has the API of a hub that runs elsewhere.\nA standalone hub is removed where it runs. In a cluster, delete its namespace there, and the "+
		"ClusterRole and the ClusterRoleBinding %s; if Helm has installed it, run \"helm uninstall\" instead. On a machine, end its process, and "+
		"delete its data directory.\nFor a hub of an operator, choose the cluster that the operator runs in with --kubeconfig or --context",
		c.in.Server(), c.in.Source(), rightsOfStandalone("NAMESPACE"))
}

// annotationCleaning is on the namespace of a hosted ClusterManager while its hub is removed: an interrupted run may have deleted the
// ClusterManager, and the Secret there still leads to the hub.
const annotationCleaning = "capstan.io/cleaning"

// findHub is the cluster with the API of the hub. Without the annotation, a Secret that was left may lead to a hub that is another's now.
func (c *cleaning) findHub(ctx context.Context, manager *unstructured.Unstructured) (*Cluster, error) {
	if manager != nil {
		return hubOf(ctx, c.in, manager)
	}
	namespace, err := c.in.Get(ctx, c.namespace())
	if err != nil {
		return nil, err
	}
	if namespace == nil || namespace.GetAnnotations()[annotationCleaning] == "" {
		return c.in, nil
	}
	return hostedHub(ctx, c.in, c.name)
}

// namespace is that of a hosted ClusterManager.
func (c *cleaning) namespace() installation.Reference {
	return installation.Reference{GroupVersionKind: installation.KindNamespace, Name: c.name}
}

// annotateNamespace sets the annotation of the namespace of a hosted ClusterManager, or takes it off, also where its hub stays.
func (c *cleaning) annotateNamespace(ctx context.Context, value *string) error {
	if c.DryRun || c.hub == c.in || value != nil && c.hub == nil {
		return nil
	}
	namespace, err := c.in.Get(ctx, c.namespace())
	if err != nil || namespace == nil || value == nil && namespace.GetAnnotations()[annotationCleaning] == "" {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{annotationCleaning: value}}})
	if err != nil {
		return err
	}
	return c.in.Patch(ctx, c.namespace(), patch)
}

// leaveOtherHub leaves a hub as it is that a hosted ClusterManager leads to and that is of another one. What one that is gone has left can
// be taken over.
func (c *cleaning) leaveOtherHub(ctx context.Context) error {
	if c.hub == c.in {
		return nil
	}
	of := installation.Reference{GroupVersionKind: installation.KindCRD, Name: crdManagedClusters}
	definition, err := c.hub.Get(ctx, of)
	if err != nil || definition == nil {
		return err
	}
	owner := definition.GetLabels()[fleet.LabelCreatedByClusterManager]
	if owner == "" || owner == c.name {
		return nil
	}
	other, err := c.in.Get(ctx, installation.Reference{GroupVersionKind: installation.KindClusterManager, Name: owner})
	if err != nil || other == nil {
		return err
	}
	c.Note("The hub in %s stays: it is that of ClusterManager %s.", c.hub.Server(), owner)
	c.hub = nil
	return nil
}

// checkName refuses the name of no ClusterManager where there is another one whose API is this cluster's: what there is of a hub is its.
func (c *cleaning) checkName(ctx context.Context) error {
	managers, err := c.in.List(ctx, installation.KindClusterManager, "", "")
	if err != nil {
		return err
	}
	for i := range managers {
		if !isHosted(&managers[i]) {
			return fmt.Errorf("--name: there is no ClusterManager %s in %s; the hub there is that of ClusterManager %s", c.name, c.in.Server(),
				managers[i].GetName())
		}
	}
	return nil
}

// onHub removes something from the cluster with the API of the hub.
func (c *cleaning) onHub(ctx context.Context, here *removal, remove func(context.Context, *removal) error) error {
	switch c.hub {
	case nil:
		return nil
	case c.in:
		return remove(ctx, here)
	}
	there := &removal{Global: c.Global, in: c.hub, force: c.force}
	err := remove(ctx, there)
	here.deleted = append(here.deleted, there.deleted...)
	return err
}

const (
	// crdManagedClusters is a definition that each hub has: the ClusterManager that it is part of has the hub.
	crdManagedClusters = "managedclusters.cluster.open-cluster-management.io"
	// groupOfSIG ends the names of definitions of the SIG Multicluster, which others may use, too: they outlive the hub.
	groupOfSIG = ".multicluster.x-k8s.io"
)

var kindManagedCluster = clusterv1.GroupVersion.WithKind("ManagedCluster")

// isAvailable reports whether the agent of a cluster works.
func isAvailable(cluster *unstructured.Unstructured) bool {
	return slices.ContainsFunc(installation.Conditions(cluster), func(condition metav1.Condition) bool {
		return condition.Type == fleet.ConditionClusterAvailable && condition.Status == metav1.ConditionTrue
	})
}

// ensureNoneAvailable makes sure that no cluster is available any more.
func (c *cleaning) ensureNoneAvailable(ctx context.Context) error {
	if c.hub == nil {
		return nil
	}
	clusters, err := c.hub.List(ctx, kindManagedCluster, "", "")
	if err != nil {
		return err
	}
	available := hubapi.ObjectNames(slices.DeleteFunc(clusters, func(c unstructured.Unstructured) bool { return !isAvailable(&c) }))
	switch {
	case len(available) == 0:
		return nil
	case c.force:
		c.Note("Warning: these clusters are available, and their agents go on without a hub: %s", strings.Join(available, ", "))
		return nil
	case c.wait && !c.DryRun:
		return c.awaitUnjoined(ctx)
	}
	return fmt.Errorf("these clusters of the hub are available: %s\nTake each from the hub first, or run this command with --wait meanwhile:\n"+
		"  capstan unjoin --cluster-name CLUSTER\n  kubectl delete managedcluster CLUSTER\n"+
		"--force removes the hub all the same, and leaves the agents and what they have applied", strings.Join(available, ", "))
}

func (c *cleaning) awaitUnjoined(ctx context.Context) error {
	progress := c.Progress()
	defer progress.Close()
	var left []string
	err := c.hub.AwaitNone(ctx, kindManagedCluster, isAvailable, func(names []string) {
		left = names
		progress.Wait("clusters", "available: "+strings.Join(names, ", "))
	})
	if err != nil {
		return fmt.Errorf("wait until no cluster is available: %w. These are: %s", err, strings.Join(left, ", "))
	}
	progress.Done("clusters", "none is available any more")
	return nil
}

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

// removeDeadWebhooks deletes the configurations of the hub's webhooks if one of these does not run: the API server would refuse what is
// changed to release objects.
func (c *cleaning) removeDeadWebhooks(ctx context.Context, manager *unstructured.Unstructured, there *removal) error {
	run, err := c.webhooksRun(ctx, manager)
	if err != nil || run {
		return err
	}
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

// webhooksRun reports whether all webhooks of the hub have a pod that is ready.
func (c *cleaning) webhooksRun(ctx context.Context, manager *unstructured.Unstructured) (bool, error) {
	namespace := fleet.NamespaceHub
	if isHosted(manager) {
		namespace = manager.GetName()
	}
	for _, name := range fleet.WebhookDeployments(manager.GetName()) {
		running, err := c.in.Deployed(ctx, namespace, name)
		if err != nil || !running.Available {
			return false, err
		}
	}
	return true, nil
}

// releaseObjects deletes the clusters, works and add-ons of the hub, and takes off the finalizers that wait for agents.
func (c *cleaning) releaseObjects(ctx context.Context, manager *unstructured.Unstructured, here *removal) error {
	if c.hub == nil {
		return nil
	}
	err := c.onHub(ctx, here, func(ctx context.Context, there *removal) error { return c.removeDeadWebhooks(ctx, manager, there) })
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
