// Package config reads the configurations of an add-on as they are to be on one cluster.
//
// Which configurations those are, and in which state, the hub says in the status of the ManagedClusterAddOn: it works out
// whether the cluster's own, those of a placement or the defaults apply, and lets changes reach one cluster after the other.
// An add-on that reads its configurations with this package follows these rollouts without doing anything else: while what it
// reads is not what the cluster is to have now, it gets [addon.ErrNotYet], returns it, and what is on the cluster stays. A manager
// does not even ask it before the hub has said for the first time what the cluster is to have, if Configs of its options has the type.
//
// An add-on that is being deleted gets its configurations as they are: no rollout comes to it any more.
//
// An add-on may have several configurations of a type. Those later in their order override those before.
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

// ErrMissing is why a configuration that the cluster is to have cannot be read: there is none of its name. An add-on returns it like
// [addon.ErrNotYet]: a condition says what is missing, what is on the cluster stays, and the add-on is asked again when a
// configuration comes.
var ErrMissing = errors.New("does not exist")

// DeploymentConfig reads the AddOnDeploymentConfig of an add-on; nil if it has none. It is Read otherwise.
func DeploymentConfig(ctx context.Context, c client.Client, installation addon.Installation) (*addonv1beta1.AddOnDeploymentConfig, error) {
	config := &addonv1beta1.AddOnDeploymentConfig{}
	found, err := Read(ctx, c, installation, config)
	if err != nil || !found {
		return nil, err
	}
	return config, nil
}

// Read reads the configuration of the type of config that the add-on is to have on the cluster, the last one if it has several;
// found is false if it has none. The type must be in the client's scheme.
//
// The client reads unstructured objects, once for each call: one that has them in its cache, as that of package
// addon/manager has, does so without asking the API server. For that, Configs of the add-on's options has to name the version of
// config.
//
// It fails with [addon.ErrNotYet] while the configuration is in another state than the cluster is to have now, or the cluster is
// to have one that it has not been given yet; and with [ErrMissing] if there is none of its name any more.
func Read(ctx context.Context, c client.Client, installation addon.Installation, config client.Object) (found bool, err error) {
	return readLast(ctx, c, installation, config, stateFor(installation))
}

// ReadPresent is Read, but for the state: it reads the configuration as it is now, whether or not its rollout has reached the
// cluster. That is for what cannot wait, and does not change the cluster, such as signing a certificate.
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

// given are References, unless the add-on has still to be given one of them.
func given(installation addon.Installation, resource schema.GroupResource) ([]addonv1beta1.ConfigSpecHash, error) {
	leaving := !installation.AddOn.DeletionTimestamp.IsZero()
	for _, reference := range installation.AddOn.Status.ConfigReferences {
		if !leaving && reference.Group == resource.Group && reference.Resource == resource.Resource && addonconfig.IsPending(reference) {
			return nil, fmt.Errorf("a configuration of the type %s is announced: %w", resource, addon.ErrNotYet)
		}
	}
	return References(installation, resource), nil
}

// stateCheck fails if what was read is not in the state that is wanted.
type stateCheck func(object *unstructured.Unstructured, desired addonv1beta1.ConfigSpecHash) error

// stateFor is the desired state, as long as the hub says which that is.
func stateFor(installation addon.Installation) stateCheck {
	if !installation.AddOn.DeletionTimestamp.IsZero() {
		return inAnyState
	}
	return inDesiredState
}

func inAnyState(*unstructured.Unstructured, addonv1beta1.ConfigSpecHash) error { return nil }

func inDesiredState(object *unstructured.Unstructured, desired addonv1beta1.ConfigSpecHash) error {
	hash, err := addonconfig.Hash(object)
	if err != nil {
		return err
	}
	if hash != desired.SpecHash {
		return fmt.Errorf("%s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), addon.ErrNotYet)
	}
	return nil
}

// ReadAll calls use with every configuration of the type of config that the add-on is to have on the cluster, in their order. It
// fails as Read does, and when use fails.
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

// Hash is the specHash of a configuration of any kind, by which status.configReferences tells one state of it from another: the
// SHA-256, in lower-case hexadecimal, of the JSON of all its fields but apiVersion, kind, metadata and status. It has to be read
// as unstructured: what Go makes of an object may lack what is empty.
func Hash(configuration *unstructured.Unstructured) (string, error) {
	return addonconfig.Hash(configuration)
}

// References are the configurations of a type that an add-on is to have on the cluster, with the hashes of their desired state.
func References(installation addon.Installation, resource schema.GroupResource) []addonv1beta1.ConfigSpecHash {
	var references []addonv1beta1.ConfigSpecHash
	for _, reference := range installation.AddOn.Status.ConfigReferences {
		if reference.Group == resource.Group && reference.Resource == resource.Resource && reference.DesiredConfig != nil {
			references = append(references, *reference.DesiredConfig)
		}
	}
	return slices.Clip(references)
}

// InstallNamespace is for the InstallNamespace of an add-on's options: the agentInstallNamespace of the AddOnDeploymentConfig that
// applies on the cluster; empty without one.
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
	if err := check(object, desired); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, config); err != nil {
		return fmt.Errorf("decode %s %s: %w", gvk.Kind, key, err)
	}
	return nil
}
