// Package config reads the configurations of an add-on in the state that one cluster is to have.
//
// The status of the ManagedClusterAddOn names these configurations and their state. The hub writes it: it decides whether the
// configurations of the ManagedClusterAddOn, of a placement, or the defaults apply, and rolls changes out to one cluster after the
// other. An add-on that reads its configurations with this package follows these rollouts without code of its own: while the
// configuration is not in the state that the cluster is to have, a read returns [addon.ErrNotYet], the add-on returns that error, and
// the cluster keeps what it has. If the add-on's Options.Configs has the type, a manager does not call the add-on at all until the hub
// has set the state for the first time.
//
// An add-on that is being deleted reads its configurations as they are, because no rollout reaches it any more.
//
// An add-on may have several configurations of a type. Later ones override earlier ones.
package config

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
)

// DeploymentConfigs is the type of AddOnDeploymentConfigs, for the Configs of an add-on's options.
var DeploymentConfigs = addonv1beta1.GroupVersion.WithResource("addondeploymentconfigs")

// ErrMissing is returned when the configuration that the cluster is to have does not exist. An add-on returns it as it does
// [addon.ErrNotYet]: a condition says what is missing, the cluster keeps what it has, and the add-on is called again when a
// configuration changes.
var ErrMissing = errors.New("does not exist")

// DeploymentConfig reads the AddOnDeploymentConfig of an add-on as [Read] does. It returns nil if the add-on has none.
func DeploymentConfig(ctx context.Context, c client.Client, installation addon.Installation) (*addonv1beta1.AddOnDeploymentConfig, error) {
	config := &addonv1beta1.AddOnDeploymentConfig{}
	found, err := Read(ctx, c, installation, config)
	if err != nil || !found {
		return nil, err
	}
	return config, nil
}

// Read reads the configuration of config's type that the add-on has on the cluster into config; with several, the last one. found is
// false if the add-on has none. The type must be in the client's scheme.
//
// Each call reads unstructured objects through the client. A client that has them in its cache, as that of package addon/manager does,
// reads from no API server; for that, Configs of the add-on's options has to name the version of config. That may be any version that the
// hub serves: the state is also looked for in the version that the hub prefers.
//
// Read fails with [addon.ErrNotYet] while the configuration is not in the state that the cluster is to have, or the hub has not set
// that state yet, and with [ErrMissing] if the configuration does not exist.
func Read(ctx context.Context, c client.Client, installation addon.Installation, config client.Object) (found bool, err error) {
	return readLast(ctx, c, installation, config, stateFor(installation))
}

// ReadPresent reads like [Read], but whatever the state of the configuration: it does not wait for the rollout to reach the cluster. It
// is for uses that cannot wait and do not change the cluster, such as signing a certificate.
func ReadPresent(ctx context.Context, c client.Client, installation addon.Installation, config client.Object) (found bool, err error) {
	return readLast(ctx, c, installation, config, inAnyState)
}

func readLast(ctx context.Context, c client.Client, installation addon.Installation, config client.Object, check stateCheck) (found bool,
	err error) {
	resource, gvk, err := typeOf(c, config)
	if err != nil {
		return false, err
	}
	references, err := given(installation, resource)
	if err != nil || len(references) == 0 {
		return false, err
	}
	return true, read(ctx, c, gvk, references[len(references)-1], config, check)
}

// given returns the References. It fails with addon.ErrNotYet while the state of one of them is not set.
func given(installation addon.Installation, resource schema.GroupResource) ([]addonv1beta1.ConfigSpecHash, error) {
	leaving := !installation.AddOn.DeletionTimestamp.IsZero()
	for _, reference := range installation.AddOn.Status.ConfigReferences {
		if !leaving && reference.Group == resource.Group && reference.Resource == resource.Resource && addonconfig.IsPending(reference) {
			return nil, fmt.Errorf("a configuration of the type %s is announced: %w", resource, addon.ErrNotYet)
		}
	}
	return References(installation, resource), nil
}

// stateCheck fails if an object is not in the desired state.
type stateCheck func(ctx context.Context, c client.Client, object *unstructured.Unstructured, desired addonv1beta1.ConfigSpecHash) error

// stateFor returns the stateCheck for an installation. An add-on that is being deleted has no desired state.
func stateFor(installation addon.Installation) stateCheck {
	if !installation.AddOn.DeletionTimestamp.IsZero() {
		return inAnyState
	}
	return inDesiredState
}

func inAnyState(context.Context, client.Client, *unstructured.Unstructured, addonv1beta1.ConfigSpecHash) error {
	return nil
}

