package installer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const klusterletChart = "klusterlet"

// klusterletValues are those of the chart klusterlet.
type klusterletValues struct {
	values

	HostAliases                     []any        `json:"hostAliases"`
	ExtraVolumes                    []any        `json:"extraVolumes"`
	ExtraVolumeMounts               []any        `json:"extraVolumeMounts"`
	NoOperator                      bool         `json:"noOperator"`
	BootstrapHubKubeConfig          string       `json:"bootstrapHubKubeConfig"`
	GRPCConfig                      string       `json:"grpcConfig"`
	MultiHubBootstrapHubKubeConfigs []kubeconfig `json:"multiHubBootstrapHubKubeConfigs"`
	ExternalManagedKubeConfig       string       `json:"externalManagedKubeConfig"`
	Klusterlet                      klusterlet   `json:"klusterlet"`
}

// kubeconfig is one of several to join with. Its name is that of a Secret.
type kubeconfig struct {
	Name       string `json:"name"`
	KubeConfig string `json:"kubeConfig"`
}

// klusterlet are the values of the Klusterlet.
type klusterlet struct {
	Create                    bool           `json:"create"`
	Name                      string         `json:"name"`
	ClusterName               string         `json:"clusterName"`
	Namespace                 string         `json:"namespace"`
	Mode                      string         `json:"mode"`
	ExternalServerURLs        []any          `json:"externalServerURLs"`
	HubAPIServerHostAlias     map[string]any `json:"hubApiServerHostAlias"`
	NodePlacement             map[string]any `json:"nodePlacement"`
	ResourceRequirement       map[string]any `json:"resourceRequirement"`
	RegistrationConfiguration map[string]any `json:"registrationConfiguration"`
	WorkConfiguration         map[string]any `json:"workConfiguration"`
}

