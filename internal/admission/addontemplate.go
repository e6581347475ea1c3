package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	addOnTemplateKind     = addonv1beta1.GroupVersion.WithKind("AddOnTemplate").GroupKind()
	addOnTemplateResource = addonv1beta1.GroupVersion.WithResource("addontemplates").GroupResource()
)

// ValidateAddOnTemplate checks an AddOnTemplate that is created (old is nil) or updated: manifests have to be objects, each only once,
// and registrations have to be complete and use no signer of another component. It fails with 400. An update is checked only for what
// it changes.
//
// Then it checks that the sender has the permissions to give what the registrations give to agents, and fails with 403 if one is
// missing.
//
// The sender needs the right to execute as the executor in all namespaces, as for a ManifestWorkReplicaSet: the hub writes the works of
// the add-on under its own identity.
func ValidateAddOnTemplate(ctx context.Context, template, old *addonv1beta1.AddOnTemplate, sender Sender, opts ManifestWorkOptions) error {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if template.Spec.AddonName == "" && (old == nil || old.Spec.AddonName != "") {
		errs = append(errs, field.Required(spec.Child("addonName"), "write the name of the add-on, that of its ClusterManagementAddOn"))
	}
	work := &template.Spec.AgentSpec
	if len(work.Workload.Manifests) > 0 && (old == nil || !equality.Semantic.DeepEqual(work.Workload, old.Spec.AgentSpec.Workload)) {
		// Two manifests that differ only in a variable may become the same object; that is known when they are rendered.
		errs = append(errs, validateManifests(spec.Child("agentSpec", "workload", "manifests"), work.Workload.Manifests, opts.Limit)...)
	}
	execution := execution{now: work}
	if old != nil {
		execution.before = &old.Spec.AgentSpec
	}
	errs = append(errs, validateManifestConfigs(spec.Child("agentSpec"), execution.now, execution.before)...)
	if err := validateExecutor(ctx, spec.Child("agentSpec", "executor"), execution, metav1.NamespaceAll, sender, opts); err != nil {
		errs = append(errs, err)
	}
	if old == nil || !equality.Semantic.DeepEqual(template.Spec.Registration, old.Spec.Registration) {
		errs = append(errs, validateRegistrations(spec.Child("registration"), template.Spec.Registration)...)
	}
	if len(errs) > 0 {
		return badRequest(addOnTemplateKind, template.Name, errs)
	}
	if errs := validateGrants(ctx, spec.Child("registration"), template, old, sender); len(errs) > 0 {
		return apierrors.NewForbidden(addOnTemplateResource, template.Name, errs.ToAggregate())
	}
	return nil
}

func validateRegistrations(path *field.Path, registrations []addonv1beta1.RegistrationSpec) (errs field.ErrorList) {
	signers := map[string]string{}
	for i, registration := range registrations {
		path := path.Index(i)
		switch registration.Type {
		case addonv1beta1.RegistrationTypeKubeClient:
			if registration.CustomSigner != nil {
				errs = append(errs, field.Forbidden(path.Child("customSigner"), "it is for the type CustomSigner: remove it, or change the type"))
			}
			if registration.KubeClient != nil {
				errs = append(errs, validateHubPermissions(path.Child("kubeClient", "hubPermissions"), registration.KubeClient.HubPermissions)...)
			}
		case addonv1beta1.RegistrationTypeCustomSigner:
			if registration.KubeClient != nil {
				errs = append(errs, field.Forbidden(path.Child("kubeClient"), "it is for the type KubeClient: remove it, or change the type"))
			}
			if registration.CustomSigner == nil {
				errs = append(errs, field.Required(path.Child("customSigner"),
					"the type CustomSigner needs a signerName and the signingCA to sign with"))
				continue
			}
			errs = append(errs, validateCustomSigner(path.Child("customSigner"), registration.CustomSigner, signers)...)
		default:
			errs = append(errs, field.NotSupported(path.Child("type"), registration.Type,
				[]addonv1beta1.RegistrationType{addonv1beta1.RegistrationTypeKubeClient, addonv1beta1.RegistrationTypeCustomSigner}))
		}
	}
	return errs
}