// inDesiredState compares the hash of the object. The hub takes it of the preferred version, in which the fields may be others.
func inDesiredState(ctx context.Context, c client.Client, object *unstructured.Unstructured, desired addonv1beta1.ConfigSpecHash) error {
	hash, err := addonconfig.Hash(object)
	if err != nil || hash == desired.SpecHash {
		return err
	}
	preferred, err := inPreferredVersion(ctx, c, object)
	if err != nil {
		return err
	}
	if hash, err = addonconfig.Hash(preferred); err != nil {
		return err
	}
	if hash != desired.SpecHash || !sameState(preferred, object) {
		return notYet(object)
	}
	return nil
}

// inPreferredVersion returns the object in the version that the hub prefers.
func inPreferredVersion(ctx context.Context, c client.Client, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind())
	if err != nil {
		return nil, fmt.Errorf("find out the preferred version of configurations %s: %w", kind.GroupKind(), err)
	}
	if mapping.GroupVersionKind == kind {
		return object, nil
	}
	preferred := &unstructured.Unstructured{}
	preferred.SetGroupVersionKind(mapping.GroupVersionKind)
	key := client.ObjectKeyFromObject(object)
	if err := c.Get(ctx, key, preferred); apierrors.IsNotFound(err) {
		return nil, notYet(object) // one of the caches is behind
	} else if err != nil {
		return nil, fmt.Errorf("read %s %s in the preferred version %s: %w", kind.Kind, key, mapping.GroupVersionKind.Version, err)
	}
	return preferred, nil
}

// sameState reports whether two versions of an object have been read in the same state: each version has its own cache, which may be
// behind. A generation stands for all that the hash covers.
func sameState(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration()
}

func notYet(object *unstructured.Unstructured) error {
	return fmt.Errorf("%s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), addon.ErrNotYet)
}

// ReadAll calls use with each configuration of config's type that the add-on has on the cluster, in their order. It fails as [Read]
// does, or with the error of use.
func ReadAll[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Client, installation addon.Installation, use func(config P) error) error {
	resource, gvk, err := typeOf(c, P(new(T)))
	if err != nil {
		return err
	}
	references, err := given(installation, resource)
	if err != nil {
		return err
	}
	for _, reference := range references {
		config := P(new(T))
		if err := read(ctx, c, gvk, reference, config, stateFor(installation)); err != nil {
			return err
		}
		if err := use(config); err != nil {
			return err
		}
	}
	return nil
}

// Hash returns the specHash of a configuration of any kind, by which status.configReferences identifies its state: the SHA-256, in
// lower-case hexadecimal, of the JSON of all its fields except apiVersion, kind, metadata and status. The configuration has to be read
// as unstructured, because Go types may omit empty fields.
func Hash(configuration *unstructured.Unstructured) (string, error) {
	return addonconfig.Hash(configuration)
}

// References returns the configurations of a type that an add-on has on the cluster, with the hashes of their desired state.
func References(installation addon.Installation, resource schema.GroupResource) []addonv1beta1.ConfigSpecHash {
	var references []addonv1beta1.ConfigSpecHash
	for _, reference := range installation.AddOn.Status.ConfigReferences {
		if reference.Group == resource.Group && reference.Resource == resource.Resource && reference.DesiredConfig != nil {
			references = append(references, *reference.DesiredConfig)
		}
	}
	return slices.Clip(references)
}

// InstallNamespace returns a function for the InstallNamespace of an add-on's options. The function returns the agentInstallNamespace
// of the AddOnDeploymentConfig that applies on the cluster, or an empty name if there is none.
func InstallNamespace(c client.Client) func(context.Context, addon.Installation) (string, error) {
	return func(ctx context.Context, installation addon.Installation) (string, error) {
		config, err := DeploymentConfig(ctx, c, installation)
		if err != nil || config == nil {
			return "", err
		}
		return config.Spec.AgentInstallNamespace, nil
	}
}

func typeOf(c client.Client, config client.Object) (schema.GroupResource, schema.GroupVersionKind, error) {
	gvk, err := c.GroupVersionKindFor(config)
	if err != nil {
		return schema.GroupResource{}, gvk, fmt.Errorf("find out the type of configuration %T: %w; add it to the scheme of the client", config,
			err)
	}
	mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupResource{}, gvk, fmt.Errorf("find out the resource of configurations %s: %w", gvk, err)
	}
	return mapping.Resource.GroupResource(), gvk, nil
}

func read(ctx context.Context, c client.Client, gvk schema.GroupVersionKind, desired addonv1beta1.ConfigSpecHash, config client.Object,
	check stateCheck) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	key := client.ObjectKey{Namespace: desired.Namespace, Name: desired.Name}
	if err := c.Get(ctx, key, object); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s %w: create it, or name another one in the configs of the add-on", gvk.Kind, key, ErrMissing)
		}
		return fmt.Errorf("read %s %s: %w", gvk.Kind, key, err)
	}
	if err := check(ctx, c, object, desired); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, config); err != nil {
		return fmt.Errorf("decode %s %s: %w", gvk.Kind, key, err)
	}
	return nil
}
