package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/agentconfig"
)

// addOn is what the hub has to know of an add-on that is built in.
type addOn struct {
	displayName, description string
	// role is the name of the Role and of the RoleBinding in the namespace of a cluster with the add-on; empty if the agent needs none.
	role string
	// rules are what the agent of the cluster may do there because of the add-on.
	rules []rbacv1.PolicyRule
	// configure works out of the AddOnDeploymentConfigs of the add-on, the last of which counts most, what the agent gets by the
	// annotation; nil if there is none.
	configure  func(configs []*addonv1beta1.AddOnDeploymentConfig) (string, error)
	annotation string
}

// granted says which rights the agent has: those of the ClusterRole, if there is one.
func (a addOn) granted(clusterRole string) string {
	if a.role == "" {
		return "The agent of the cluster needs no rights for the add-on but those that it has"
	}
	if clusterRole != "" {
		return fmt.Sprintf("The agent of the cluster has the rights of ClusterRole %s, by RoleBinding %s", clusterRole, a.role)
	}
	return fmt.Sprintf("The agent of the cluster has the rights of Role %s", a.role)
}

// addOns has all that are built in, by name.
var addOns = map[string]addOn{
	fleet.AddOnClusterGateway: {
		displayName: "Cluster gateway",
		description: "Clusters are reached through the hub, as an account that the hub has there",
	},
	fleet.AddOnClusterProxy: {
		displayName: "Cluster proxy",
		description: "Clusters are reached through the hub, by users of the hub",
		configure:   configureTunnel, annotation: fleet.AnnotationClusterProxyConfig,
	},
	fleet.AddOnManagedServiceAccount: {
		displayName: "Managed service accounts",
		description: "Service accounts on clusters, with their tokens on the hub",
		role:        "managed-serviceaccount-addon-agent",
		rules: []rbacv1.PolicyRule{
			// Admission lets an agent write the Secrets of ManagedServiceAccounts alone, and a standalone hub lets it read no others.
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update"}},
			{APIGroups: []string{"authentication.open-cluster-management.io"}, Resources: []string{"managedserviceaccounts"},
				Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"authentication.open-cluster-management.io"}, Resources: []string{"managedserviceaccounts/status"},
				Verbs: []string{"get", "update", "patch"}},
		},
	},
}

func configureTunnel(configs []*addonv1beta1.AddOnDeploymentConfig) (string, error) {
	merged := agentconfig.Config{}
	for _, each := range configs {
		if err := merged.Add(each); err != nil {
			return "", fmt.Errorf("AddOnDeploymentConfig %s/%s cannot be used: %w", each.Namespace, each.Name, err)
		}
	}
	return merged.Encode()
}

// Rules returns what the agent of a cluster may do in its namespace because of an add-on that is built in.
func Rules(name string) []rbacv1.PolicyRule { return addOns[name].rules }

// Names returns the names of the add-ons that are built in.
func Names() []string { return slices.Sorted(maps.Keys(addOns)) }

// Check refuses names that no built-in add-on has.
func Check(names []string) error {
	for _, name := range names {
		if _, known := addOns[name]; !known {
			return fmt.Errorf("%q is no built-in add-on; use some of %s, or nothing", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}
