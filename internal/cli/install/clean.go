package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
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
		return manager, c.leaveOtherHub(ctx, manager)
	}
	if c.force {
		c.Note("Warning: the cluster with the API of the hub cannot be reached, so what is there stays: %v", err)
		return manager, nil
	}
	return nil, fmt.Errorf("the cluster with the API of the hub cannot be reached: %w\n--force removes what runs in %s and leaves what is there",
		err, c.in.Server())
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

// leaveOtherHub leaves a hub as it is that is of another ClusterManager. The operator refuses the one that is to be removed then, so
// nothing of the hub is its.
func (c *cleaning) leaveOtherHub(ctx context.Context, manager *unstructured.Unstructured) error {
	owner, err := c.otherOwner(ctx, manager)
	if err != nil || owner == "" {
		return err
	}
	c.Note("The hub in %s stays: it is that of ClusterManager %s.", c.hub.Server(), owner)
	c.hub = nil
	return nil
}

// otherOwner is the ClusterManager that has the hub, if that is another one: one in the cluster of the hub whose API that is, or the one by
// the label of the hub's definitions. What one that is gone has left can be taken over.
func (c *cleaning) otherOwner(ctx context.Context, manager *unstructured.Unstructured) (string, error) {
	if c.hub != c.in {
		there, err := c.hub.List(ctx, installation.KindClusterManager, "", "")
		if err != nil {
			return "", err
		}
		for i := range there {
			if !installation.IsHosted(&there[i]) && (manager == nil || there[i].GetUID() != manager.GetUID()) {
				return there[i].GetName() + " there", nil
			}
		}
	}
	definition, err := c.hub.Get(ctx, installation.Reference{GroupVersionKind: installation.KindCRD, Name: crdManagedClusters})
	if err != nil || definition == nil {
		return "", err
	}
	owner := definition.GetLabels()[fleet.LabelCreatedByClusterManager]
	if owner == "" || owner == c.name {
		return "", nil
	}
	other, err := c.in.Get(ctx, installation.Reference{GroupVersionKind: installation.KindClusterManager, Name: owner})
	if err != nil || other == nil {
		return "", err
	}
	return owner, nil
}

// checkName refuses the name of no ClusterManager where there is another one whose API is this cluster's: what there is of a hub is its.
func (c *cleaning) checkName(ctx context.Context) error {
	managers, err := c.in.List(ctx, installation.KindClusterManager, "", "")
	if err != nil {
		return err
	}
	for i := range managers {
		if !installation.IsHosted(&managers[i]) {
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
