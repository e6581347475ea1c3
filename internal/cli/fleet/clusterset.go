package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// permanentClusterSet reports whether every hub has the set.
func permanentClusterSet(name string) bool {
	return name == fleet.ClusterSetDefault || name == fleet.ClusterSetGlobal
}

// oneClusterSet accepts the name of one cluster set.
func oneClusterSet(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d names given, want that of one cluster set: %s", len(args), command.UseLine())
	}
	return checkClusterSetName(args[0])
}

const clusterSetBindLong = `Let the placements of a namespace of the hub select clusters of a set.

You need the permission to create managedclustersets/bind for the set.`

// binding is one run of "capstan clusterset bind" or "capstan clusterset unbind".
type binding struct {
	*options.Global
	namespace string
}

// NewBindClusterSetCommand is "capstan clusterset bind".
func NewBindClusterSetCommand(global *options.Global) *cobra.Command {
	b := &binding{Global: global}
	return b.command(&cobra.Command{
		Use:     "bind NAME --namespace NAMESPACE",
		Short:   "Let a namespace place on the clusters of a set",
		Long:    clusterSetBindLong,
		Example: "  capstan clusterset bind prod --namespace team-a",
	}, b.bind)
}

// NewUnbindClusterSetCommand is "capstan clusterset unbind".
func NewUnbindClusterSetCommand(global *options.Global) *cobra.Command {
	b := &binding{Global: global}
	return b.command(&cobra.Command{
		Use:     "unbind NAME --namespace NAMESPACE",
		Short:   "No longer let a namespace place on the clusters of a set",
		Long:    "Take back what \"capstan clusterset bind\" did: the placements of the namespace lose the clusters of the set.",
		Example: "  capstan clusterset unbind prod --namespace team-a",
	}, b.unbind)
}

// command gives a command what those have in common that are about a set and a namespace.
func (b *binding) command(command *cobra.Command, run func(ctx context.Context, hub *hubapi.Hub, set string) error) *cobra.Command {
	command.Args = oneClusterSet
	command.ValidArgsFunction = b.CompleteClusterSet
	command.Flags().StringVarP(&b.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the hub")
	options.Complete(command, "namespace", b.CompleteNamespaces)
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := options.CheckNamespaceName("--namespace", b.namespace); err != nil {
			return err
		}
		return b.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return run(ctx, hub, args[0])
		})
	}
	return command
}

func (b *binding) bind(ctx context.Context, hub *hubapi.Hub, set string) error {
	if _, err := managedclustersets.Get(ctx, hub, set); err != nil { // the API would let us bind one that is misspelt
		return err
	}
	binding := &clusterv1beta2.ManagedClusterSetBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSetBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: set},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}
	if b.DryRun {
		return b.Render(binding)
	}
	err := createBinding(ctx, hub, binding)
	switch {
	case err == nil:
		b.Say("Clusterset %s is bound to Namespace %s", set, b.namespace)
		return nil
	case apierrors.IsAlreadyExists(err):
		b.Say("Clusterset %s is already bound to Namespace %s", set, b.namespace)
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("--namespace: the hub has no namespace %q: \"kubectl create namespace %s\" makes it: %w", b.namespace, b.namespace, err)
	default:
		return err
	}
}

func (b *binding) unbind(ctx context.Context, hub *hubapi.Hub, set string) error {
	if b.DryRun {
		b.Say("would unbind Clusterset %s from Namespace %s", set, b.namespace)
		return nil
	}
	err := deleteBinding(ctx, hub, set, b.namespace)
	switch {
	case err == nil:
		b.Say("Clusterset %s is unbound from Namespace %s", set, b.namespace)
		return nil
	case apierrors.IsNotFound(err):
		if _, missing := managedclustersets.Get(ctx, hub, set); missing != nil { // misspelt, or no hub
			return missing
		}
		b.Say("Clusterset %s is already unbound from Namespace %s", set, b.namespace)
		return nil
	default:
		return err
	}
}

const clusterSetSetLong = `Put clusters into a set, and ask for namespaces on all clusters of a set.

A cluster is in one set of this kind only: it leaves the one that it is in. Its agent makes the namespaces, which stay
there when the cluster leaves the set.

You need the permission to create managedclustersets/join for the set, and for the one that a cluster leaves.`

// membership is one run of "capstan clusterset set".
type membership struct {
	*options.Global
	clusters   options.ClusterFlags
	namespaces []string
}

// NewSetClusterSetCommand is "capstan clusterset set".
func NewSetClusterSetCommand(global *options.Global) *cobra.Command {
	m := &membership{Global: global}
	command := &cobra.Command{
		Use:               "set NAME --clusters CLUSTER,...",
		Short:             "Put clusters into a set",
		Long:              clusterSetSetLong,
		Example:           "  capstan clusterset set prod --clusters cluster1,cluster2\n  capstan clusterset set prod --namespaces team-a,team-b",
		Args:              oneClusterSet,
		ValidArgsFunction: m.CompleteClusterSet,
	}
	m.clusters.Add(global, command)
	command.Flags().StringSliceVar(&m.namespaces, "namespaces", nil, "namespaces that all clusters of the set should have, separated by commas")
	options.Complete(command, "namespaces", cobra.NoFileCompletions)
	command.RunE = func(command *cobra.Command, args []string) error {
		names, err := m.clusters.Names()
		if err != nil {
			return err
		}
		if len(names) == 0 && len(m.namespaces) == 0 {
			return errors.New("--clusters or --namespaces needs to be set: which clusters to put into the set, or which namespaces its clusters should have")
		}
		for _, namespace := range m.namespaces {
			if err := options.CheckNamespaceName("--namespaces", namespace); err != nil {
				return err
			}
		}
		return m.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			set, err := managedclustersets.Get(ctx, hub, args[0])
			if err != nil {
				return err
			}
			return errors.Join(m.setClusters(ctx, hub, set, names), m.setNamespaces(ctx, hub, set))
		})
	}
	return command
}

