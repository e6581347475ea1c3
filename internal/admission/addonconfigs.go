package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// AddOnReader reads what decides on the configurations of add-ons. Its functions fail with NotFound for an object that does not exist.
type AddOnReader struct {
	ManagementAddOn func(ctx context.Context, name string) (*addonv1beta1.ClusterManagementAddOn, error)
	Template        func(ctx context.Context, name string) (*addonv1beta1.AddOnTemplate, error)
}

// ValidateManagedClusterAddOnConfigs checks the configurations that a ManagedClusterAddOn names, and did not name before (old is nil if it
// is created). The hub reads them, and grants to agents what an AddOnTemplate has, under its own identity. So the sender needs the
// permission to read each, and those that the author of an AddOnTemplate needs; without one, it fails with 403. The defaults of the add-on
// are for everybody who may install it. Those of a placement are not: they are for the clusters that it selects.
func ValidateManagedClusterAddOnConfigs(ctx context.Context, addOn, old *addonv1beta1.ManagedClusterAddOn, sender Sender,
	read AddOnReader) error {
	var allowed []addonv1beta1.AddOnConfig
	if old != nil {
		allowed = slices.Clone(old.Spec.Configs)
	}
	if !slices.ContainsFunc(addOn.Spec.Configs, func(config addonv1beta1.AddOnConfig) bool { return !namesConfig(allowed, config) }) {
		return nil
	}
	entry, err := read.ManagementAddOn(ctx, addOn.Name)
	switch {
	case err == nil:
		allowed = append(allowed, entry.Spec.DefaultConfigs...)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read ClusterManagementAddOn %s, for its defaults: %w", addOn.Name, err)
	}
	var errs field.ErrorList
	for i, config := range addOn.Spec.Configs {
		if config.Name == addonv1beta1.ReservedNoDefaultConfigName || namesConfig(allowed, config) {
			continue
		}
		found, err := validateConfig(ctx, field.NewPath("spec", "configs").Index(i), config, addOn, sender, read)
		if err != nil {
			return err
		}
		errs = append(errs, found...)
	}
	if len(errs) > 0 {
		return apierrors.NewForbidden(managedClusterAddOnResource, addOn.Name, errs.ToAggregate())
	}
	return nil
}

// namesConfig reports whether a configuration is among others. AddOnTemplates have no namespace, whatever a reference says.
func namesConfig(configs []addonv1beta1.AddOnConfig, config addonv1beta1.AddOnConfig) bool {
	return slices.ContainsFunc(configs, func(other addonv1beta1.AddOnConfig) bool {
		return other.ConfigGroupResource == config.ConfigGroupResource && other.Name == config.Name &&
			(other.Namespace == config.Namespace || isTemplate(config))
	})
}

func isTemplate(config addonv1beta1.AddOnConfig) bool {
	return config.Group == addOnTemplateResource.Group && config.Resource == addOnTemplateResource.Resource
}

// validateConfig checks one configuration. Whoever may install add-ons on a cluster may use what is in its namespace.
func validateConfig(ctx context.Context, path *field.Path, config addonv1beta1.AddOnConfig, addOn *addonv1beta1.ManagedClusterAddOn,
	sender Sender, read AddOnReader) (field.ErrorList, error) {
	get := authorizationv1.ResourceAttributes{Group: config.Group, Resource: config.Resource, Verb: "get", Namespace: config.Namespace,
		Name: config.Name}
	switch {
	case isTemplate(config):
		get.Namespace = ""
	case config.Namespace == addOn.Namespace:
		return nil, nil
	}
	if err := sender.may(ctx, get); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("user %q cannot name what is no default of the add-on: %v", sender.Name,
			err))}, nil
	}
	if !isTemplate(config) {
		return nil, nil
	}
	return validateTemplate(ctx, path.Child("name"), config.Name, sender, read)
}

// validateTemplate checks an AddOnTemplate as if the sender wrote it, also one for another add-on: the hub uses that, and tells of it.
func validateTemplate(ctx context.Context, path *field.Path, name string, sender Sender, read AddOnReader) (field.ErrorList, error) {
	if problems := validation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, name, "no AddOnTemplate has such a name: "+strings.Join(problems, "; "))}, nil
	}
	template, err := read.Template(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return validateAnyGrant(ctx, path, name, sender), nil
	case err != nil:
		return nil, fmt.Errorf("read AddOnTemplate %s, for what it grants: %w", name, err)
	}
	if errs := validateGrants(ctx, field.NewPath("spec", "registration"), template, nil, sender); len(errs) > 0 {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("AddOnTemplate %q is no default of the add-on, and has %v", name,
			errs.ToAggregate()))}, nil
	}
	return nil, nil
}

// validateAnyGrant checks the permissions to give whatever an AddOnTemplate may have when somebody creates it.
func validateAnyGrant(ctx context.Context, path *field.Path, name string, sender Sender) field.ErrorList {
	for _, all := range []authorizationv1.ResourceAttributes{
		{Group: rbacv1.GroupName, Resource: "clusterroles", Verb: "bind"},
		{Group: rbacv1.GroupName, Resource: "roles", Verb: "bind"},
		{Resource: "secrets", Verb: "get"},
	} {
		if err := sender.may(ctx, all); err != nil {
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("AddOnTemplate %q does not exist: name one that does; to name one before, "+
				"user %q would have to be allowed all that it may grant: %v", name, sender.Name, err))}
		}
	}
	return nil
}
