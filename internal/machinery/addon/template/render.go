// Package template renders an AddOnTemplate for a cluster: an add-on without code. It is pure.
//
//	variables     {{NAME}} in any string of the manifests
//	pods          what the pods of Deployments and DaemonSets get: environment, secrets, placement, images, proxy, resources
//	namespaces    the namespace of an AddOnDeploymentConfig in place of those of the template
//	registration  the namespace of the agent, and as whom it registers
package template

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// Input is everything that the rendering depends on. Nothing of it is changed.
type Input struct {
	// AddOn and Cluster are names.
	AddOn, Cluster string
	// Template of the add-on.
	Template *addonv1beta1.AddOnTemplateSpec
	// Config is how it is deployed; nil if nothing says so.
	Config *addonv1beta1.AddOnDeploymentConfigSpec
	// ClusterMirrors are those of the cluster's annotation open-cluster-management.io/image-registries. What Config says of an
	// image takes precedence.
	ClusterMirrors []addonv1beta1.ImageMirror
	// Namespace of the agent: Namespace returns it, unless it is known already.
	Namespace string
}

// Rendered is an add-on for one cluster.
type Rendered struct {
	// Objects are the manifests, in the order of the template.
	Objects []*unstructured.Unstructured
	// ManifestConfigs, DeleteOption and Executor are those of the template.
	ManifestConfigs []workv1.ManifestConfigOption
	DeleteOption    *workv1.DeleteOption
	Executor        *workv1.ManifestWorkExecutor
	// Unknown are the variables that have no value, sorted. They have been replaced by nothing.
	Unknown []string
}

// Render makes of a template what is deployed on a cluster. The error names the manifest, or the field of the template or the
// configuration, that is wrong.
func Render(in Input) (*Rendered, error) {
	values := variablesOf(in)
	spec, unknown, err := substitute(&in.Template.AgentSpec, values.of)
	if err != nil {
		return nil, err
	}
	rendered := &Rendered{
		ManifestConfigs: spec.ManifestConfigs,
		DeleteOption:    spec.DeleteOption,
		Executor:        spec.Executor,
		Unknown:         unknown,
	}
	for _, m := range manifest.Decode(spec.Workload.Manifests) {
		if m.Err != nil {
			return nil, fmt.Errorf("spec.agentSpec.workload: %w", m.Err)
		}
		rendered.Objects = append(rendered.Objects, m.Object)
	}
	if err := decoratePods(in, values, rendered.Objects, budget.Result(sizeOf(spec))); err != nil {
		return nil, err
	}
	if in.Config != nil && in.Config.AgentInstallNamespace != "" {
		if err := moveTo(in.Config.AgentInstallNamespace, rendered); err != nil {
			return nil, err
		}
	}
	if bundle := proxyCA(in); bundle != nil {
		rendered.Objects = append(rendered.Objects, bundle)
	}
	return rendered, nil
}

func sizeOf(spec *workv1.ManifestWorkSpec) (bytes int) {
	for i := range spec.Workload.Manifests {
		bytes += len(spec.Workload.Manifests[i].Raw)
	}
	return bytes
}

// substitute replaces the variables of a spec.
func substitute(spec *workv1.ManifestWorkSpec, values map[string]string) (*workv1.ManifestWorkSpec, []string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, nil, fmt.Errorf("spec.agentSpec cannot be written as JSON: %w", err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(text, &content); err != nil {
		return nil, nil, fmt.Errorf("spec.agentSpec is no JSON: %w", err)
	}
	s := newSubstitution(values, len(text))
	replaced, err := s.in(content)
	if s.exceeded != nil {
		return nil, nil, fmt.Errorf("spec.agentSpec: %w", s.exceeded)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("spec.agentSpec%w", err)
	}
	if text, err = json.Marshal(replaced); err != nil {
		return nil, nil, fmt.Errorf("spec.agentSpec with its variables cannot be written as JSON: %w", err)
	}
	var result workv1.ManifestWorkSpec
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, nil, fmt.Errorf("spec.agentSpec with its variables is no spec of a ManifestWork: %w", err)
	}
	return &result, s.unknownNames(), nil
}
