package addons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusteraddons"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

const addOnEnableLong = `Deploy add-ons on clusters, or change how they are deployed.

--config-file names objects that configure the add-on, such as an AddOnDeploymentConfig. They are applied on the hub, and the
add-on on these clusters is told to use them, and no others.

To change how an add-on is deployed, say all of it again: what an earlier "addon enable" said of these clusters and this one does
not, such as its --config-file, --annotate or --labels, is taken back.

"capstan get addon NAME" shows when it is available.`

// addOnEnabling is one run of "capstan addon enable".
type addOnEnabling struct {
	addOnFlags
	namespace   string
	inNamespace bool // that --namespace was set
	annotations map[string]string
	labels      map[string]string
	configFile  string
	outputFile  string
}

// NewEnableCommand is "capstan addon enable".
func NewEnableCommand(global *options.Global) *cobra.Command {
	f := &addOnEnabling{addOnFlags: addOnFlags{Global: global}}
	command := &cobra.Command{
		Use:   "enable --names ADD-ON,... --clusters CLUSTER,...",
		Short: "Deploy add-ons on clusters",
		Long:  addOnEnableLong,
		Example: "  capstan addon enable --names hello --clusters cluster1,cluster2\n" +
			"  capstan addon enable --names hello --clusters cluster1 --namespace hello --config-file config.yaml",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(command)
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", fleet.NamespaceAgentAddOn, "namespace of the clusters that the agents run in")
	flags.StringToStringVar(&f.annotations, "annotate", nil, "annotations of the deployments, as key=value,...")
	flags.StringToStringVar(&f.labels, "labels", nil, "labels of the deployments, as key=value,...")
	flags.StringVar(&f.configFile, "config-file", "", "file with objects that configure the add-ons, in YAML or JSON; - is standard input")
	flags.StringVar(&f.outputFile, "output-file", "", "write what was applied to this file")
	options.Complete(command, "namespace", cobra.NoFileCompletions)
	command.RunE = func(command *cobra.Command, _ []string) error {
		names, clusters, err := f.chosen()
		if err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return err
		}
		f.inNamespace = flags.Changed("namespace")
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		configs, err := f.readConfigs(ctx)
		if err != nil {
			return err
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return f.enable(ctx, hub, names, clusters, configs)
		})
	}
	return command
}

func (f *addOnEnabling) check() error {
	if err := options.CheckNamespaceName("--namespace", f.namespace); err != nil {
		return err
	}
	if err := options.CheckOutputFile(f.outputFile); err != nil {
		return err
	}
	for key := range f.annotations {
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			return fmt.Errorf("--annotate: %s: %s", key, strings.Join(problems, "; "))
		}
	}
	return checkLabels("--labels", f.labels)
}

// readConfigs reads the objects of --config-file; none without one.
func (f *addOnEnabling) readConfigs(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if f.configFile == "" {
		return nil, nil
	}
	manifests, err := manifests.Files{Flag: "--config-file", Paths: []string{f.configFile}, Stdin: f.In, Note: f.Note}.Read(ctx)
	if err != nil {
		return nil, err
	}
	var configs []*unstructured.Unstructured
	for _, m := range manifest.Decode(manifests) {
		configs = append(configs, m.Object)
	}
	return configs, nil
}

// addOnConfig is an object that configures add-ons, and how the hub serves it.
type addOnConfig struct {
	object   *unstructured.Unstructured
	resource apiclient.Resource
}

func (c addOnConfig) reference() addonv1beta1.AddOnConfig {
	return addonv1beta1.AddOnConfig{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: c.resource.Group, Resource: c.resource.Resource},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: c.object.GetNamespace(), Name: c.object.GetName()},
	}
}

// enable checks everything before it writes anything.
func (f *addOnEnabling) enable(ctx context.Context, hub *hubapi.Hub, names, clusters []string, objects []*unstructured.Unstructured) error {
	configs, err := resolveConfigs(ctx, hub, objects)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, checkOffered(ctx, hub, name, configs))
	}
	for _, cluster := range clusters {
		errs = append(errs, options.CheckCluster(ctx, hub, cluster))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, c := range configs {
		if warning := f.namespaceWarning(c); warning != "" {
			f.Note("%s", warning)
		}
	}
	var deployments []*addonv1alpha1.ManagedClusterAddOn
	for _, name := range names {
		for _, cluster := range clusters {
			deployments = append(deployments, f.deployment(name, cluster, configs))
		}
	}
	applied := make([]any, 0, len(configs)+len(deployments))
	for _, c := range configs {
		applied = append(applied, c.object)
	}
	for _, d := range deployments {
		applied = append(applied, d)
	}
	if f.DryRun {
		for _, object := range applied {
			errs = append(errs, f.Render(object))
		}
		return errors.Join(errs...)
	}
	if err := f.deploy(ctx, hub, configs, deployments); err != nil {
		return err
	}
	return f.WriteApplied(f.outputFile, applied)
}

