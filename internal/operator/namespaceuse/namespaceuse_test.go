package namespaceuse

import (
	"errors"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// KL-04, KL-32: labels say what a namespace is for, and where they do not, the kubeconfig of a hub does.
func TestOf(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		labels     map[string]string
		kubeconfig bool
		err        error
		use        string
	}{
		"nothing":                 {},
		"another label":           {labels: map[string]string{fleet.LabelKlusterlet: "a"}},
		"a managed cluster":       {labels: map[string]string{fleet.LabelClusterName: "c1"}, err: refused, use: "is that of ManagedCluster c1"},
		"a ClusterManager":        {labels: map[string]string{fleet.LabelCreatedByClusterManager: "cm"}, err: refused, use: "is that of ClusterManager cm"},
		"a hosted ClusterManager": {kubeconfig: true, use: "has Secret external-hub-kubeconfig, of a hosted ClusterManager"},
		"it cannot be found out":  {err: refused},
		"a hub, of a Klusterlet too": {labels: map[string]string{fleet.LabelKlusterlet: "a"}, kubeconfig: true,
			use: "has Secret external-hub-kubeconfig, of a hosted ClusterManager"},
	} {
		use, err := Of(test.labels, func() (bool, error) { return test.kubeconfig, test.err })
		if fails := test.err != nil && test.use == ""; use != test.use || (err != nil) != fails {
			t.Errorf("%s: %q, %v", name, use, err)
		}
	}
}