func klusterletObjects(given map[string]any) ([]*unstructured.Unstructured, error) {
	v := &klusterletValues{}
	if err := decodeValues(klusterletChart, given, v); err != nil {
		return nil, err
	}
	if err := v.nameHosted(); err != nil {
		return nil, err
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	crd, err := definition(klusterletChart, "klusterlets")
	if err != nil {
		return nil, err
	}
	objects := []object{crd, v.priorityClass()}
	around, err := v.namespaceAndPullSecret(klusterletChart)
	if err != nil {
		return nil, err
	}
	objects = append(objects, around...)
	if v.hasOperator() {
		installed, err := v.operator().objects()
		if err != nil {
			return nil, err
		}
		objects = append(objects, installed...)
	}
	objects = append(objects, v.credentials()...)
	if v.Klusterlet.Create {
		objects = append(objects, v.klusterlet())
	}
	return toUnstructured(objects), nil
}

// hosted reports whether the agent runs on another cluster than the one that it is for. A hosting cluster has an operator already, which
// runs the agents of several clusters.
func (v *klusterletValues) hosted() bool { return strings.HasSuffix(v.Klusterlet.Mode, "Hosted") }

func (v *klusterletValues) hasOperator() bool { return !v.NoOperator && !v.hosted() }

// nameHosted gives the Klusterlet the name and the namespace that it has by default.
func (v *klusterletValues) nameHosted() error {
	name, namespace := klusterletChart, fleet.NamespaceAgent
	if v.hosted() {
		if v.Klusterlet.ClusterName == "" && (v.Klusterlet.Name == "" || v.Klusterlet.Namespace == "") {
			return errors.New("klusterlet.clusterName is required in the hosted modes, where klusterlet.name and klusterlet.namespace are made of it")
		}
		name, namespace = "klusterlet-"+v.Klusterlet.ClusterName, "open-cluster-management-"+v.Klusterlet.ClusterName
	}
	if v.Klusterlet.Name == "" {
		v.Klusterlet.Name = name
	}
	if v.Klusterlet.Namespace == "" {
		v.Klusterlet.Namespace = namespace
	}
	return nil
}

// check refuses a Klusterlet that the operator, or the API, would refuse after parts of it have been made.
func (v *klusterletValues) check() error {
	const longestName, longestNamespace = 63, 57 // by the operator, and by the CRD
	if !v.Klusterlet.Create {
		return nil
	}
	for _, chosen := range []struct {
		value, text string
		most        int
	}{{"name", v.Klusterlet.Name, longestName}, {"namespace", v.Klusterlet.Namespace, longestNamespace}} {
		if len(chosen.text) > chosen.most {
			return fmt.Errorf("klusterlet.%s is %q, with %d characters: it may have %d at most; set klusterlet.name and klusterlet.namespace",
				chosen.value, chosen.text, len(chosen.text), chosen.most)
		}
	}
	if v.hasOperator() && v.agentNamespace() == fleet.NamespaceOperators {
		return fmt.Errorf("klusterlet.namespace is %q, where the operator runs, and would be deleted with the Klusterlet: set another one",
			fleet.NamespaceOperators)
	}
	return v.checkHubs()
}

// checkHubs refuses one of several hubs, which the agent would not look at, if there is nothing else to join with.
func (v *klusterletValues) checkHubs() error {
	hubs := v.MultiHubBootstrapHubKubeConfigs
	if len(hubs) != 1 || hubs[0].Name == fleet.SecretBootstrapHubKubeconfig || v.BootstrapHubKubeConfig != "" || v.GRPCConfig != "" ||
		v.chooses("bootstrapKubeConfigs") {
		return nil
	}
	return fmt.Errorf("multiHubBootstrapHubKubeConfigs has %s alone: list two or more, or set bootstrapHubKubeConfig", hubs[0].Name)
}

// agentNamespace is the namespace on this cluster where the agent runs and finds its credentials.
func (v *klusterletValues) agentNamespace() string {
	if v.hosted() {
		return v.Klusterlet.Name
	}
	return v.Klusterlet.Namespace
}

func (v *klusterletValues) agentImage(override string) string {
	return v.image(klusterletChart, "capstan-agent", override)
}

func (v *klusterletValues) operator() *operator {
	image := v.agentImage("operatorImage")
	args := []any{"/registration-operator", "klusterlet"}
	if v.EnableSyncLabels {
		args = append(args, "--enable-sync-labels")
	}
	return &operator{
		name: klusterletChart, containerName: "klusterlet", image: image, args: args, values: v.values,
		env:         []any{variable("OPERATOR_IMAGE", image)},
		hostAliases: v.HostAliases, volumes: v.ExtraVolumes, volumeMounts: v.ExtraVolumeMounts,
	}
}

// priorityClass is that of the operator and the agent. Those of Kubernetes exist.
func (v *klusterletValues) priorityClass() object {
	if v.PriorityClassName == "" || strings.HasPrefix(v.PriorityClassName, "system-") {
		return nil
	}
	return object{
		"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata(klusterletChart, "", v.PriorityClassName),
		"value": int64(1000000), "globalDefault": false, "description": "The agent of the hub that manages this cluster",
	}
}

// credentials are what the agent joins with, and reaches its managed cluster with, in a namespace for them.
func (v *klusterletValues) credentials() []object {
	var secrets []object
	add := func(name string, data map[string]string) {
		secrets = append(secrets, secret(metadata(klusterletChart, v.agentNamespace(), name), "Opaque", data))
	}
	bootstrap := map[string]string{}
	if v.BootstrapHubKubeConfig != "" {
		bootstrap[fleet.KeyKubeconfig] = v.BootstrapHubKubeConfig
	}
	if v.GRPCConfig != "" {
		bootstrap[fleet.KeyConfig] = v.GRPCConfig
	}
	if len(bootstrap) > 0 {
		add(fleet.SecretBootstrapHubKubeconfig, bootstrap)
	}
	for _, hub := range v.MultiHubBootstrapHubKubeConfigs {
		add(hub.Name, map[string]string{fleet.KeyKubeconfig: hub.KubeConfig})
	}
	if v.ExternalManagedKubeConfig != "" {
		add(fleet.SecretExternalManagedKubeconfig, map[string]string{fleet.KeyKubeconfig: v.ExternalManagedKubeConfig})
	}
	if len(secrets) == 0 {
		return nil
	}
	return append([]object{namespace(v.agentNamespace())}, secrets...)
}

// klusterlet is the Klusterlet.
func (v *klusterletValues) klusterlet() object {
	given := v.Klusterlet
	spec := object{
		"imagePullSpec":             v.agentImage("operatorImage"),
		"registrationImagePullSpec": v.agentImage("registrationImage"),
		"workImagePullSpec":         v.agentImage("workImage"),
		"namespace":                 given.Namespace,
		"deployOption":              object{"mode": given.Mode},
	}
	setFields(spec, object{
		"clusterName":               given.ClusterName,
		"externalServerURLs":        given.ExternalServerURLs,
		"hubApiServerHostAlias":     given.HubAPIServerHostAlias,
		"nodePlacement":             given.NodePlacement,
		"resourceRequirement":       given.ResourceRequirement,
		"priorityClassName":         v.PriorityClassName,
		"registrationConfiguration": v.registrationConfiguration(),
		"workConfiguration":         given.WorkConfiguration,
	})
	return object{
		"apiVersion": "operator.open-cluster-management.io/v1", "kind": "Klusterlet",
		"metadata": object{"name": given.Name}, "spec": spec,
	}
}

// registrationConfiguration has the agent use several kubeconfigs to join with, or nothing but a gRPC server, where it is given those.
func (v *klusterletValues) registrationConfiguration() object {
	registration := v.Klusterlet.RegistrationConfiguration
	if registration == nil {
		registration = object{}
	}
	if !v.chooses("bootstrapKubeConfigs") && len(v.MultiHubBootstrapHubKubeConfigs) > 1 {
		v.useSeveralHubs(registration)
	}
	if !v.chooses("registrationDriver") && v.GRPCConfig != "" && v.BootstrapHubKubeConfig == "" {
		registration["registrationDriver"] = object{"authType": "grpc"}
	}
	return registration
}

// chooses tells whether a field of registrationConfiguration is given.
func (v *klusterletValues) chooses(field string) bool {
	fields, isMap := v.Klusterlet.RegistrationConfiguration[field].(object)
	return isMap && len(fields) > 0
}

func (v *klusterletValues) useSeveralHubs(registration object) {
	var secrets []any
	for _, hub := range v.MultiHubBootstrapHubKubeConfigs {
		secrets = append(secrets, object{"name": hub.Name})
	}
	registration["bootstrapKubeConfigs"] = object{
		"type": "LocalSecrets", "localSecretsConfig": object{"kubeConfigSecrets": secrets},
	}
	const gate = "MultipleHubs"
	gates, _ := registration["featureGates"].([]any)
	named := slices.ContainsFunc(gates, func(given any) bool {
		fields, _ := given.(object)
		return fields["feature"] == gate
	})
	if !named {
		registration["featureGates"] = append(gates, object{"feature": gate, "mode": "Enable"})
	}
}
