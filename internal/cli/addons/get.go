package addons

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusteraddons"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// addOnList is one run of "capstan get addon".
type addOnList struct {
	*options.Global
	clusters options.ClusterFlags
	format   *output.Choice
}

// NewGetCommand is "capstan get addon".
func NewGetCommand(global *options.Global) *cobra.Command {
	l := &addOnList{Global: global}
	command := &cobra.Command{
		Use:     "addon [NAME...]",
		Aliases: []string{"addons", "managedclusteraddons", "managedclusteraddon", "mca"},
		Short:   "Show the add-ons of the hub, the clusters they are on, and how they are there",
		Example: "  capstan get addon\n  capstan get addon -o table\n  capstan get addon hello --clusters cluster1,cluster2",
	}
	l.clusters.Add(global, command)
	l.format = options.AddOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	command.ValidArgsFunction = l.completeAddOns
	command.RunE = func(command *cobra.Command, names []string) error {
		chosen, err := l.clusters.Names()
		if err != nil {
			return err
		}
		return l.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return l.show(ctx, hub, names, chosen)
		})
	}
	return command
}

func (l *addOnList) show(ctx context.Context, hub *hubapi.Hub, names, clusters []string) error {
	list, err := listAddOns(ctx, hub, clusters)
	if err != nil {
		return err
	}
	known, err := knownAddOns(ctx, hub, list.Items)
	absent := "is not there"
	if apierrors.IsForbidden(err) {
		l.Note("Warning: add-ons that are on no cluster are not shown: the user of %s may not list ClusterManagementAddOns.", hub.Source)
		absent = "is not on these clusters" // the hub may have it
	} else if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("add-on %q %s: \"capstan get addon\" lists those that are", name, absent)
		}
	}
	chosen := names
	if len(names) == 0 {
		names = known
	}
	list.Items = slices.DeleteFunc(list.Items, func(i addonv1alpha1.ManagedClusterAddOn) bool { return !slices.Contains(names, i.Name) })
	if len(known) == 0 {
		l.Note("No add-ons. \"capstan addon create NAME -f FILE\" makes one of manifests.")
	}
	shown := output.AddOns{Names: names, Installed: list.Items}
	if l.format.Format() == output.Tree && len(list.Items) > 0 {
		if shown.Works, err = l.works(ctx, hub, chosen, worksNamespaces(clusters, list.Items)); err != nil {
			return err
		}
	}
	return l.Print(l.format.Format(), shown.View(list))
}

// listAddOns lists the installations on some clusters, on all of them if none is named.
func listAddOns(ctx context.Context, hub *hubapi.Hub, clusters []string) (*addonv1alpha1.ManagedClusterAddOnList, error) {
	return managedclusters.ListIn(ctx, hub, clusters, func(cluster string) (*addonv1alpha1.ManagedClusterAddOnList, error) {
		return managedclusteraddons.List(ctx, hub, cluster)
	}, func(list *addonv1alpha1.ManagedClusterAddOnList) *[]addonv1alpha1.ManagedClusterAddOn {
		return &list.Items
	})
}

// knownAddOns are the names of the add-ons that can be installed, and of those that are.
func knownAddOns(ctx context.Context, hub *hubapi.Hub, installed []addonv1alpha1.ManagedClusterAddOn) ([]string, error) {
	catalogue, err := catalogueAddOns(ctx, hub)
	names := slices.Concat(hubapi.ObjectNames(catalogue), hubapi.ObjectNames(installed))
	slices.Sort(names)
	return slices.Compact(names), err
}

// works lists the works of some add-ons, of all if none is named, in namespaces. It warns of those that the user may not list.
func (l *addOnList) works(ctx context.Context, hub *hubapi.Hub, names, namespaces []string) (works []workv1.ManifestWork, err error) {
	selector := fleet.LabelAddOnName
	// It fails without names, and for one that no label has.
	if named, err := labels.NewRequirement(fleet.LabelAddOnName, selection.In, names); err == nil {
		selector = named.String()
	}
	for _, namespace := range namespaces {
		list, err := manifestworks.List(ctx, hub, namespace, selector)
		if apierrors.IsForbidden(err) {
			l.Note("Warning: ManifestWorks in %s are not shown: the user of %s may not list them.", cmp.Or(namespace, "the clusters"), hub.Source)
			continue
		}
		if err != nil {
			return nil, err
		}
		works = append(works, list.Items...)
	}
	return works, nil
}

// worksNamespaces are where the works of installations on some clusters are: there, and on hosting clusters. Those on all clusters may be
// anywhere.
func worksNamespaces(clusters []string, installed []addonv1alpha1.ManagedClusterAddOn) []string {
	if len(clusters) == 0 {
		return []string{metav1.NamespaceAll}
	}
	namespaces := slices.Clone(clusters)
	for i := range installed {
		if hosting := installed[i].Annotations[fleet.AnnotationHostingClusterName]; hosting != "" {
			namespaces = append(namespaces, hosting)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// completeAddOns completes the names of add-ons that are not on the line yet.
func (l *addOnList) completeAddOns(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(addOnNames(command.Context(), l.Global), func(name string) bool { return slices.Contains(args, name) }),
		cobra.ShellCompDirectiveNoFileComp
}

func addOnNames(ctx context.Context, global *options.Global) []string {
	return global.CompleteFromHub(ctx, func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		installed, err := managedclusteraddons.List(ctx, hub, "")
		if err != nil {
			return nil, err
		}
		return knownAddOns(ctx, hub, installed.Items)
	})
}