// resolveConfigs finds out how the hub serves the objects that configure add-ons.
func resolveConfigs(ctx context.Context, hub *hubapi.Hub, objects []*unstructured.Unstructured) ([]addOnConfig, error) {
	var configs []addOnConfig
	var errs []error
	for _, object := range objects {
		resource, err := hub.ResourceOf(ctx, object.GroupVersionKind())
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--config-file: %w", err))
		case resource.Namespaced && object.GetNamespace() == "":
			errs = append(errs, fmt.Errorf("--config-file: %s %s: metadata.namespace is missing: say in which namespace of the hub it is to be",
				object.GetKind(), object.GetName()))
		default:
			configs = append(configs, addOnConfig{object, resource})
		}
	}
	return configs, errors.Join(errs...)
}

// checkOffered fails if the hub does not offer an add-on, or if the add-on would ignore a configuration.
func checkOffered(ctx context.Context, hub *hubapi.Hub, name string, configs []addOnConfig) error {
	offered, err := catalogueAddOn(ctx, hub, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range configs {
		kind := c.reference().ConfigGroupResource
		if !slices.ContainsFunc(offered.Spec.SupportedConfigs, func(s addonv1alpha1.ConfigMeta) bool { return s.ConfigGroupResource == kind }) {
			errs = append(errs, fmt.Errorf("--config-file: add-on %s takes no %s.%s: spec.supportedConfigs of its ClusterManagementAddOn lists what it takes", name,
				kind.Resource, kind.Group))
		}
	}
	return errors.Join(errs...)
}

// namespaceWarning says that a configuration has the agents run in another namespace than that of --namespace, if it does: an
// AddOnDeploymentConfig decides, and does so without a word, since the hub fills the field in.
func (f *addOnEnabling) namespaceWarning(c addOnConfig) string {
	if !f.inNamespace || c.object.GetKind() != "AddOnDeploymentConfig" || c.resource.Group != addonv1beta1.GroupVersion.Group {
		return ""
	}
	namespace, set, err := unstructured.NestedString(c.object.Object, "spec", "agentInstallNamespace")
	origin := ""
	if err == nil && !set {
		namespace, origin = fleet.NamespaceAgentAddOn, ", which is the default of its spec.agentInstallNamespace"
	}
	if err != nil || namespace == "" || namespace == f.namespace {
		return ""
	}
	return fmt.Sprintf("AddOnDeploymentConfig %s/%s of --config-file has the agents run in namespace %s%s, and not in %s: write agentInstallNamespace: "+
		"%s in its spec if they are to run there",
		c.object.GetNamespace(), c.object.GetName(), namespace, origin, f.namespace, f.namespace)
}

func (f *addOnEnabling) deployment(name, cluster string, configs []addOnConfig) *addonv1alpha1.ManagedClusterAddOn {
	d := &addonv1alpha1.ManagedClusterAddOn{
		TypeMeta: metav1.TypeMeta{APIVersion: addonv1alpha1.GroupVersion.String(), Kind: "ManagedClusterAddOn"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster, Name: name, Labels: maps.Clone(f.labels), Annotations: maps.Clone(f.annotations),
		},
		Spec: addonv1alpha1.ManagedClusterAddOnSpec{InstallNamespace: f.namespace},
	}
	for _, c := range configs {
		d.Spec.Configs = append(d.Spec.Configs, c.reference())
	}
	return d
}

// deploy deploys on each cluster it can, once the configurations are there.
func (f *addOnEnabling) deploy(ctx context.Context, hub *hubapi.Hub, configs []addOnConfig,
	deployments []*addonv1alpha1.ManagedClusterAddOn) error {
	for _, c := range configs {
		err := hub.Apply(ctx, c.resource, c.object)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("--config-file: the hub has no namespace %q: \"kubectl create namespace %s\" makes it: %w", c.object.GetNamespace(),
				c.object.GetNamespace(), err)
		}
		if err != nil {
			return err
		}
	}
	var errs []error
	for _, d := range deployments {
		if err := installAddOn(ctx, hub, d); err != nil {
			errs = append(errs, err)
			continue
		}
		f.Say("Deploying %s add-on to namespaces %s of managed cluster: %s.", d.Name, f.namespace, d.Namespace)
	}
	return errors.Join(errs...)
}

// installAddOn installs an add-on on the cluster that its namespace names, or makes an installation what it should be. It is applied by
// the server: what this program has set before, and does not set now, goes; what others have set stays, but for the list of
// configurations, which is replaced as a whole if there is one now.
func installAddOn(ctx context.Context, hub *hubapi.Hub, addOn *addonv1alpha1.ManagedClusterAddOn) error {
	content, err := json.Marshal(addOn)
	if err != nil {
		return err
	}
	err = hub.Client(managedclusteraddons.Resource).Namespace(addOn.Namespace).Apply(ctx, addOn.Name, content)
	return hub.Explain("deploy add-on "+addOn.Name+" in managed cluster "+addOn.Namespace, err)
}
