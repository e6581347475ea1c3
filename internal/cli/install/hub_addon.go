package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusteraddons"
	"github.com/capstan-io/capstan/internal/cli/namespaces"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// hubAddOn is an add-on whose hub side is a chart of the Open Cluster Management project.
type hubAddOn struct {
	name      string
	chart     string // of the release, too
	namespace string
	// addOns are what it deploys to clusters.
	addOns []string
	// version is that of the chart, the newest if it is empty.
	version func(bundle) string
}

// hubAddOns are those that can be installed.
var hubAddOns = []hubAddOn{
	{"argocd", "argocd-pull-integration", "argocd", []string{"argocd"}, newest},
	{"argocd-agent", "argocd-agent-addon", "argocd", []string{"argocd-agent", "argocd-agent-addon"}, newest},
	{
		"governance-policy-framework", "governance-policy-framework", fleet.NamespaceOperators,
		[]string{"governance-policy-framework", "config-policy-controller"},
		func(b bundle) string { return b.PolicyAddOn },
	},
}

func newest(bundle) string { return "" }

func hubAddOnNames() []string {
	names := make([]string, len(hubAddOns))
	for i := range hubAddOns {
		names[i] = hubAddOns[i].name
	}
	return names
}

// hubAddOnFlags choose hub-side add-ons and where they are.
type hubAddOnFlags struct {
	*options.Global
	names     []string
	namespace string
}

func (f *hubAddOnFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVar(&f.names, "names", nil, "which of "+strings.Join(hubAddOnNames(), ", ")+", separated by commas")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the hub that they run in (default argocd, or "+fleet.NamespaceOperators+
		" for governance-policy-framework)")
	options.Complete(command, "names", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return options.CompleteList(typed, hubAddOnNames())
	})
	options.Complete(command, "namespace", f.CompleteNamespaces)
}

// chosen are the add-ons, each in its namespace.
func (f *hubAddOnFlags) chosen() ([]hubAddOn, error) {
	names, err := options.NamesOf("--names", f.names)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--names is missing: which of %s", strings.Join(hubAddOnNames(), ", "))
	}
	if f.namespace != "" {
		if err := options.CheckNamespaceName("--namespace", f.namespace); err != nil {
			return nil, err
		}
	}
	var chosen []hubAddOn
	for _, name := range names {
		at := slices.IndexFunc(hubAddOns, func(h hubAddOn) bool { return h.name == name })
		if at < 0 {
			return nil, fmt.Errorf("--names: %q is none of %s", name, strings.Join(hubAddOnNames(), ", "))
		}
		addOn := hubAddOns[at]
		if f.namespace != "" {
			addOn.namespace = f.namespace
		}
		chosen = append(chosen, addOn)
	}
	return chosen, nil
}

const installHubAddOnLong = `Install the hub's side of add-ons of the Open Cluster Management project, from its Helm repository:

  argocd                        pulls Argo CD applications from the hub (chart argocd-pull-integration)
  argocd-agent                  manages Argo CD on clusters (chart argocd-agent-addon)
  governance-policy-framework   brings policies to clusters

A chart that does not have the digest in the index of the repository is not installed.

It needs a hub that runs pods: one in a Kubernetes cluster, not a standalone one. What is installed already is upgraded, and
keeps its values; "helm list" shows it. "capstan addon enable" then deploys the add-ons on clusters.`

// hubAddOnInstallation is one run of "capstan install hub-addon".
type hubAddOnInstallation struct {
	hubAddOnFlags
	versions        bundleFlags
	createNamespace bool
	outputFile      string
	from            hubAddOnSource
}

// NewInstallHubAddOnCommand is "capstan install hub-addon".
func NewInstallHubAddOnCommand(global *options.Global) *cobra.Command {
	f := &hubAddOnInstallation{hubAddOnFlags: hubAddOnFlags{Global: global}}
	command := &cobra.Command{
		Use:   "hub-addon --names ADD-ON,...",
		Short: "Install the hub's side of add-ons",
		Long:  installHubAddOnLong,
		Example: "  capstan install hub-addon --names argocd --create-namespace\n" +
			"  capstan install hub-addon --names governance-policy-framework --dry-run",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(command)
	f.versions.add(command)
	command.Flags().BoolVar(&f.createNamespace, "create-namespace", false, "create the namespace if it is missing")
	command.Flags().StringVar(&f.from.repository, "repository", chartRepository,
		"Helm repository with the charts, such as a copy that this machine reaches")
	command.Flags().StringVar(&f.from.caFile, "repository-ca-file", "",
		"PEM certificates to verify the Helm repository with (default: those of this machine)")
	command.Flags().StringVar(&f.outputFile, "output-file", "", "write what was applied to this file")
	command.RunE = func(command *cobra.Command, _ []string) error {
		chosen, err := f.chosen()
		if err != nil {
			return err
		}
		if f.from.versions, err = f.versions.bundle(); err != nil {
			return err
		}
		if err := options.CheckOutputFile(f.outputFile); err != nil {
			return err
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if !f.createNamespace {
				if err := checkNamespaces(ctx, hub, chosen); err != nil {
					return err
				}
			}
			return f.install(ctx, hub, chosen)
		})
	}
	return command
}

