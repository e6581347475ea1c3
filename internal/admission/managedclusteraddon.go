package admission

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	managedClusterAddOnKind     = addonv1beta1.GroupVersion.WithKind("ManagedClusterAddOn").GroupKind()
	managedClusterAddOnResource = addonv1beta1.GroupVersion.WithResource("managedclusteraddons").GroupResource()
)

// ValidateManagedClusterAddOn checks the annotations of a ManagedClusterAddOn that is created (old is nil) or updated. The time limit
// of its removal has to be valid, which would otherwise be noticed only when the add-on is removed; it fails with 400. The sender needs
// the permission to let another cluster host the agent; without it, it fails with 403. An update is checked only for what it changes.
func ValidateManagedClusterAddOn(ctx context.Context, addOn, old metav1.Object, sender Sender) error {
	timeout := addOn.GetAnnotations()[fleet.AnnotationPreDeleteTimeout]
	if old == nil || old.GetAnnotations()[fleet.AnnotationPreDeleteTimeout] != timeout {
		errs := validateTimeout(field.NewPath("metadata", "annotations").Key(fleet.AnnotationPreDeleteTimeout), timeout)
		if len(errs) > 0 {
			return badRequest(managedClusterAddOnKind, addOn.GetName(), errs)
		}
	}
	return validateHosting(ctx, managedClusterAddOnResource, addOn, old, sender)
}

// ValidateManagedClusterAddOnStatus allows agents, of clusters and of add-ons, to write only conditions and the driver by which the
// add-on gets its access to the hub. RBAC lets them write all of the status, but status.registrations is the identity that the hub
// approves certificates for and gives rights to, and status.configReferences names the AddOnTemplate that determines both: an agent
// that could write these could take over another identity. The objects may be of either version. It fails with 403, and with 413 on
// conditions that are far larger than those of agents.
//
// For all senders, it enforces the order in which an add-on is configured and deployed, and fails with 409.
func ValidateManagedClusterAddOnStatus(addOn, old *unstructured.Unstructured, sender Sender) error {
	if err := validateConfigured(addOn, old); err != nil {
		return err
	}
	if err := validateAddOnStatusSize(addOn, old, sender); err != nil {
		return err
	}
	if !fleet.IsAgentOn(addOn.GetNamespace(), sender.Name, sender.Groups) {
		return nil
	}
	now, before := statusOfHub(addOn), statusOfHub(old)
	for _, name := range []string{"registrations", "namespace", "healthCheck", "supportedConfigs", "configReferences", "addOnMeta",
		"relatedObjects"} {
		if !reflect.DeepEqual(now[name], before[name]) {
			return forbiddenStatus(addOn, sender, "status."+name)
		}
	}
	if !reflect.DeepEqual(now, before) {
		return forbiddenStatus(addOn, sender, "status")
	}
	return nil
}

func forbiddenStatus(addOn *unstructured.Unstructured, sender Sender, path string) error {
	return apierrors.NewForbidden(managedClusterAddOnResource, addOn.GetName(), fmt.Errorf(
		"user %q is an agent, of a cluster or of an add-on on one, and cannot change %s: it may change status.conditions and the driver of registrations; "+
			"the rest is for the manager of the add-on, on the hub", sender.Name, path))
}

// statusOfHub returns the status without what an agent may set, and without empty parts, which clients may omit.
func statusOfHub(addOn *unstructured.Unstructured) map[string]any {
	if addOn == nil {
		return nil
	}
	status := map[string]any{}
	for name, value := range statusOf(addOn) {
		switch name {
		case "conditions", "kubeClientDriver": // the latter is the driver of v1alpha1
		case "registrations":
			status[name] = withoutDrivers(value)
		default:
			status[name] = value
		}
	}
	kept, _ := withoutEmpty(status).(map[string]any)
	return kept
}

// withoutDrivers returns a list of registrations of v1beta1 without the drivers. Those of v1alpha1 have none.
func withoutDrivers(registrations any) any {
	list, ok := registrations.([]any)
	if !ok {
		return registrations
	}
	rest := make([]any, 0, len(list))
	for _, one := range list {
		registration, ok := one.(map[string]any)
		client, isClient := registration["kubeClient"].(map[string]any)
		if !ok || !isClient {
			rest = append(rest, one)
			continue
		}
		rest = append(rest, without(registration, "kubeClient", without(client, "driver", nil)))
	}
	return rest
}

// without returns a copy of a map with another value for the key, or without the key.
func without(from map[string]any, key string, value any) map[string]any {
	to := make(map[string]any, len(from))
	for name, one := range from {
		if name != key {
			to[name] = one
		}
	}
	if value != nil {
		to[key] = value
	}
	return to
}

// withoutEmpty returns a value without the empty maps, lists and texts in its maps; nil if nothing is left. Lists keep their length.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, one := range value {
			if one = withoutEmpty(one); one != nil {
				kept[name] = one
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		if len(value) == 0 {
			return nil
		}
		kept := make([]any, len(value))
		for i, one := range value {
			kept[i] = withoutEmpty(one)
		}
		return kept
	case string:
		if value == "" {
			return nil
		}
	}
	return value
}
