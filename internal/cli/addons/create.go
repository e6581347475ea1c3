package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/placements"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const addOnCreateLong = `Make an add-on of manifests: an AddOnTemplate NAME-VERSION with them, and the ClusterManagementAddOn NAME that offers it.

"capstan addon enable" then deploys it on clusters. With --placement-ref, the hub deploys it on those that the placements
select. A new --version with --overwrite makes a template next to the old one, and rolls it out.

With --hub-registration, its agent gets a kubeconfig for the hub, in the Secret NAME-hub-kubeconfig of its namespace.
--cluster-role-bind says what it may do there, in the namespace of its cluster.`

// change is what becomes of an object of the hub.
type change int

const (
	changeNone change = iota
	changeCreate
	changeUpdate
)

// addOnCreation is one run of "capstan addon create".
type addOnCreation struct {
	*options.Global
	files           manifests.Files
	version         string
	overwrite       bool
	hubRegistration bool
	clusterRole     string
	labels          map[string]string
	placements      []string
}

// NewCreateCommand is "capstan addon create".
func NewCreateCommand(global *options.Global) *cobra.Command {
	f := &addOnCreation{Global: global}
	command := &cobra.Command{
		Use:   "create NAME -f FILE",
		Short: "Make an add-on of manifests",
		Long:  addOnCreateLong,
		Example: "  capstan addon create hello -f hello/\n" +
			"  capstan addon create hello -f hello/ --version 0.0.2 --overwrite --placement-ref default/all\n" +
			"  capstan addon create reporter -f reporter.yaml --hub-registration --cluster-role-bind reporter",
		Args:              options.ExactName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.files.Add(global, command)
	flags := command.Flags()
	flags.StringVar(&f.version, "version", "0.0.1", "version of the template")
	flags.BoolVar(&f.overwrite, "overwrite", false, "change an add-on that is there already")
	flags.BoolVar(&f.hubRegistration, "hub-registration", false, "give the agent of the add-on access to the hub")
	flags.StringVar(&f.clusterRole, "cluster-role-bind", "",
		"ClusterRole of the hub that the agent gets in the namespace of its cluster; needs --hub-registration")
	flags.StringToStringVar(&f.labels, "labels", nil, "labels of the add-on, as key=value,...")
	flags.StringSliceVar(&f.placements, "placement-ref", nil,
		"placement that says on which clusters the hub deploys it, as NAMESPACE/NAME; may be repeated")
	options.Complete(command, "placement-ref", f.CompletePlacementRef)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		template, addOn, err := f.objects(ctx, args[0])
		if err != nil {
			return err
		}
		if f.DryRun {
			f.AnnounceDryRun(command)
			return errors.Join(f.Render(template), f.Render(addOn))
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if err := f.create(ctx, hub, template, addOn); err != nil {
				return err
			}
			f.warnMissingRole(ctx, hub)
			return nil
		})
	}
	return command
}

// objects are what the flags and files describe.
func (f *addOnCreation) objects(ctx context.Context, name string) (*addonv1alpha1.AddOnTemplate, *addonv1alpha1.ClusterManagementAddOn,
	error) {
	templateName := name + "-" + f.version
	if problems := validation.IsDNS1123Subdomain(templateName); len(problems) > 0 {
		return nil, nil, fmt.Errorf("--version: %q cannot end the name of a template: %s", f.version, strings.Join(problems, "; "))
	}
	if err := checkLabels("--labels", f.labels); err != nil {
		return nil, nil, err
	}
	registration, err := f.registration()
	if err != nil {
		return nil, nil, err
	}
	strategy, err := f.installStrategy()
	if err != nil {
		return nil, nil, err
	}
	manifests, err := f.files.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	template := &addonv1alpha1.AddOnTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: addonv1alpha1.GroupVersion.String(), Kind: "AddOnTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: templateName, Labels: f.labels},
		Spec: addonv1beta1.AddOnTemplateSpec{
			AddonName:    name,
			AgentSpec:    workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: manifests}},
			Registration: registration,
		},
	}
	addOn := &addonv1alpha1.ClusterManagementAddOn{
		TypeMeta: metav1.TypeMeta{APIVersion: addonv1alpha1.GroupVersion.String(), Kind: "ClusterManagementAddOn"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: f.labels, Annotations: map[string]string{fleet.AnnotationLifecycle: fleet.LifecycleAddOnManager},
		},
		Spec: addonv1alpha1.ClusterManagementAddOnSpec{
			AddOnMeta: addonv1beta1.AddOnMeta{DisplayName: name},
			SupportedConfigs: []addonv1alpha1.ConfigMeta{
				{ConfigGroupResource: templateConfig, DefaultConfig: &addonv1beta1.ConfigReferent{Name: templateName}},
				{ConfigGroupResource: deploymentConfig},
			},
			InstallStrategy: strategy,
		},
	}
	return template, addOn, nil
}

// Kinds of configuration that every add-on of a template takes: the template, and what a cluster needs to be different.
var (
	templateConfig   = addonv1beta1.ConfigGroupResource{Group: addonv1alpha1.GroupVersion.Group, Resource: "addontemplates"}
	deploymentConfig = addonv1beta1.ConfigGroupResource{Group: addonv1alpha1.GroupVersion.Group, Resource: "addondeploymentconfigs"}
)

func (f *addOnCreation) registration() ([]addonv1beta1.RegistrationSpec, error) {
	switch {
	case f.clusterRole != "" && !f.hubRegistration:
		return nil, errors.New("--cluster-role-bind: an agent without access to the hub has no use for a role there: add --hub-registration")
	case !f.hubRegistration:
		return nil, nil
	}
	client := &addonv1beta1.KubeClientRegistrationSpec{}
	if f.clusterRole != "" {
		client.HubPermissions = []addonv1beta1.HubPermissionConfig{{
			Type:           addonv1beta1.HubPermissionsBindingCurrentCluster,
			CurrentCluster: &addonv1beta1.CurrentClusterBindingConfig{ClusterRoleName: f.clusterRole},
		}}
	}
	return []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeKubeClient, KubeClient: client}}, nil
}

func (f *addOnCreation) installStrategy() (addonv1beta1.InstallStrategy, error) {
	if len(f.placements) == 0 {
		return addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyManual}, nil
	}
	strategy := addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements}
	for _, text := range f.placements {
		ref, err := options.ParsePlacementRef("--placement-ref", text)
		if err != nil {
			return strategy, err
		}
		strategy.Placements = append(strategy.Placements, addonv1beta1.PlacementStrategy{
			PlacementRef: addonv1beta1.PlacementRef{Namespace: ref.Namespace, Name: ref.Name},
		})
	}
	return strategy, nil
}

// create checks everything before it writes anything. The template comes first: an add-on never offers one that is not
// there.
func (f *addOnCreation) create(ctx context.Context, hub *hubapi.Hub, template *addonv1alpha1.AddOnTemplate,
	addOn *addonv1alpha1.ClusterManagementAddOn) error {
	for _, p := range addOn.Spec.InstallStrategy.Placements {
		if _, err := placements.Get(ctx, hub, p.Namespace, p.Name); err != nil {
			return err
		}
	}
	forTemplate, err := planTemplate(ctx, hub, template, f.overwrite)
	if err != nil {
		return err
	}
	forAddOn, err := planCatalogueAddOn(ctx, hub, addOn, f.overwrite)
	if err != nil {
		return err
	}
	if err := f.writeTemplate(ctx, hub, template, forTemplate); err != nil {
		return err
	}
	return f.writeCatalogueAddOn(ctx, hub, addOn, forAddOn)
}

// warnMissingRole points out that the agent can do nothing yet, where roles may be read.
func (f *addOnCreation) warnMissingRole(ctx context.Context, hub *hubapi.Hub) {
	role := f.clusterRole
	if role == "" {
		return
	}
	if found, err := hasClusterRole(ctx, hub, role); err == nil && !found {
		f.Note("Warning: the hub has no ClusterRole %s. The agent of the add-on has no rights there until a user creates it.", role)
	}
}

func planTemplate(ctx context.Context, hub *hubapi.Hub, template *addonv1alpha1.AddOnTemplate, overwrite bool) (change, error) {
	live, err := addOnTemplate(ctx, hub, template.Name)
	switch {
	case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
		return changeCreate, nil
	case err != nil:
		return changeNone, err
	case manifests.SameWorkload(live.Spec.AgentSpec.Workload, template.Spec.AgentSpec.Workload) &&
		equality.Semantic.DeepEqual(live.Spec.Registration, template.Spec.Registration):
		return changeNone, nil
	case live.Spec.AddonName != template.Spec.AddonName:
		return changeNone, fmt.Errorf("AddonTemplate %s already exists, for add-on %s: choose another --version", template.Name,
			live.Spec.AddonName)
	case !overwrite:
		return changeNone, fmt.Errorf("AddonTemplate %s already exists, with other manifests or another registration: choose another --version, or replace "+
			"them with --overwrite", template.Name)
	}
	return changeUpdate, nil
}

func (f *addOnCreation) writeTemplate(ctx context.Context, hub *hubapi.Hub, template *addonv1alpha1.AddOnTemplate, what change) error {
	switch what {
	case changeCreate:
		return f.report(createAddOnTemplate(ctx, hub, template), "AddonTemplate %s is created", template.Name)
	case changeUpdate:
		return f.report(updateAddOnTemplate(ctx, hub, template.Name, func(live *addonv1alpha1.AddOnTemplate) {
			live.Spec.AgentSpec.Workload = template.Spec.AgentSpec.Workload
			live.Spec.Registration = template.Spec.Registration
			setLabels(&live.ObjectMeta, template.Labels)
		}), "AddonTemplate %s is updated", template.Name)
	default:
		return f.report(nil, "AddonTemplate %s is already created", template.Name)
	}
}

func planCatalogueAddOn(ctx context.Context, hub *hubapi.Hub, addOn *addonv1alpha1.ClusterManagementAddOn, overwrite bool) (change, error) {
	live, err := catalogueAddOn(ctx, hub, addOn.Name)
	if apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub) {
		return changeCreate, nil
	}
	if err != nil {
		return changeNone, err
	}
	desired := live.DeepCopy()
	mergeInto(desired, addOn)
	switch {
	case equality.Semantic.DeepEqual(live, desired):
		return changeNone, nil
	case !overwrite:
		return changeNone, fmt.Errorf("ClusterManagementAddon %s already exists, with another template, other labels, placements or kinds of configuration: "+
			"change it with --overwrite, or choose another name", addOn.Name)
	}
	return changeUpdate, nil
}

func (f *addOnCreation) writeCatalogueAddOn(ctx context.Context, hub *hubapi.Hub, addOn *addonv1alpha1.ClusterManagementAddOn,
	what change) error {
	switch what {
	case changeCreate:
		return f.report(createCatalogueAddOn(ctx, hub, addOn), "ClusterManagementAddon %s is created", addOn.Name)
	case changeUpdate:
		return f.report(updateCatalogueAddOn(ctx, hub, addOn.Name, func(live *addonv1alpha1.ClusterManagementAddOn) { mergeInto(live, addOn) }),
			"ClusterManagementAddon %s is updated", addOn.Name)
	default:
		return f.report(nil, "ClusterManagementAddon %s is already created", addOn.Name)
	}
}

// report prints that something is done, unless it failed.
func (f *addOnCreation) report(err error, format string, args ...any) error {
	if err == nil {
		f.Say(format, args...)
	}
	return err
}

// mergeInto makes an add-on offer the template of another, and be deployed by its placements, if that has any. What else there is
// stays: other kinds of configuration, and how the change reaches the clusters of a placement.
func mergeInto(live, addOn *addonv1alpha1.ClusterManagementAddOn) {
	setLabels(&live.ObjectMeta, addOn.Labels)
	metav1.SetMetaDataAnnotation(&live.ObjectMeta, fleet.AnnotationLifecycle, fleet.LifecycleAddOnManager)
	for _, offered := range addOn.Spec.SupportedConfigs {
		at := slices.IndexFunc(live.Spec.SupportedConfigs, func(c addonv1alpha1.ConfigMeta) bool {
			return c.ConfigGroupResource == offered.ConfigGroupResource
		})
		if at < 0 {
			live.Spec.SupportedConfigs = append(live.Spec.SupportedConfigs, offered)
		} else if offered.DefaultConfig != nil {
			live.Spec.SupportedConfigs[at] = offered
		}
	}
	placements := addOn.Spec.InstallStrategy.Placements
	if len(placements) == 0 {
		return
	}
	before := live.Spec.InstallStrategy.Placements
	live.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements}
	for _, p := range placements {
		existing := slices.IndexFunc(before, func(b addonv1beta1.PlacementStrategy) bool { return b.PlacementRef == p.PlacementRef })
		if existing >= 0 {
			p = before[existing]
		}
		live.Spec.InstallStrategy.Placements = append(live.Spec.InstallStrategy.Placements, p)
	}
}

func setLabels(meta *metav1.ObjectMeta, labels map[string]string) {
	for key, value := range labels {
		metav1.SetMetaDataLabel(meta, key, value)
	}
}

// hasClusterRole reports whether the hub has a ClusterRole.
func hasClusterRole(ctx context.Context, hub *hubapi.Hub, name string) (bool, error) {
	err := hub.Raw().Get().AbsPath("/apis/rbac.authorization.k8s.io/v1/clusterroles", name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, hub.Explain("look for ClusterRole "+name, err)
}