// setClusters puts into the set what it can, and fails if that was not all of the clusters.
func (m *membership) setClusters(ctx context.Context, hub *hubapi.Hub, set *clusterv1beta2.ManagedClusterSet, clusters []string) error {
	if len(clusters) > 0 && set.Spec.ClusterSelector.SelectorType == clusterv1beta2.LabelSelector {
		return fmt.Errorf("--clusters: Clusterset %s takes the clusters that its selector matches (\"capstan get clustersets %s -o yaml\" shows it): "+
			"change the labels of the clusters, or choose another set", set.Name, set.Name)
	}
	var errs []error
	for _, cluster := range clusters {
		errs = append(errs, m.setCluster(ctx, hub, set.Name, cluster))
	}
	return errors.Join(errs...)
}

func (m *membership) setCluster(ctx context.Context, hub *hubapi.Hub, set, name string) error {
	cluster, err := managedclusters.Get(ctx, hub, name)
	if err != nil {
		return err
	}
	before := cluster.Labels[fleet.LabelClusterSet]
	switch {
	case before == set:
		m.Say("Cluster %s is already in Clusterset %s", name, set)
		return nil
	case m.DryRun && before == "":
		m.Say("would set Cluster %s to Clusterset %s", name, set)
		return nil
	case m.DryRun:
		m.Say("would set Cluster %s, from ClusterSet %s to Clusterset %s", name, before, set)
		return nil
	}
	if err := putClusterIntoSet(ctx, hub, name, set); err != nil {
		return err
	}
	if before == "" {
		m.Say("Cluster %s is set to Clusterset %s", name, set)
	} else {
		m.Say("Cluster %s is set, from ClusterSet %s to Clusterset %s", name, before, set)
	}
	return nil
}

func (m *membership) setNamespaces(ctx context.Context, hub *hubapi.Hub, set *clusterv1beta2.ManagedClusterSet) error {
	if m.DryRun {
		for _, namespace := range m.namespaces {
			m.Say("would have Namespace %s on all clusters of Clusterset %s", namespace, set.Name)
		}
		return nil
	}
	if len(m.namespaces) == 0 {
		return nil
	}
	added, err := addManagedNamespaces(ctx, hub, set.Name, m.namespaces)
	if err != nil {
		return err
	}
	for _, namespace := range added {
		m.Say("Namespace %s is managed on all clusters of Clusterset %s", namespace, set.Name)
	}
	if len(added) == 0 {
		m.Say("Clusterset %s manages these namespaces already", set.Name)
	}
	return nil
}

// createBinding lets a namespace place on the clusters of a set.
func createBinding(ctx context.Context, hub *hubapi.Hub, binding *clusterv1beta2.ManagedClusterSetBinding) error {
	err := hub.Client(managedclustersets.Bindings).Namespace(binding.Namespace).Create(ctx, binding, nil)
	return hub.Explain("bind cluster set "+binding.Name+" to namespace "+binding.Namespace, err)
}

// deleteBinding takes back what createBinding did.
func deleteBinding(ctx context.Context, hub *hubapi.Hub, set, namespace string) error {
	err := hub.Client(managedclustersets.Bindings).Namespace(namespace).Delete(ctx, set)
	return hub.Explain("unbind cluster set "+set+" from namespace "+namespace, err)
}

// putClusterIntoSet labels a cluster with the one exclusive set it is a member of.
func putClusterIntoSet(ctx context.Context, hub *hubapi.Hub, cluster, set string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{fleet.LabelClusterSet: set}}})
	if err != nil {
		return err
	}
	err = hub.Client(managedclusters.Resource).MergePatch(ctx, cluster, patch)
	return hub.Explain("put cluster "+cluster+" into cluster set "+set, err)
}

// addManagedNamespaces makes the clusters of a set have some more namespaces, and returns those that it did not have before.
func addManagedNamespaces(ctx context.Context, hub *hubapi.Hub, name string, namespaces []string) (added []string, err error) {
	err = hubapi.Change(ctx, hub.Client(managedclustersets.Resource), name, func(set *clusterv1beta2.ManagedClusterSet) (bool, error) {
		added = nil
		has := map[string]bool{}
		for _, namespace := range set.Spec.ManagedNamespaces {
			has[namespace.Name] = true
		}
		for _, namespace := range namespaces {
			if !has[namespace] {
				has[namespace] = true
				added = append(added, namespace)
				set.Spec.ManagedNamespaces = append(set.Spec.ManagedNamespaces, clusterv1beta2.ManagedNamespaceConfig{Name: namespace})
			}
		}
		return len(added) > 0, nil
	})
	return added, hub.Explain("add namespaces to cluster set "+name, err)
}
