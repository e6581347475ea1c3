// Package installer renders the charts of the operators, and that of a standalone hub, to the objects that install them without a release
// of Helm: those that Helm makes, without labels and annotations that are for Helm alone. It asks no cluster.
package installer

import (
	"crypto/rand"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	clusterManagerChart = "cluster-manager"
	klusterletChart     = "klusterlet"
)

// Objects returns what a chart of an operator installs with some values, in the order to apply it in: in the namespace of the operators,
// as an installation of the chart's name. Errors do not quote credentials that are among the values.
func Objects(chart string, given map[string]any) ([]*unstructured.Unstructured, error) {
	if chart != clusterManagerChart && chart != klusterletChart {
		return nil, fmt.Errorf("%q is no chart of an operator: those are %s and %s", chart, clusterManagerChart, klusterletChart)
	}
	values, err := plain(chart, given)
	if err != nil {
		return nil, err
	}
	if chart == clusterManagerChart {
		addBootstrapToken(values)
	}
	return release{
		chart: chart, name: chart, namespace: fleet.NamespaceOperators, values: values, capabilities: common.DefaultCapabilities,
	}.objects()
}

// addBootstrapToken makes the secret of a bootstrap token that has none.
func addBootstrapToken(values map[string]any) {
	const name = "bootstrapTokenSecret"
	if wanted, _ := values["createBootstrapToken"].(bool); wanted && isEmpty(values[name]) {
		values[name] = strings.ToLower(rand.Text()[:16])
	}
}

func isEmpty(value any) bool { return value == nil || value == "" }