// validateCustomSigner checks one of the signers. The signers before it are known by the names of their variables, from which conflicts
// of variables, volumes and Secrets follow.
func validateCustomSigner(path *field.Path, signer *addonv1beta1.CustomSignerRegistrationSpec,
	seen map[string]string) (errs field.ErrorList) {
	name, variable := path.Child("signerName"), fleet.SignerVariable(signer.SignerName)
	other, alike := seen[variable]
	switch {
	case signer.SignerName == "":
		errs = append(errs, field.Required(name, "write the name of the signer, such as example.com/hello"))
	case fleet.IsReservedSigner(signer.SignerName):
		errs = append(errs, field.Invalid(name, signer.SignerName,
			"it is a signer of Kubernetes or of the hub: write one in a domain of your own, such as example.com/hello; for access to the hub use the type KubeClient"))
	case alike && other == signer.SignerName:
		errs = append(errs, field.Duplicate(name, signer.SignerName))
	case alike:
		errs = append(errs, field.Invalid(name, signer.SignerName, fmt.Sprintf(
			"the certificates of this signer and of %q would have the same name in the pods, %s: choose one that differs in more than dots, dashes and slashes", other,
			variable)))
	}
	seen[variable] = signer.SignerName
	if signer.SigningCA.Name == "" {
		errs = append(errs, field.Required(path.Child("signingCA", "name"),
			"write the name of the Secret of type kubernetes.io/tls with the certificate and key to sign with"))
	}
	return errs
}

func validateHubPermissions(path *field.Path, permissions []addonv1beta1.HubPermissionConfig) (errs field.ErrorList) {
	for i, permission := range permissions {
		path := path.Index(i)
		switch permission.Type {
		case addonv1beta1.HubPermissionsBindingCurrentCluster:
			if permission.SingleNamespace != nil {
				errs = append(errs, field.Forbidden(path.Child("singleNamespace"), "it is for the type SingleNamespace: remove it, or change the type"))
			}
			if permission.CurrentCluster == nil || permission.CurrentCluster.ClusterRoleName == "" {
				errs = append(errs, field.Required(path.Child("currentCluster", "clusterRoleName"),
					"the type CurrentCluster needs the name of a ClusterRole"))
			}
		case addonv1beta1.HubPermissionsBindingSingleNamespace:
			if permission.CurrentCluster != nil {
				errs = append(errs, field.Forbidden(path.Child("currentCluster"), "it is for the type CurrentCluster: remove it, or change the type"))
			}
			errs = append(errs, validateSingleNamespace(path.Child("singleNamespace"), permission.SingleNamespace)...)
		default:
			errs = append(errs, field.NotSupported(path.Child("type"), permission.Type,
				[]addonv1beta1.HubPermissionsBindingType{addonv1beta1.HubPermissionsBindingCurrentCluster,
					addonv1beta1.HubPermissionsBindingSingleNamespace}))
		}
	}
	return errs
}

func validateSingleNamespace(path *field.Path, single *addonv1beta1.SingleNamespaceBindingConfig) (errs field.ErrorList) {
	if single == nil {
		return field.ErrorList{field.Required(path, "the type SingleNamespace needs a namespace and a roleRef")}
	}
	if single.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), "write the namespace in which the role is bound"))
	}
	if kind := single.RoleRef.Kind; kind != "Role" && kind != "ClusterRole" {
		errs = append(errs, field.NotSupported(path.Child("roleRef", "kind"), kind, []string{"ClusterRole", "Role"}))
	}
	if single.RoleRef.Name == "" {
		errs = append(errs, field.Required(path.Child("roleRef", "name"),
			fmt.Sprintf("write the name of a role in the namespace %q, or of a ClusterRole", single.Namespace)))
	}
	return errs
}
