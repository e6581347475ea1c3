package install

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// What of the values of the chart klusterlet only the operator takes, and those that have the credentials of agents.
var (
	operatorValues = []string{
		"affinity", "enableSyncLabels", "extraVolumeMounts", "extraVolumes", "hostAliases", "nodeSelector", "podDisruptionBudget",
		"podSecurityContext", "replicaCount", "resources", "securityContext", "tolerations",
	}
	operatorImageValues = []string{"imagePullPolicy", "imagePullSecrets"}
	credentialValues    = []string{
		"bootstrapHubKubeConfig", "externalManagedKubeConfig", "grpcConfig", "multiHubBootstrapHubKubeConfigs",
	}
)

// renderOperator returns the operator alone: for hosted agents the chart has none, because they usually run where there is one.
func renderOperator(values map[string]any) ([]*unstructured.Unstructured, error) {
	operator := maps.Clone(values)
	maps.DeleteFunc(operator, func(name string, _ any) bool { return slices.Contains(credentialValues, name) })
	operator["klusterlet"] = map[string]any{"create": false, "mode": string(operatorv1.InstallModeDefault)}
	return installer.Objects(klusterletOperator, operator)
}

// merged are objects and others that are not among them.
func merged(objects, others []*unstructured.Unstructured) []*unstructured.Unstructured {
	present := map[installation.Reference]bool{}
	for _, object := range objects {
		present[installation.ReferenceTo(object)] = true
	}
	for _, object := range others {
		if !present[installation.ReferenceTo(object)] {
			objects = append(objects, object)
		}
	}
	return objects
}

// noteKeptOperator says what is given for an operator that stays as it is.
func (c *clusterJoin) noteKeptOperator(values map[string]any) {
	given := givenToOperator(values)
	if !c.keepsOperator() || len(given) == 0 {
		return
	}
	how := "\"capstan upgrade klusterlet --values-file FILE\" changes it, by a file with these values"
	if by := c.operator.Installer(); by.Name != "" {
		how = "It is for " + by.Name + " to change"
	}
	c.Note("The operator runs already, and stays as it is, whatever these values of its chart say: %s. %s.", strings.Join(given, ", "), how)
}

// givenToOperator are the values that only the operator takes, by their names.
func givenToOperator(values map[string]any) (given []string) {
	add := func(section string, from map[string]any, names []string) {
		for _, name := range names {
			if value := from[name]; value != nil && value != false {
				given = append(given, section+name)
			}
		}
	}
	add("", values, operatorValues)
	images, _ := values["images"].(map[string]any)
	add("images.", images, operatorImageValues)
	return given
}
