package values

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/images"
)

// Part returns values of one part of an AddOnDeploymentConfig.
type Part func(config *addonv1beta1.AddOnDeploymentConfig) (Values, error)

// FromDeploymentConfig returns a Source of the values that the parts return for the add-on's AddOnDeploymentConfigs; with several,
// later ones override earlier ones. It fails as config.ReadAll does, and so follows rollouts.
func FromDeploymentConfig(c client.Client, parts ...Part) Source {
	return func(ctx context.Context, installation addon.Installation) (Values, error) {
		var collected Values
		err := config.ReadAll(ctx, c, installation, func(config *addonv1beta1.AddOnDeploymentConfig) error {
			for _, part := range parts {
				found, err := part(config)
				if err != nil {
					return err
				}
				collected = Merge(collected, found)
			}
			return nil
		})
		return collected, err
	}
}

// Variables is the Part of customizedVariables, each under its name.
func Variables(config *addonv1beta1.AddOnDeploymentConfig) (Values, error) {
	variables := Values{}
	for _, variable := range config.Spec.CustomizedVariables {
		variables[variable.Name] = variable.Value
	}
	return variables, nil
}

// PlainResources is an element of ResourceRequirements of [Plain], with quantities as texts.
type PlainResources struct {
	ContainerIDRegex string `json:"containerIDRegex"`
	Resources        struct {
		Limits   map[string]string `json:"limits,omitempty"`
		Requests map[string]string `json:"requests,omitempty"`
	} `json:"resources"`
}

// Plain is the Part of customizedVariables, of the nodePlacement as NodeSelector and Tolerations, of the proxyConfig as HTTPProxy,
// HTTPSProxy, NoProxy and ProxyCABundle, which is PEM, and of resourceRequirements as ResourceRequirements, a list of [PlainResources].
// What is not set is left out. It is for Go templates, whose values are not nested.
func Plain(config *addonv1beta1.AddOnDeploymentConfig) (Values, error) {
	plain, err := Variables(config)
	if err != nil {
		return nil, err
	}
	if placement := config.Spec.NodePlacement; placement != nil {
		plain["NodeSelector"] = placement.NodeSelector
		plain["Tolerations"] = placement.Tolerations
	}
	proxy := config.Spec.ProxyConfig
	for name, value := range map[string]string{
		"HTTPProxy": proxy.HTTPProxy, "HTTPSProxy": proxy.HTTPSProxy, "NoProxy": proxy.NoProxy, "ProxyCABundle": string(proxy.CABundle),
	} {
		if value != "" {
			plain[name] = value
		}
	}
	var list []PlainResources
	for _, requirements := range config.Spec.ResourceRequirements {
		pattern, err := images.ContainerPattern(requirements.ContainerID)
		if err != nil {
			return nil, err
		}
		element := PlainResources{ContainerIDRegex: pattern.String()}
		element.Resources.Limits, element.Resources.Requests = texts(requirements.Resources.Limits), texts(requirements.Resources.Requests)
		list = append(list, element)
	}
	if len(list) > 0 {
		plain["ResourceRequirements"] = list
	}
	return plain, nil
}

// texts are quantities as they are written.
func texts(quantities corev1.ResourceList) map[string]string {
	written := make(map[string]string, len(quantities))
	for name, quantity := range quantities {
		written[string(name)] = quantity.String()
	}
	return written
}

// NodePlacement is the Part of global.nodeSelector and global.tolerations, if they are set.
func NodePlacement(config *addonv1beta1.AddOnDeploymentConfig) (Values, error) {
	placement := config.Spec.NodePlacement
	if placement == nil {
		return nil, nil
	}
	return global(struct {
		NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
		Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	}{placement.NodeSelector, placement.Tolerations})
}

// Proxy is the Part of global.proxyConfig, with httpProxy, httpsProxy, noProxy and caBundle. caBundle is base64-encoded, as in the API.
func Proxy(config *addonv1beta1.AddOnDeploymentConfig) (Values, error) {
	return global(struct {
		ProxyConfig addonv1beta1.ProxyConfig `json:"proxyConfig,omitzero"`
	}{config.Spec.ProxyConfig})
}

// ResourceRequirements is the Part of the list global.resourceRequirements. Each element has resources, and containerIDRegex: a regular
// expression for the containers that they are for, as RESOURCE:NAME:CONTAINER. The last one that matches counts.
func ResourceRequirements(config *addonv1beta1.AddOnDeploymentConfig) (Values, error) {
	type element struct {
		ContainerIDRegex string                      `json:"containerIDRegex"`
		Resources        corev1.ResourceRequirements `json:"resources"`
	}
	var list []element
	for _, requirements := range config.Spec.ResourceRequirements {
		pattern, err := images.ContainerPattern(requirements.ContainerID)
		if err != nil {
			return nil, err
		}
		list = append(list, element{ContainerIDRegex: pattern.String(), Resources: requirements.Resources})
	}
	return global(struct {
		ResourceRequirements []element `json:"resourceRequirements,omitempty"`
	}{list})
}

func global(object any) (Values, error) {
	inner, err := Of(object)
	if err != nil || len(inner) == 0 {
		return nil, err
	}
	return Values{"global": inner}, nil
}

// Image returns a Part with where an image is pulled from, if the registries of the configuration have it elsewhere. The key may have
// dots: global.imageOverrides.agent is the value agent in imageOverrides in global.
func Image(key, image string) Part {
	return func(config *addonv1beta1.AddOnDeploymentConfig) (Values, error) {
		if other := images.Override(config.Spec.Registries, image); other != image {
			return at(key, other), nil
		}
		return nil, nil
	}
}

// AgentImage returns a Source with where an image is pulled from on the cluster: from the registries of the AddOnDeploymentConfig, or
// else from those in the annotation open-cluster-management.io/image-registries of the cluster, or else from where it is. The key is as
// that of [Image].
func AgentImage(c client.Client, key, image string) Source {
	return func(ctx context.Context, installation addon.Installation) (Values, error) {
		mirrors, err := images.OfCluster(installation.Cluster)
		if err != nil {
			return nil, err
		}
		configured, err := FromDeploymentConfig(c, Image(key, image))(ctx, installation)
		if err != nil {
			return nil, err
		}
		return Merge(at(key, images.Override(mirrors, image)), configured), nil
	}
}

// OverrideImage returns where the mirrors have an image pulled from. The last mirror that matches counts; without one, it returns the
// image.
func OverrideImage(mirrors []addonv1beta1.ImageMirror, image string) string {
	return images.Override(mirrors, image)
}

// at returns a value under a key with dots.
func at(key string, value any) Values {
	if first, rest, nested := strings.Cut(key, "."); nested {
		return Values{first: at(rest, value)}
	}
	return Values{key: value}
}
