package template

import (
	"cmp"
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// Namespace is that of the agent: of the AddOnDeploymentConfig, else of the first Deployment of the template, else of
// its first DaemonSet, else open-cluster-management-agent-addon. Input.Namespace is not read.
func Namespace(in Input) string {
	if in.Config != nil && in.Config.AgentInstallNamespace != "" {
		return in.Config.AgentInstallNamespace
	}
	// A template that says {{INSTALL_NAMESPACE}} leaves it to us.
	in.Namespace = fleet.NamespaceAgentAddOn
	s := newSubstitution(variablesOf(in).of, 0)
	namespaces := map[string]string{} // of the first one of each kind
	for _, m := range in.Template.AgentSpec.Workload.Manifests {
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(m.Raw, &object) != nil {
			continue // for Render to say
		}
		if isDecorated(object.GroupVersionKind()) && namespaces[object.Kind] == "" {
			namespaces[object.Kind] = s.inText(object.Namespace)
		}
	}
	return cmp.Or(namespaces["Deployment"], namespaces["DaemonSet"], fleet.NamespaceAgentAddOn)
}

// moveTo puts everything of a template that is in a namespace into this one, whatever refers to it included.
func moveTo(namespace string, rendered *Rendered) error {
	was := map[manifest.Identity]manifest.Identity{}
	var objects []*unstructured.Unstructured
	for _, object := range rendered.Objects {
		before := manifest.Identify(object)
		if err := move(object, namespace); err != nil {
			return fmt.Errorf("%s: %w", before, err)
		}
		after := manifest.Identify(object)
		if other, taken := was[after]; taken {
			if isNamespace(object) {
				continue // two namespaces that have become one
			}
			return fmt.Errorf("%s and %s of the template would both be %s: the AddOnDeploymentConfig moves all objects to the namespace %s; give them "+
				"different names, or set agentInstallNamespace to \"\"",
				other, before, after, namespace)
		}
		was[after] = before
		objects = append(objects, object)
	}
	rendered.Objects = objects
	rendered.ManifestConfigs = moveConfigs(rendered.ManifestConfigs, namespace)
	moveOrphans(rendered.DeleteOption, namespace)
	return nil
}

func isNamespace(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind()
	return kind.Group == "" && kind.Kind == "Namespace"
}

func move(object *unstructured.Unstructured, namespace string) error {
	if isNamespace(object) {
		object.SetName(namespace)
		return nil
	}
	if object.GetNamespace() != "" {
		object.SetNamespace(namespace)
	}
	if kind := object.GroupVersionKind(); kind.Group != rbacv1.GroupName || kind.Kind != "RoleBinding" && kind.Kind != "ClusterRoleBinding" {
		return nil
	}
	subjects, err := objectsIn(object.Object, "subjects")
	if err != nil {
		return err
	}
	for _, subject := range subjects {
		if text, ok := subject["namespace"].(string); ok && text != "" {
			subject["namespace"] = namespace
		}
	}
	return nil
}

// moveConfigs has the configurations of manifests follow them.
func moveConfigs(configs []workv1.ManifestConfigOption, namespace string) []workv1.ManifestConfigOption {
	var moved []workv1.ManifestConfigOption
	seen := map[workv1.ResourceIdentifier]bool{}
	for _, config := range configs {
		moveIdentifier(&config.ResourceIdentifier.Namespace, &config.ResourceIdentifier.Name, config.ResourceIdentifier.Group,
			config.ResourceIdentifier.Resource, namespace)
		if seen[config.ResourceIdentifier] {
			continue // of two namespaces that have become one
		}
		seen[config.ResourceIdentifier] = true
		moved = append(moved, config)
	}
	return moved
}

func moveOrphans(option *workv1.DeleteOption, namespace string) {
	if option == nil || option.SelectivelyOrphan == nil {
		return
	}
	rules := option.SelectivelyOrphan.OrphaningRules
	for i := range rules {
		moveIdentifier(&rules[i].Namespace, &rules[i].Name, rules[i].Group, rules[i].Resource, namespace)
	}
}

func moveIdentifier(namespace, name *string, group, resource, to string) {
	switch {
	case group == "" && resource == "namespaces":
		*name = to
	case *namespace != "":
		*namespace = to
	}
}
