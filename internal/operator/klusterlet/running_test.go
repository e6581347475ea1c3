package klusterlet

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// KL-30, KL-31: a Klusterlet that is refused still reports on its agent: on the Deployments that there are, where they are, whatever its
// spec says now. Of one that was never installed, there are none to find.
func TestRunningAgent(t *testing.T) {
	t.Parallel()
	const agents, former, invalid = fleet.NamespaceAgent, "open-cluster-management-former", operatorv1.InstallMode("Detached")
	two := []string{"klusterlet-registration-agent", "klusterlet-work-agent"}
	one := []string{"klusterlet-agent"}
	for name, test := range map[string]struct {
		mode      operatorv1.InstallMode
		last      string
		namespace string // of the Deployments
		found     []string
		reported  []string
		in        string
		installed bool
	}{
		"as it should be":               {operatorv1.InstallModeDefault, agents, agents, two, two, agents, true},
		"in part":                       {operatorv1.InstallModeDefault, agents, agents, two[1:], two, agents, true},
		"of a mode that does not exist": {invalid, agents, agents, two, two, agents, true},
		"in one, before that":           {invalid, agents, agents, one, one, agents, true},
		"hosted, before that":           {invalid, "klusterlet", "klusterlet", two, two, "klusterlet", true},
		"in one and hosted, before":     {invalid, "klusterlet", "klusterlet", one, one, "klusterlet", true},
		"of another mode":               {operatorv1.InstallModeSingleton, agents, agents, two, two, agents, true},
		"of one that is not hosted":     {operatorv1.InstallModeSingletonHosted, agents, agents, two, two, agents, true},
		"of another namespace":          {operatorv1.InstallModeDefault, former, former, two, two, former, true},
		"deleted":                       {operatorv1.InstallModeDefault, former, "", nil, two, former, true},
		"never installed":               {invalid, "", "", nil, two, agents, false},
	} {
		k := klusterletWith(test.mode)
		k.Annotations = map[string]string{annotationAgentNamespace: test.last}
		var deployments []client.Object
		for _, found := range test.found {
			deployments = append(deployments, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: found}})
		}
		got, installed := layoutOf(k).running(deployments)
		if got.agents != test.in || strings.Join(got.deploymentNames(), " ") != strings.Join(test.reported, " ") || installed != test.installed {
			t.Errorf("%s: %v in %s, installed: %t", name, got.deploymentNames(), got.agents, installed)
		}
	}
}
