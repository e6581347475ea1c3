package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusteraddons"
	"github.com/capstan-io/capstan/internal/cli/options"
)

const addOnDisableLong = `Take add-ons off clusters.

An add-on is gone once its agent has been taken off the cluster; "capstan get addon" shows that. An add-on that a placement
deploys comes back as long as the placement selects the cluster.`

// addOnRemoval is one run of "capstan addon disable".
type addOnRemoval struct{ addOnFlags }

// NewDisableCommand is "capstan addon disable".
func NewDisableCommand(global *options.Global) *cobra.Command {
	f := &addOnRemoval{addOnFlags{Global: global}}
	command := &cobra.Command{
		Use:               "disable --names ADD-ON,... --clusters CLUSTER,...",
		Short:             "Take add-ons off clusters",
		Long:              addOnDisableLong,
		Example:           "  capstan addon disable --names hello --clusters cluster1,cluster2",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		names, clusters, err := f.chosen()
		if err != nil {
			return err
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return f.disableAll(ctx, hub, names, clusters)
		})
	}
	return command
}

func (f *addOnRemoval) disableAll(ctx context.Context, hub *hubapi.Hub, names, clusters []string) error {
	installed, err := listAddOns(ctx, hub, clusters)
	if err != nil {
		return err
	}
	onCluster := map[[2]string]bool{}
	for i := range installed.Items {
		onCluster[[2]string{installed.Items[i].Name, installed.Items[i].Namespace}] = true
	}
	var errs []error
	for _, name := range names {
		isOn := func(cluster string) bool { return onCluster[[2]string{name, cluster}] }
		if err := f.warnReinstalled(ctx, hub, name, slices.ContainsFunc(clusters, isOn)); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, cluster := range clusters {
			errs = append(errs, f.disable(ctx, hub, name, cluster, isOn(cluster)))
		}
	}
	return errors.Join(errs...)
}

func (f *addOnRemoval) disable(ctx context.Context, hub *hubapi.Hub, name, cluster string, found bool) error {
	if found && f.DryRun {
		f.Say("would undeploy %s add-on in managed cluster: %s.", name, cluster)
		return nil
	}
	var err error
	if found {
		found, err = uninstallAddOn(ctx, hub, cluster, name)
	}
	switch {
	case err != nil:
		return err
	case found:
		f.Say("Undeploying %s add-on in managed cluster: %s.", name, cluster)
	default:
		f.Say("%s add-on not found in managed cluster: %s.", name, cluster)
	}
	return nil
}

// warnReinstalled points out that a placement deploys the add-on again, if the add-on has any. One that the hub does not offer and no
// cluster has is misspelt. Who may not read what the hub offers is told nothing about it, and may take off what is there.
func (f *addOnRemoval) warnReinstalled(ctx context.Context, hub *hubapi.Hub, name string, found bool) error {
	offered, err := catalogueAddOn(ctx, hub, name)
	switch {
	case found && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		return nil
	case apierrors.IsNotFound(err):
		return checkInstalled(ctx, hub, name, err)
	case err != nil:
		return err
	}
	strategy := offered.Spec.InstallStrategy
	if strategy.Type == addonv1beta1.InstallStrategyPlacements && len(strategy.Placements) > 0 {
		f.Note("Warning: placements deploy add-on %s: it comes back where they select the cluster. \"capstan get placements\" shows where they do.", name)
	}
	return nil
}

// checkInstalled fails unless some cluster has an add-on that the hub does not offer.
func checkInstalled(ctx context.Context, hub *hubapi.Hub, name string, notOffered error) error {
	everywhere, err := managedclusteraddons.List(ctx, hub, "")
	if err != nil {
		return err
	}
	for i := range everywhere.Items {
		if everywhere.Items[i].Name == name {
			return nil
		}
	}
	return fmt.Errorf("--names: %w", notOffered)
}

// uninstallAddOn removes an add-on from a cluster. It reports whether it was there.
func uninstallAddOn(ctx context.Context, hub *hubapi.Hub, cluster, name string) (found bool, err error) {
	err = hub.Client(managedclusteraddons.Resource).Namespace(cluster).Delete(ctx, name)
	if apierrors.IsNotFound(err) && !hubapi.NotServed(err) {
		return false, nil
	}
	return err == nil, hub.Explain("undeploy add-on "+name+" in managed cluster "+cluster, err)
}
