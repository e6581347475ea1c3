package klusterlet

import (
	"cmp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
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

// KL-31: while a Klusterlet is refused, nothing is said of credentials that are not those of the agent that runs: of another driver, or of
// more hubs than it has.
func TestRunningAgentOfAnotherDriver(t *testing.T) {
	t.Parallel()
	byAWS := func(k *operatorv1.Klusterlet) {
		k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{RegistrationDriver: operatorv1.RegistrationDriver{
			AuthType: operatorv1.RegistrationAuthTypeAWSIRSA, AwsIrsa: &operatorv1.AwsIrsa{
				HubClusterARN: "arn:aws:eks:us-west-2:123456789012:cluster/hub", ManagedClusterARN: "arn:aws:eks:us-west-2:123456789012:cluster/c1"}}}
	}
	byCSR := func(k *operatorv1.Klusterlet) {
		k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{
			RegistrationDriver: operatorv1.RegistrationDriver{AuthType: operatorv1.RegistrationAuthTypeCSR}}
	}
	specs := map[string]func(*operatorv1.Klusterlet){"none": func(*operatorv1.Klusterlet) {}, "csr": byCSR, "grpc": byGRPC, "awsirsa": byAWS,
		"several hubs": func(k *operatorv1.Klusterlet) {
			everything(k)
			k.Spec.RegistrationConfiguration.RegistrationDriver = operatorv1.RegistrationDriver{}
		}}
	same := map[string]string{"none": "csr"}
	for _, mode := range modes {
		for installed, before := range specs {
			for specified, now := range specs {
				was, is := klusterletWith(mode), klusterletWith(mode)
				before(was)
				now(is)
				want := cmp.Or(same[installed], installed) == cmp.Or(same[specified], specified)
				deployments := layoutOf(was).deployments(plainInputs)
				if got := layoutOf(is).registersAsSpecified(deployments); got != want {
					t.Errorf("%s, %s runs, %s is specified: %t", mode, installed, specified, got)
				}
				if want {
					continue
				}
				management, err := apply.NewCluster(&rest.Config{Host: "http://127.0.0.1:1"},
					apply.Options{Label: fleet.LabelCreatedByKlusterlet, Scheme: Scheme()})
				if err != nil {
					t.Fatal(err)
				}
				// The controller has no Secrets: it would panic if it read one.
				c := &Controller{Operator: &frame.Operator{Management: management}}
				if due, err := c.observeRunning(t.Context(), newReport(is), layoutOf(is), deployments); due != refusedInterval || err != nil {
					t.Errorf("%s, %s runs, %s is specified: due in %s, %v", mode, installed, specified, due, err)
				}
			}
		}
	}
	if layoutOf(klusterletWith(operatorv1.InstallModeDefault)).registersAsSpecified(nil) {
		t.Error("without Deployments, it is known how the agent registers")
	}
}
