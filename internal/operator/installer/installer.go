// Package installer builds the objects that install an operator and what says what it runs, or a standalone hub, from the values of its
// chart. They are those that Helm makes of the chart. Files of the chart are the source of the defaults and the schema of the values, of an
// operator's rules, and of its CustomResourceDefinition.
package installer

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// managedBy is what the objects say that they are managed by.
const managedBy = "capstan"

// Objects returns what a chart of an operator installs with some values, in the order to apply it in: in the namespace of the operators,
// as an installation of the chart's name.
func Objects(chart string, given map[string]any) ([]*unstructured.Unstructured, error) {
	switch chart {
	case clusterManagerChart:
		return clusterManagerObjects(given)
	case klusterletChart:
		return klusterletObjects(given)
	}
	return nil, fmt.Errorf("%q is no chart of an operator: those are %s and %s", chart, clusterManagerChart, klusterletChart)
}

type object = map[string]any

// operator is one whose objects are built. Its chart, and most of its objects, have its name.
type operator struct {
	name string
	// containerName is that of the charts of Open Cluster Management: whoever upgrades with these changes the container that there is.
	containerName string
	image         string
	args          []any
	env           []any
	// hostAliases, volumes and volumeMounts are more of its pods than every operator has.
	hostAliases, volumes, volumeMounts []any

	values
}

// metadata returns that of an object of the operator's installation. Cluster-scoped ones have no namespace.
func metadata(operator, namespace, name string) object {
	metadata := object{"name": name, "labels": labels(operator, operator)}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return metadata
}

// labels are those of the objects of an application, as its chart has them.
func labels(app, chart string) object {
	return object{
		"app":                          app,
		"app.kubernetes.io/name":       app,
		"app.kubernetes.io/instance":   app,
		"app.kubernetes.io/version":    appVersion(chart),
		"app.kubernetes.io/managed-by": managedBy,
	}
}

// appVersion is the version of the images that a chart installs by default.
func appVersion(chart string) string {
	var metadata struct {
		AppVersion string `json:"appVersion"`
	}
	if err := readYAML(chart+"/Chart.yaml", &metadata); err != nil {
		panic(err) // an error of the build
	}
	return metadata.AppVersion
}

// image is the reference of an image, unless an override replaces it.
func (v *values) image(chart, name, override string) string {
	if override := v.Images.Overrides[override]; override != "" {
		return override
	}
	tag := v.Images.Tag
	if tag == "" {
		tag = appVersion(chart)
	}
	return fmt.Sprintf("%s/%s:%s", v.Images.Registry, name, tag)
}

// definition is the CustomResourceDefinition of the operator, without what is for Helm.
func definition(chart, plural string) (object, error) {
	crd := object{}
	if err := readYAML(chart+"/crds/"+plural+".yaml", &crd); err != nil {
		return nil, err
	}
	definition := &unstructured.Unstructured{Object: crd}
	annotations := definition.GetAnnotations()
	for _, name := range []string{"helm.sh/resource-policy", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"} {
		delete(annotations, name)
	}
	definition.SetAnnotations(annotations)
	definition.SetLabels(map[string]string{"app.kubernetes.io/managed-by": managedBy})
	return definition.Object, nil
}

// namespace is one whose pods may run on the cores that OpenShift reserves for management.
func namespace(name string) object {
	return object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": object{"name": name, "annotations": object{"workload.openshift.io/allowed": "management"}},
	}
}

// secret is one with some data, which is encoded.
func secret(metadata object, kind string, data map[string]string) object {
	encoded := object{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": encoded}
}

// pullSecret is the password of the registry.
func (v *values) pullSecret(operator string) (object, error) {
	credentials := v.Images.ImageCredentials
	content := credentials.DockerConfigJSON
	if content == "" {
		auths := map[string]any{}
		if credentials.UserName != "" {
			pair := base64.StdEncoding.EncodeToString([]byte(credentials.UserName + ":" + credentials.Password))
			auths[v.Images.Registry] = map[string]any{"username": credentials.UserName, "password": credentials.Password, "auth": pair}
		}
		encoded, err := json.Marshal(map[string]any{"auths": auths})
		if err != nil {
			return nil, err
		}
		content = string(encoded)
	}
	return secret(metadata(operator, fleet.NamespaceOperators, fleet.SecretImagePullCredentials), "kubernetes.io/dockerconfigjson",
		map[string]string{".dockerconfigjson": content}), nil
}

// disruptionBudget lets one replica of several be evicted at a time.
func disruptionBudget(operator string) object {
	return object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(operator, fleet.NamespaceOperators, operator),
		"spec": object{"maxUnavailable": int64(1), "selector": selector(operator)},
	}
}

func selector(app string) object { return object{"matchLabels": object{"app": app}} }

func serviceAccount(operator, name string) object {
	return object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(operator, fleet.NamespaceOperators, name)}
}

// operatorAccount is the service account of the operator, which pulls its image.
func (o *operator) operatorAccount() object {
	account := serviceAccount(o.name, o.name)
	account["imagePullSecrets"] = append([]any{object{"name": fleet.SecretImagePullCredentials}}, named(o.Images.ImagePullSecrets)...)
	return account
}

func clusterRole(operator, name string, rules []any) object {
	return object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata(operator, "", name), "rules": rules,
	}
}

func clusterRoleBinding(operator, name, role string, subject object) object {
	return object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata(operator, "", name),
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{subject},
	}
}

func accountSubject(name string) object {
	return object{"kind": "ServiceAccount", "name": name, "namespace": fleet.NamespaceOperators}
}

// rights are the ClusterRole of the operator and its binding.
func (o *operator) rights() (role, binding object, err error) {
	var rules []any
	if err := readYAML(o.name+"/files/operator-rules.yaml", &rules); err != nil {
		return nil, nil, err
	}
	return clusterRole(o.name, o.name, rules), clusterRoleBinding(o.name, o.name, o.name, accountSubject(o.name)), nil
}

// namespaceAndPullSecret are the namespace of the operators and the password of the registry, as far as the values want them.
func (v *values) namespaceAndPullSecret(operator string) ([]object, error) {
	var objects []object
	if v.CreateNamespace {
		objects = append(objects, namespace(fleet.NamespaceOperators))
	}
	if !v.Images.ImageCredentials.CreateImageCredentials {
		return objects, nil
	}
	secret, err := v.pullSecret(operator)
	return append(objects, secret), err
}

// objects are the operator and its rights.
func (o *operator) objects() ([]object, error) {
	role, binding, err := o.rights()
	if err != nil {
		return nil, err
	}
	objects := []object{o.operatorAccount(), role, binding, o.deployment()}
	if o.PodDisruptionBudget.Enabled && o.ReplicaCount > 1 {
		objects = append([]object{disruptionBudget(o.name)}, objects...)
	}
	return objects, nil
}

// toUnstructured leaves out objects that are nil: parts of an installation that the values do without.
func toUnstructured(objects []object) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, content := range objects {
		if content != nil {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	return all
}
