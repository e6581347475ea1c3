package installer

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const clusterManagerChart = "cluster-manager"

// clusterManagerValues are those of the chart cluster-manager.
type clusterManagerValues struct {
	values

	CreateBootstrapToken bool           `json:"createBootstrapToken"`
	BootstrapTokenSecret string         `json:"bootstrapTokenSecret"`
	CreateBootstrapSA    bool           `json:"createBootstrapSA"`
	ClusterManager       clusterManager `json:"clusterManager"`
}

// clusterManager are the values of the ClusterManager.
type clusterManager struct {
	Create                    bool           `json:"create"`
	Mode                      string         `json:"mode"`
	DeployOption              map[string]any `json:"deployOption"`
	NodePlacement             map[string]any `json:"nodePlacement"`
	ResourceRequirement       map[string]any `json:"resourceRequirement"`
	RegistrationConfiguration map[string]any `json:"registrationConfiguration"`
	WorkConfiguration         map[string]any `json:"workConfiguration"`
	AddOnManagerConfiguration map[string]any `json:"addOnManagerConfiguration"`
	PlacementConfiguration    map[string]any `json:"placementConfiguration"`
	ServerConfiguration       map[string]any `json:"serverConfiguration"`
}

func clusterManagerObjects(given map[string]any) ([]*unstructured.Unstructured, error) {
	v := &clusterManagerValues{}
	if err := decodeValues(clusterManagerChart, given, v); err != nil {
		return nil, err
	}
	crd, err := definition(clusterManagerChart, "clustermanagers")
	if err != nil {
		return nil, err
	}
	around, err := v.namespaceAndPullSecret(clusterManagerChart)
	if err != nil {
		return nil, err
	}
	installed, err := v.operator().objects()
	if err != nil {
		return nil, err
	}
	objects := slices.Concat([]object{crd}, around, installed, v.bootstrap())
	if v.ClusterManager.Create {
		objects = append(objects, v.clusterManager())
	}
	return toUnstructured(objects), nil
}

func (v *clusterManagerValues) hubImage(override string) string {
	return v.image(clusterManagerChart, "capstan-hub", override)
}

func (v *clusterManagerValues) operator() *operator {
	image := v.hubImage("operatorImage")
	args := []any{"/registration-operator", "hub"}
	if v.EnableSyncLabels {
		args = append(args, "--enable-sync-labels")
	}
	return &operator{
		name: clusterManagerChart, containerName: "registration-operator", image: image, values: v.values,
		args: append(args, "--image-pull-secret-name="+fleet.SecretImagePullCredentials),
		env: []any{
			variable("OPERATOR_IMAGE", image), variable("AGENT_IMAGE", v.image(clusterManagerChart, "capstan-agent", "agentImage")),
		},
	}
}

// bootstrapToken is the ID of the bootstrap token with which clusters join.
const bootstrapToken = "ocmhub"

// bootstrap is what a cluster that has not joined yet requests to join with.
func (v *clusterManagerValues) bootstrap() []object {
	if !v.CreateBootstrapToken && !v.CreateBootstrapSA {
		return nil
	}
	const operator, role = clusterManagerChart, fleet.ClusterRoleBootstrap
	objects := []object{clusterRole(operator, role, bootstrapRules())}
	if v.CreateBootstrapToken {
		group := object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": fleet.GroupBootstrap}
		objects = append(objects,
			secret(metadata(operator, "kube-system", fleet.SecretBootstrapToken), "bootstrap.kubernetes.io/token", map[string]string{
				"description":                    "The token with which clusters join the hub",
				"token-id":                       bootstrapToken,
				"token-secret":                   cmp.Or(v.BootstrapTokenSecret, strings.ToLower(rand.Text()[:16])),
				"usage-bootstrap-authentication": "true",
				"usage-bootstrap-signing":        "true",
				"auth-extra-groups":              fleet.GroupBootstrap,
			}),
			clusterRoleBinding(operator, role+":managedcluster", role, group))
	}
	if v.CreateBootstrapSA {
		objects = append(objects, serviceAccount(operator, fleet.ServiceAccountBootstrap),
			clusterRoleBinding(operator, role+":agent-registration", role, accountSubject(fleet.ServiceAccountBootstrap)))
	}
	return objects
}

// bootstrapRules are fleet.BootstrapRules as the chart has them.
func bootstrapRules() []any {
	var rules []any
	for _, rule := range fleet.BootstrapRules("get", "create", "list", "watch") {
		content := object{"apiGroups": texts(rule.APIGroups), "resources": texts(rule.Resources), "verbs": texts(rule.Verbs)}
		setFields(content, object{"resourceNames": texts(rule.ResourceNames)})
		rules = append(rules, content)
	}
	return rules
}

func texts(values []string) []any {
	all := make([]any, 0, len(values))
	for _, value := range values {
		all = append(all, value)
	}
	return all
}

// clusterManager is the ClusterManager.
func (v *clusterManagerValues) clusterManager() object {
	given := v.ClusterManager
	deployOption := given.DeployOption
	if deployOption == nil {
		deployOption = object{}
	}
	deployOption["mode"] = given.Mode
	spec := object{
		"registrationImagePullSpec": v.hubImage("registrationImage"),
		"workImagePullSpec":         v.hubImage("workImage"),
		"placementImagePullSpec":    v.hubImage("placementImage"),
		"addOnManagerImagePullSpec": v.hubImage("addOnManagerImage"),
		"deployOption":              deployOption,
	}
	setFields(spec, object{
		"nodePlacement":             given.NodePlacement,
		"resourceRequirement":       given.ResourceRequirement,
		"registrationConfiguration": v.registrationConfiguration(),
		"workConfiguration":         given.WorkConfiguration,
		"addOnManagerConfiguration": given.AddOnManagerConfiguration,
		"placementConfiguration":    given.PlacementConfiguration,
		"serverConfiguration":       given.ServerConfiguration,
	})
	return object{
		"apiVersion": "operator.open-cluster-management.io/v1", "kind": "ClusterManager",
		"metadata": object{"name": clusterManagerChart}, "spec": spec,
	}
}

// registrationConfiguration has the hub approve the certificate requests of who joins with what the chart creates, where the gate
// ManagedClusterAutoApproval is enabled.
func (v *clusterManagerValues) registrationConfiguration() object {
	registration := v.ClusterManager.RegistrationConfiguration
	users, _ := registration["autoApproveUsers"].([]any)
	var more []any
	if v.CreateBootstrapToken {
		// The user of the token, and what Open Cluster Management writes for it, which is the user of no token.
		more = append(more, "system:bootstrap:"+bootstrapToken, "system:bootstrap:"+fleet.SecretBootstrapToken)
	}
	if v.CreateBootstrapSA {
		more = append(more, "system:serviceaccount:"+fleet.NamespaceOperators+":"+fleet.ServiceAccountBootstrap)
	}
	var unique []any
	for _, user := range slices.Concat(users, more) {
		if !slices.Contains(unique, user) {
			unique = append(unique, user)
		}
	}
	if len(unique) == 0 {
		return registration
	}
	if registration == nil {
		registration = object{}
	}
	registration["autoApproveUsers"] = unique
	return registration
}
