package install

import (
	"context"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// render returns the chart with the settings that the operator has.
func (u *upgrading) render(ctx context.Context, running installation.Running) ([]*unstructured.Unstructured, error) {
	images, err := u.imagesAs(ctx, running)
	if err != nil {
		return nil, err
	}
	values := u.what.settingsOf(running)
	values["images"] = images
	values[u.what.custom] = map[string]any{"mode": string(operatorv1.InstallModeDefault)}
	if err := u.override(values); err != nil {
		return nil, err
	}
	objects, err := installer.Objects(u.what.operator, values)
	return slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool { return isPriorityClassOf(running, object) }), err
}

// isPriorityClassOf reports whether an object is the PriorityClass that pods of the operator have already. It may be that of others, and
// its value cannot be changed.
func isPriorityClassOf(running installation.Running, object *unstructured.Unstructured) bool {
	return object.GetKind() == "PriorityClass" && object.GetName() == running.PriorityClassName
}

// imagesAs are the values of images: from where that of the operator that runs is from, and pulled as it is, as far as flags do not say
// otherwise.
func (u *upgrading) imagesAs(ctx context.Context, running installation.Running) (map[string]any, error) {
	images, err := u.images.values()
	if err != nil {
		return nil, err
	}
	if registry := registryOf(running.Image); registry != "" && !u.registryGiven {
		images["registry"] = registry
	}
	if running.PullPolicy != "" {
		images["imagePullPolicy"] = running.PullPolicy
	}
	secrets, err := u.pullSecrets(ctx, running)
	if len(secrets) > 0 {
		images["imagePullSecrets"] = secrets
	}
	return images, err
}

// registryOf is the registry that an image of Capstan is from; empty for another image.
func registryOf(image string) string {
	repository, _ := splitImage(image)
	registry, name := path.Split(repository)
	if name != "capstan-hub" && name != "capstan-agent" {
		return ""
	}
	return strings.TrimSuffix(registry, "/")
}

// pullSecrets are the names of the Secrets with which the operator pulls its image, besides that which the chart names itself.
func (u *upgrading) pullSecrets(ctx context.Context, running installation.Running) (names []any, err error) {
	secrets := running.PullSecrets
	if running.ServiceAccount != "" {
		account, err := u.in.Get(ctx, installation.Reference{
			GroupVersionKind: installation.KindServiceAccount, Namespace: fleet.NamespaceOperators, Name: running.ServiceAccount})
		if err != nil && !apierrors.IsForbidden(err) { // that this right is missing, and which others are, is found before anything is changed
			return nil, err
		}
		if account != nil {
			ofAccount, _, _ := unstructured.NestedSlice(account.Object, "imagePullSecrets")
			secrets = slices.Concat(secrets, ofAccount)
		}
	}
	for _, secret := range secrets {
		fields, _ := secret.(map[string]any)
		name, _ := fields["name"].(string)
		if name != "" && name != fleet.SecretImagePullCredentials && !slices.Contains(names, any(name)) {
			names = append(names, name)
		}
	}
	return names, nil
}

// settingsOf are the settings of an operator that runs, as values of its chart.
func (u *upgradable) settingsOf(running installation.Running) map[string]any {
	values := map[string]any{
		"replicaCount": running.Replicas, "enableSyncLabels": slices.Contains(running.Args, "--enable-sync-labels"),
	}
	if running.PriorityClassName != "" {
		values["priorityClassName"] = running.PriorityClassName
	}
	for name, setting := range map[string]map[string]any{
		"nodeSelector": running.NodeSelector, "affinity": running.Affinity, "resources": exactly(running.Resources),
		"podSecurityContext": running.PodSecurityContext, "securityContext": running.SecurityContext,
	} {
		if len(setting) > 0 {
			values[name] = setting
		}
	}
	lists := map[string][]any{"tolerations": running.Tolerations}
	if u.operator == klusterletOperator { // the other chart has no such values
		lists["hostAliases"] = running.HostAliases
		lists["extraVolumes"], lists["extraVolumeMounts"] = extraVolumes(running)
	}
	for name, setting := range lists {
		if len(setting) > 0 {
			values[name] = setting
		}
	}
	return values
}

// exactly are the resources of a container, with null for those that it does not have, and the chart may have a default for.
func exactly(resources map[string]any) map[string]any {
	if len(resources) == 0 {
		return nil
	}
	all := map[string]any{}
	for _, kind := range []string{"requests", "limits"} {
		quantities, _ := resources[kind].(map[string]any)
		if len(quantities) == 0 {
			all[kind] = nil
			continue
		}
		exact := map[string]any{"cpu": nil, "memory": nil}
		for name, quantity := range quantities {
			exact[name] = quantity
		}
		all[kind] = exact
	}
	if claims := resources["claims"]; claims != nil {
		all["claims"] = claims
	}
	return all
}

// Where operators have a volume for temporary files, and its name in the chart.
const (
	temporaryFiles  = "/tmp"
	temporaryVolume = "tmp"
)

// extraVolumes are the volumes of an operator, and where they are, but for that for temporary files.
func extraVolumes(running installation.Running) (volumes, mounts []any) {
	used := map[any]bool{}
	for _, mount := range running.VolumeMounts {
		fields, _ := mount.(map[string]any)
		if fields["mountPath"] != temporaryFiles {
			mounts = append(mounts, mount)
			used[fields["name"]] = true
		}
	}
	for _, volume := range running.Volumes {
		if fields, _ := volume.(map[string]any); used[fields["name"]] && fields["name"] != temporaryVolume {
			volumes = append(volumes, volume)
		}
	}
	return volumes, mounts
}