// checkNamespaces fails if a namespace is missing.
func checkNamespaces(ctx context.Context, hub *hubapi.Hub, addOns []hubAddOn) error {
	for _, addOn := range addOns {
		exists, err := namespaces.Exists(ctx, hub, addOn.namespace)
		if err != nil {
			return err
		}
		if !exists {
			return fmt.Errorf("the hub has no namespace %s for %s: --create-namespace makes it", addOn.namespace, addOn.name)
		}
	}
	return nil
}

// install renders all of them before it installs any.
func (f *hubAddOnInstallation) install(ctx context.Context, hub *hubapi.Hub, addOns []hubAddOn) error {
	if err := checkRunsPods(ctx, hub); err != nil {
		return err
	}
	program := charts{source: hub.Source}
	var rendered strings.Builder
	for _, addOn := range addOns {
		manifests, err := program.run(ctx, addOn.chartArgs("template", f.from)...)
		if err != nil {
			return fmt.Errorf("add-on %s: %w", addOn.name, err)
		}
		rendered.WriteString(manifests)
	}
	if f.DryRun {
		f.Say("%s", strings.TrimSpace(rendered.String()))
		return nil
	}
	for _, addOn := range addOns {
		f.Say("Installing built-in %s add-on to the Hub cluster...", addOn.name)
		args := addOn.chartArgs("install", f.from)
		if f.createNamespace {
			args = append(args, "--create-namespace")
		}
		if _, err := program.run(ctx, args...); err != nil {
			return fmt.Errorf("add-on %s: %w", addOn.name, err)
		}
	}
	if f.outputFile == "" {
		return nil
	}
	return options.WriteOutputFile(f.outputFile, []byte(rendered.String()))
}

// hubAddOnSource is where the charts come from, and in which versions.
type hubAddOnSource struct {
	repository string
	// caFile verifies the repository; this machine's certificates do if it is empty.
	caFile   string
	versions bundle
}

// chartArgs are the arguments of the program for charts.
func (h hubAddOn) chartArgs(verb string, from hubAddOnSource) []string {
	args := []string{verb, h.chart, h.chart, "--repository", from.repository, "--namespace", h.namespace}
	if from.caFile != "" {
		args = append(args, "--repository-ca-file", from.caFile)
	}
	if version := h.version(from.versions); version != "" {
		args = append(args, "--version", version)
	}
	return args
}

// checkRunsPods fails on a hub where what the charts install could not run.
func checkRunsPods(ctx context.Context, hub *hubapi.Hub) error {
	if _, err := hub.ResourceOf(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}); err != nil {
		return fmt.Errorf("the hub at %s runs no pods, so the hub's side of add-ons cannot be installed there; a hub in a Kubernetes cluster runs them: %w",
			hub.Server, err)
	}
	return nil
}

const uninstallHubAddOnLong = `Uninstall the hub's side of add-ons that "capstan install hub-addon" installed.

An add-on that is on clusters is not uninstalled: nobody would take it off them. "capstan addon disable" does.`

// hubAddOnRemoval is one run of "capstan uninstall hub-addon".
type hubAddOnRemoval struct{ hubAddOnFlags }

// NewUninstallHubAddOnCommand is "capstan uninstall hub-addon".
func NewUninstallHubAddOnCommand(global *options.Global) *cobra.Command {
	f := &hubAddOnRemoval{hubAddOnFlags{Global: global}}
	command := &cobra.Command{
		Use:               "hub-addon --names ADD-ON,...",
		Short:             "Uninstall the hub's side of add-ons",
		Long:              uninstallHubAddOnLong,
		Example:           "  capstan uninstall hub-addon --names argocd",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		chosen, err := f.chosen()
		if err != nil {
			return err
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return f.uninstall(ctx, hub, chosen)
		})
	}
	return command
}

// uninstall makes sure that no cluster has any of them before it uninstalls one. It goes on with those that can be uninstalled: an
// interrupted run may have uninstalled the first.
func (f *hubAddOnRemoval) uninstall(ctx context.Context, hub *hubapi.Hub, addOns []hubAddOn) error {
	installed, err := managedclusteraddons.List(ctx, hub, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, addOn := range addOns {
		for i := range installed.Items {
			on := &installed.Items[i]
			if slices.Contains(addOn.addOns, on.Name) {
				errs = append(errs, fmt.Errorf("add-on %s is on cluster %s. Take it off first:\n  capstan addon disable --names %s --clusters %s",
					on.Name, on.Namespace, on.Name, on.Namespace))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, addOn := range addOns {
		if f.DryRun {
			f.Say("would uninstall %s from namespace %s", addOn.name, addOn.namespace)
			continue
		}
		f.Say("Uninstalling built-in %s add-on from the Hub cluster...", addOn.name)
		if _, err := (charts{source: hub.Source}).run(ctx, "uninstall", addOn.chart, "--namespace", addOn.namespace); err != nil {
			errs = append(errs, fmt.Errorf("add-on %s: %w", addOn.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
