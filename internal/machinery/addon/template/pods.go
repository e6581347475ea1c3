package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/images"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Where the pods find what the agent registered for.
const (
	managedPath       = "/managed/"
	hubKubeconfigPath = managedPath + "hub-kubeconfig"
)

func certificatePath(signer string) string {
	return managedPath + strings.ReplaceAll(signer, "/", "-")
}

// decorated are the kinds whose pods are decorated, and how they are called in the identifier of a container.
var decorated = map[string]string{"Deployment": "deployments", "DaemonSet": "daemonsets"}

// isDecorated reports whether the pods of a kind get what an AddOnDeploymentConfig and the registration say.
func isDecorated(kind schema.GroupVersionKind) bool {
	return kind.Group == appsv1.GroupName && decorated[kind.Kind] != ""
}

const (
	// mostRequirements is how many resourceRequirements a configuration may have, and mostMatches how often containers are compared with the
	// identifiers in them.
	mostRequirements = 500
	mostMatches      = 1_000_000
)

// decoratePods gives the pods of Deployments and DaemonSets what they need on this cluster, which may have so many bytes together.
func decoratePods(in Input, values variables, objects []*unstructured.Unstructured, most int) error {
	d := decoration{
		environment: environment(in, values),
		volumes:     volumes(in),
		mirrors:     in.ClusterMirrors,
	}
	if in.Config != nil {
		if err := d.configure(in.Config); err != nil {
			return err
		}
	}
	if err := d.bound(most); err != nil {
		return err
	}
	for _, object := range objects {
		if !isDecorated(object.GroupVersionKind()) {
			continue
		}
		if err := d.decorate(object); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// decoration is what is the same for all pods of an add-on on a cluster. Its values are shared by the pods, and copied into each.
type decoration struct {
	environment  []any // of EnvVar
	volumes      []volume
	mirrors      []addonv1beta1.ImageMirror
	nodeSelector map[string]any
	tolerations  []any
	resources    []containerResources

	// podBytes and containerBytes are what is added to each at most. The same is added many times, and the meters count it.
	podBytes, containerBytes int
	bytes, matches           *budget.Meter
}

// bound prepares counting what is added.
func (d *decoration) bound(most int) error {
	pod, err := json.Marshal([]any{d.nodeSelector, d.tolerations})
	if err != nil {
		return fmt.Errorf("spec.nodePlacement of the AddOnDeploymentConfig: %w", err)
	}
	resources := 0
	for i := range d.resources {
		text, err := json.Marshal(d.resources[i].resources)
		if err != nil {
			return fmt.Errorf("spec.resourceRequirements[%d] of the AddOnDeploymentConfig: %w", i, err)
		}
		resources = max(resources, len(text))
	}
	container, err := json.Marshal(d.environment)
	if err != nil {
		return fmt.Errorf("the environment of the pods: %w", err)
	}
	d.podBytes, d.containerBytes = len(pod), len(container)+resources
	d.bytes = budget.NewMeter("what the AddOnDeploymentConfig and the variables add to the pods of the template has too many bytes", most)
	d.matches = budget.NewMeter("spec.resourceRequirements of the AddOnDeploymentConfig has too many entries for the containers of the template, counted "+
		"one for each of them", mostMatches)
	return nil
}

type containerResources struct {
	pattern   *regexp.Regexp
	resources map[string]any
}

func (d *decoration) configure(config *addonv1beta1.AddOnDeploymentConfigSpec) error {
	d.mirrors = append(d.mirrors[:len(d.mirrors):len(d.mirrors)], config.Registries...)
	if placement := config.NodePlacement; placement != nil {
		for key, value := range placement.NodeSelector {
			if d.nodeSelector == nil {
				d.nodeSelector = map[string]any{}
			}
			d.nodeSelector[key] = value
		}
		for i := range placement.Tolerations {
			toleration, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&placement.Tolerations[i])
			if err != nil {
				return fmt.Errorf("spec.nodePlacement.tolerations[%d] of the AddOnDeploymentConfig: %w", i, err)
			}
			d.tolerations = append(d.tolerations, toleration)
		}
	}
	if err := budget.Count("spec.resourceRequirements of the AddOnDeploymentConfig", len(config.ResourceRequirements),
		mostRequirements); err != nil {
		return err
	}
	for i := range config.ResourceRequirements {
		requirements, err := resourcesOf(&config.ResourceRequirements[i])
		if err != nil {
			return fmt.Errorf("spec.resourceRequirements[%d] of the AddOnDeploymentConfig: %w", i, err)
		}
		d.resources = append(d.resources, requirements)
	}
	return nil
}

func resourcesOf(requirements *addonv1beta1.ContainerResourceRequirements) (containerResources, error) {
	pattern, err := images.ContainerPattern(requirements.ContainerID)
	if err != nil {
		return containerResources{}, err
	}
	resources, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&requirements.Resources)
	if err != nil {
		return containerResources{}, fmt.Errorf("resources of %q: %w", requirements.ContainerID, err)
	}
	return containerResources{pattern: pattern, resources: resources}, nil
}

