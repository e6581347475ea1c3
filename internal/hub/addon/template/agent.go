package template

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/images"
	"github.com/capstan-io/capstan/internal/machinery/addon/template"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// agent is the code of an add-on with an AddOnTemplate.
type agent struct {
	*Catalogue
	name string
}

var _ addon.Agent = (*agent)(nil)

// Options are the same for all templates, except for the name: what depends on the template is read for each cluster.
func (a *agent) Options() addon.Options {
	return addon.Options{
		Name: a.name,
		Registration: &addon.Registration{
			Configs: a.registrations, Permissions: a.permissions, Sign: a.sign,
		},
		Health:           addon.Health{Mode: addon.HealthWorkloads},
		InstallNamespace: a.installNamespace,
		Configs:          Configs(),
		RedeployOn: func(before, after *clusterv1.ManagedCluster) bool {
			return before.Annotations[fleet.AnnotationImageRegistries] != after.Annotations[fleet.AnnotationImageRegistries]
		},
	}
}

// Configs returns the types of configurations of add-ons with templates.
func Configs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{Templates, config.DeploymentConfigs}
}

// Manifests renders the template.
func (a *agent) Manifests(ctx context.Context, installation addon.Installation) (*addon.Workload, error) {
	in, err := a.input(ctx, installation)
	if errors.Is(err, config.ErrMissing) && isLeaving(installation.AddOn) {
		return &addon.Workload{}, nil // an add-on without its template has no hooks to run
	}
	if err != nil {
		return nil, err
	}
	in.Namespace = installation.Namespace()
	rendered, err := template.Render(in)
	if err != nil {
		return nil, fmt.Errorf("the AddOnTemplate: %w", err)
	}
	a.reportOnce(installation, in.Template.AddonName, rendered.Unknown)
	objects := make([]client.Object, len(rendered.Objects))
	for i, object := range rendered.Objects {
		objects[i] = object
	}
	return &addon.Workload{
		Objects: objects, ManifestConfigs: rendered.ManifestConfigs, DeleteOption: rendered.DeleteOption, Executor: rendered.Executor,
	}, nil
}

// reported is what events have reported about a ManagedClusterAddOn, which the UID identifies: an add-on of the same name may have been
// missed.
type reported struct {
	of                                types.UID
	hosting, variables, ofAnotherName string
}

// reportOnce reports in events, once each, what the author of the template or its user may not expect.
func (a *agent) reportOnce(installation addon.Installation, templateIsFor string, unset []string) {
	about, variables := client.ObjectKeyFromObject(installation.AddOn), strings.Join(unset, ", ")
	hosting := installation.AddOn.Annotations[fleet.AnnotationHostingClusterName]
	current := reported{of: installation.AddOn.UID, hosting: hosting, variables: variables}
	if templateIsFor != a.name {
		current.ofAnotherName = templateIsFor
	}
	if isLeaving(installation.AddOn) || current == (reported{of: installation.AddOn.UID}) {
		a.reported.Delete(about)
		return
	}
	if before, _ := a.reported.Swap(about, current); before == current {
		return
	}
	if current.ofAnotherName != "" {
		a.recorder.Eventf(installation.AddOn, nil, corev1.EventTypeWarning, fleet.EventAddOnTemplateOfAnother, "Deploy",
			"The AddOnTemplate is used although it is for the add-on %s: correct its spec.addonName, or name another template in the configs",
			current.ofAnotherName)
	}
	if variables != "" {
		a.recorder.Eventf(installation.AddOn, nil, corev1.EventTypeWarning, fleet.EventAddOnTemplateVariablesUnset, "Deploy",
			"The AddOnTemplate has variables without a value, which become empty: %s. Give them one in the customizedVariables of an AddOnDeploymentConfig", variables)
	}
	if hosting != "" {
		a.recorder.Eventf(installation.AddOn, nil, corev1.EventTypeWarning, fleet.EventAddOnNotHosted, "Deploy",
			"Add-ons of AddOnTemplates run on their own cluster: the annotation %s with the cluster %s means nothing to this one",
			fleet.AnnotationHostingClusterName, hosting)
	}
}

// installNamespace returns the namespace in the template or in the AddOnDeploymentConfig.
func (a *agent) installNamespace(ctx context.Context, installation addon.Installation) (string, error) {
	in, err := a.input(ctx, installation)
	if errors.Is(err, config.ErrMissing) && isLeaving(installation.AddOn) {
		return installation.AddOn.Status.Namespace, nil
	}
	if err != nil {
		return "", err
	}
	return template.Namespace(in), nil
}

// input reads what a template is rendered with. The caller sets its Namespace.
func (a *agent) input(ctx context.Context, installation addon.Installation) (template.Input, error) {
	in := template.Input{AddOn: a.name, Cluster: installation.Cluster.Name}
	spec, err := a.template(ctx, installation)
	if err != nil {
		return in, err
	}
	in.Template = spec
	deployment := &addonv1beta1.AddOnDeploymentConfig{}
	switch found, err := config.Read(ctx, a.client, installation, deployment); {
	case err != nil:
		return in, err
	case found:
		in.Config = &deployment.Spec
	}
	in.ClusterMirrors, err = images.OfCluster(installation.Cluster)
	return in, err
}

// template reads the AddOnTemplate that applies on the cluster.
func (a *agent) template(ctx context.Context, installation addon.Installation) (*addonv1beta1.AddOnTemplateSpec, error) {
	object := &addonv1beta1.AddOnTemplate{}
	found, err := config.Read(ctx, a.client, installation, object)
	if err != nil {
		return nil, err
	}
	if !found && !isLeaving(installation.AddOn) && !meta.IsStatusConditionTrue(installation.AddOn.Status.Conditions,
		fleet.ConditionConfigured) {
		return nil, fmt.Errorf("the configurations of the add-on are not known yet: %w", addon.ErrNotYet)
	}
	if !found {
		return nil, fmt.Errorf("an AddOnTemplate for the add-on %s %w: name one as default in its ClusterManagementAddOn, or in the configs of a placement "+
			"or of the ManagedClusterAddOn",
			a.name, config.ErrMissing)
	}
	return &object.Spec, nil
}

func isLeaving(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return !addOn.DeletionTimestamp.IsZero()
}
