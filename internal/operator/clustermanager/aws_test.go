package clustermanager

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const hubARN = "arn:aws:eks:us-west-2:123456789012:cluster/hub1"

func withAWS(config *operatorv1.AwsIrsaConfig, gates ...operatorv1.FeatureGate) func(*operatorv1.ClusterManager) {
	return func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{FeatureGates: gates,
			RegistrationDrivers: []operatorv1.RegistrationDriverHub{{AuthType: "csr"}, {AuthType: "awsirsa", AwsIrsa: config}}}
	}
}

// CM-11: the registration controllers know the hub in AWS, and have the role of AWS by which they make those of clusters.
func TestAWS(t *testing.T) {
	t.Parallel()
	config := &operatorv1.AwsIrsaConfig{HubClusterARN: hubARN, AutoApprovedIdentities: []string{"arn:a{1,2}", "arn:b"},
		Tags: []string{"team:fleet", `note:a, b and "c"`}}
	patterns := []string{"--auto-approved-arn-patterns=arn:a{1,2}", "--auto-approved-arn-patterns=arn:b"}
	always := []string{"--enabled-registration-drivers=csr,awsirsa", "--hub-cluster-arn=" + hubARN, "--aws-resource-tags=team:fleet",
		`--aws-resource-tags="note:a, b and ""c"""`}
	for name, test := range map[string]struct {
		gates        []operatorv1.FeatureGate
		want, absent []string
	}{
		"with the gate": {[]operatorv1.FeatureGate{{Feature: "ManagedClusterAutoApproval", Mode: operatorv1.FeatureGateModeTypeEnable}},
			slices.Concat(always, patterns), nil},
		"without": {nil, always, patterns},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := planOf(withAWS(config, test.gates...), nil)
			for _, d := range p.deployments {
				args := d.Spec.Template.Spec.Containers[0].Args
				if !strings.HasSuffix(d.Name, registrationController) {
					if slices.Contains(args, always[1]) {
						t.Errorf("%s has %q", d.Name, args)
					}
					continue
				}
				for _, arg := range test.want {
					if !slices.Contains(args, arg) {
						t.Errorf("%q lacks %s", args, arg)
					}
				}
				for _, arg := range test.absent {
					if slices.Contains(args, arg) {
						t.Errorf("%q has %s", args, arg)
					}
				}
			}
			for _, name := range plannedOf(nil, nil).accountNames() {
				account, _ := find[*corev1.ServiceAccount](p, name)
				want := ""
				if name == fleet.ServiceAccountRegistrationController {
					want = "arn:aws:iam::123456789012:role/hub1_managed-cluster-identity-creator"
				}
				if got := account.Annotations["eks.amazonaws.com/role-arn"]; got != want {
					t.Errorf("%s has the role %q, want %q", name, got, want)
				}
			}
		})
	}
}

// CM-11: what is applied once the accounts of a hosted hub have kubeconfigs is what was planned: the role of AWS and the disruption budgets
// as well.
func TestHostedBase(t *testing.T) {
	t.Parallel()
	p := plannedOf(func(cm *operatorv1.ClusterManager) {
		hostedAt("hub.example.com")(cm)
		withAWS(&operatorv1.AwsIrsaConfig{HubClusterARN: hubARN})(cm)
	}, nil)
	base := p.base()
	if diff := cmp.Diff(p.plan().base, base); diff != "" {
		t.Errorf("what is applied differs from the plan (-plan +applied):\n%s", diff)
	}
	applied := &plan{base: base}
	account, found := find[*corev1.ServiceAccount](applied, fleet.ServiceAccountRegistrationController)
	if !found {
		t.Fatal("the registration controllers have no account")
	}
	want := "arn:aws:iam::123456789012:role/hub1_managed-cluster-identity-creator"
	if got := account.GetAnnotations()["eks.amazonaws.com/role-arn"]; got != want {
		t.Errorf("the pods have the role %q, want %q", got, want)
	}
	for _, component := range p.components() {
		if _, budgeted := find[*policyv1.PodDisruptionBudget](applied, component.Name); !budgeted {
			t.Errorf("%s has no disruption budget", component.Name)
		}
	}
}

// CM-11: what AWS does not know is refused with the field.
func TestValidateAWS(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]*operatorv1.AwsIrsaConfig{
		`hubClusterArn: "" is not the ARN`:   nil,
		`hubClusterArn: "x" is not the ARN`:  {HubClusterARN: "x"},
		`autoApprovedIdentities: "(" is no `: {HubClusterARN: hubARN, AutoApprovedIdentities: []string{"("}},
	} {
		cm := &operatorv1.ClusterManager{}
		withAWS(config)(cm)
		if err := validate(cm); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