// decorate changes the pods of an object.
func (d *decoration) decorate(object *unstructured.Unstructured) error {
	pod, found, err := unstructured.NestedMap(object.Object, "spec", "template", "spec")
	if err != nil || !found {
		return fmt.Errorf("spec.template.spec is missing or no object: write the spec of a pod")
	}
	if err := d.bytes.Spend(d.podBytes); err != nil {
		return err
	}
	for _, volume := range d.volumes {
		if err := appendNamed(pod, "volumes", volume.volume); err != nil {
			return err
		}
	}
	if d.nodeSelector != nil {
		pod["nodeSelector"] = runtime.DeepCopyJSON(d.nodeSelector)
	}
	if d.tolerations != nil {
		pod["tolerations"] = runtime.DeepCopyJSONValue(d.tolerations)
	}
	for _, list := range []string{"initContainers", "containers"} {
		inList, err := objectsIn(pod, list)
		if err != nil {
			return err
		}
		for _, container := range inList {
			name, _ := container["name"].(string)
			id := decorated[object.GetKind()] + ":" + object.GetName() + ":" + name
			if err := d.decorateContainer(container, id); err != nil {
				return fmt.Errorf("container %q: %w", name, err)
			}
		}
	}
	return unstructured.SetNestedMap(object.Object, pod, "spec", "template", "spec")
}

func (d *decoration) decorateContainer(container map[string]any, id string) error {
	if err := errors.Join(d.bytes.Spend(d.containerBytes), d.matches.Spend(len(d.resources))); err != nil {
		return err
	}
	for _, variable := range d.environment {
		if err := setNamed(container, "env", variable.(map[string]any)); err != nil {
			return err
		}
	}
	for _, volume := range d.volumes {
		if err := mount(container, volume.mount); err != nil {
			return err
		}
	}
	if image, ok := container["image"].(string); ok {
		container["image"] = images.Override(d.mirrors, image)
	}
	for _, requirements := range d.resources { // the last that matches wins
		if requirements.pattern.MatchString(id) {
			container["resources"] = runtime.DeepCopyJSON(requirements.resources)
		}
	}
	return nil
}

// environment is what every container gets: the preset variables, and the proxy.
func environment(in Input, values variables) []any {
	var list []any
	set := func(name, value string) { list = append(list, map[string]any{"name": name, "value": value}) }
	for _, name := range values.preset {
		set(name, values.of[name])
	}
	if in.Config == nil {
		return list
	}
	proxy := in.Config.ProxyConfig
	for _, variable := range []struct{ name, value string }{
		{"HTTP_PROXY", proxy.HTTPProxy}, {"HTTPS_PROXY", proxy.HTTPSProxy}, {"NO_PROXY", proxy.NoProxy},
	} {
		if variable.value != "" {
			set(variable.name, variable.value)
			set(strings.ToLower(variable.name), variable.value)
		}
	}
	if len(proxy.CABundle) > 0 {
		set("CA_BUNDLE_FILE_PATH", proxyCAPath+"/"+fleet.KeyCABundle)
	}
	return list
}

// volume of a pod, and where its containers find it.
type volume struct{ volume, mount map[string]any }

func newVolume(name, path string, source map[string]any) volume {
	source["name"] = name
	return volume{volume: source, mount: map[string]any{"name": name, "mountPath": path, "readOnly": true}}
}

// volumes are the secrets that registrations yield, and the CA of the proxy.
func volumes(in Input) []volume {
	secret := func(name string) map[string]any { return map[string]any{"secret": map[string]any{"secretName": name}} }
	var list []volume
	if registersForHub(in.Template) {
		list = append(list, newVolume("hub-kubeconfig", hubKubeconfigPath, secret(fleet.AddOnHubKubeconfigSecret(in.AddOn))))
	}
	for _, signer := range signersOf(in.Template) {
		name := fleet.LabelValue("cert-" + strings.NewReplacer("/", "-", ".", "-").Replace(signer))
		list = append(list, newVolume(name, certificatePath(signer), secret(fleet.AddOnClientCertSecret(in.AddOn, signer))))
	}
	if in.Config != nil && len(in.Config.ProxyConfig.CABundle) > 0 {
		source := map[string]any{"configMap": map[string]any{"name": proxyCAName(in.AddOn)}}
		list = append(list, newVolume("proxy-ca", proxyCAPath, source))
	}
	return list
}

const proxyCAPath = managedPath + "proxy-ca"

func proxyCAName(addOn string) string { return addOn + "-proxy-ca" }

// proxyCA is the ConfigMap with the certificates to verify the proxy with, or nil if there are none.
func proxyCA(in Input) *unstructured.Unstructured {
	if in.Config == nil || len(in.Config.ProxyConfig.CABundle) == 0 {
		return nil
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": corev1.SchemeGroupVersion.String(),
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": proxyCAName(in.AddOn), "namespace": in.Namespace},
		"data":       map[string]any{fleet.KeyCABundle: string(in.Config.ProxyConfig.CABundle)},
	}}
}
