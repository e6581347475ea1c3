package klusterlet

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/agent"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/ocmcommands"
)

var update = flag.Bool("update", false, "write the plans in testdata")

var modes = []operatorv1.InstallMode{operatorv1.InstallModeDefault, operatorv1.InstallModeSingleton, operatorv1.InstallModeHosted,
	operatorv1.InstallModeSingletonHosted}

func klusterletWith(mode operatorv1.InstallMode) *operatorv1.Klusterlet {
	k := &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "klusterlet", UID: "3f0c", Labels: map[string]string{"team": "a"}}}
	k.Spec.DeployOption.Mode, k.Spec.ClusterName = mode, "cluster1"
	return k
}

// everything sets all that a Klusterlet can have.
func everything(k *operatorv1.Klusterlet) {
	k.Spec.ExternalServerURLs = []operatorv1.ServerURL{
		{URL: "https://a.example.com"},
		{URL: "https://b.example.com:6443", CABundle: []byte("pem")},
	}
	k.Spec.HubAPIServerHostAlias = &operatorv1.HubAPIServerHostAlias{IP: "10.0.0.1", Hostname: "hub.example.com"}
	k.Spec.PriorityClassName = "high"
	k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{
		ClientCertExpirationSeconds: 3600,
		KubeAPIQPS:                  60,
		KubeAPIBurst:                70,
		FeatureGates: []operatorv1.FeatureGate{
			{Feature: "ClusterProperty", Mode: operatorv1.FeatureGateModeTypeEnable},
			{Feature: "Unknown"},
		},
		ClusterAnnotations: map[string]string{fleet.AnnotationAgentPrefix + "a": "b", "other": "c"},
		ClusterLabels:      map[string]string{"region": "eu", "env": "prod"},
		BootstrapKubeConfigs: operatorv1.BootstrapKubeConfigs{
			Type: operatorv1.BootstrapKubeConfigsLocalSecrets,
			LocalSecrets: &operatorv1.LocalSecretsConfig{
				HubConnectionTimeoutSeconds: 200, KubeConfigSecrets: []operatorv1.KubeConfigSecret{{Name: "hub-a"}, {Name: "hub-b"}}},
		},
		AddOnKubeClientRegistrationDriver: &operatorv1.AddOnRegistrationDriver{
			AuthType: "token",
			Token:    &operatorv1.AddOnTokenConfiguration{ExpirationSeconds: 7200},
		},
		ClusterClaimConfiguration: &operatorv1.ClusterClaimConfiguration{
			MaxCustomClusterClaims:       5,
			ReservedClusterClaimSuffixes: []string{"x.io", "y.io"},
		},
	}
	k.Spec.WorkConfiguration = &operatorv1.WorkAgentConfiguration{
		KubeAPIQPS:                             80,
		HubKubeAPIQPS:                          90,
		AppliedManifestWorkEvictionGracePeriod: "30m",
		StatusSyncInterval:                     "1m",
	}
}

var plainInputs = inputs{replicas: 1, defaultImage: "image", addOnNamespace: true, suspendWork: true}

var allInputs = inputs{replicas: 3, defaultImage: "image", addOnNamespace: true, syncLabels: true,
	pullSecret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fleet.SecretImagePullCredentials}},
	tlsProfile: &corev1.ConfigMap{Data: map[string]string{fleet.KeyTLSProfileMinVersion: "VersionTLS13"}}}

// byGRPC has the agent register through the gRPC server of the hub.
func byGRPC(k *operatorv1.Klusterlet) {
	k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{
		RegistrationDriver: operatorv1.RegistrationDriver{AuthType: operatorv1.RegistrationAuthTypeGRPC}}
}

// KL-02 to KL-05, KL-09 to KL-26, KL-33, KL-34, GR-11, O4: the plans of all modes, plain, with everything, and through the gRPC server.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		plain, full, grpc := klusterletWith(mode), klusterletWith(mode), klusterletWith(mode)
		everything(full)
		byGRPC(grpc)
		for name, test := range map[string]struct {
			klusterlet *operatorv1.Klusterlet
			inputs     inputs
		}{
			string(mode):                 {plain, plainInputs},
			string(mode) + "-everything": {full, allInputs},
			string(mode) + "-grpc":       {grpc, plainInputs},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got, file := describe(t, planFor(layoutOf(test.klusterlet), test.inputs)), filepath.Join("testdata", name+".txt")
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("the plan is not that of %s; if it should be, run the test with -update and look at the difference. It is:\n%s", file, got)
				}
			})
		}
	}
}

// describe writes what a reader wants to compare of a plan.
func describe(t *testing.T, p plan) string {
	t.Helper()
	var b strings.Builder
	section := func(title string, objects []client.Object) {
		fmt.Fprintf(&b, "%s\n", title)
		for _, object := range objects {
			describeObject(t, &b, object)
		}
	}
	b.WriteString("CRDs\n")
	for _, crd := range p.crds {
		fmt.Fprintf(&b, "  %s\n", crd.Name)
	}
	section("shared on the managed cluster", p.shared)
	section("managed cluster", p.managed)
	section("where the agents run", p.management)
	for _, kubeconfig := range p.kubeconfigs {
		fmt.Fprintf(&b, "kubeconfig %s of %s\n", kubeconfig.Secret, kubeconfig.Account)
	}
	section("deployments", p.deployments)
	return b.String()
}

func describeObject(t *testing.T, b *strings.Builder, object client.Object) {
	t.Helper()
	kind, err := apiutil.GVKForObject(object, Scheme())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "  %s %s", kind.Kind, strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"))
	if labels := object.GetLabels(); len(labels) > 0 {
		fmt.Fprintf(b, " %v", labels)
	}
	b.WriteString("\n")
	line := func(format string, args ...any) { fmt.Fprintf(b, "    "+format+"\n", args...) }
	switch o := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		line("%s for %s", o.RoleRef.Name, nameSubjects(o.Subjects))
	case *rbacv1.RoleBinding:
		line("%s for %s", o.RoleRef.Name, nameSubjects(o.Subjects))
	case *networkingv1.NetworkPolicy:
		line(
			"%v in %v, out %v",
			o.Spec.PolicyTypes,
			portNumbers(o.Spec.Ingress, o.Spec.Egress, true),
			portNumbers(o.Spec.Ingress, o.Spec.Egress, false),
		)
	case *appsv1.Deployment:
		spec := o.Spec.Template.Spec
		line(
			"%d pods %v as %s, priority %q, aliases %v",
			ptr.Deref(o.Spec.Replicas, 1),
			o.Spec.Template.Labels,
			spec.ServiceAccountName,
			spec.PriorityClassName,
			spec.HostAliases,
		)
		line("%s %s", spec.Containers[0].Image, strings.Join(spec.Containers[0].Args, "\n      "))
		for i, volume := range spec.Volumes {
			line("%s at %s", volume.Name, spec.Containers[0].VolumeMounts[i].MountPath)
		}
	}
}

func nameSubjects(subjects []rbacv1.Subject) string {
	var names []string
	for _, subject := range subjects {
		names = append(names, subject.Namespace+"/"+subject.Name)
	}
	return strings.Join(names, ", ")
}

func portNumbers(in []networkingv1.NetworkPolicyIngressRule, out []networkingv1.NetworkPolicyEgressRule, ingress bool) (numbers []string) {
	var all []networkingv1.NetworkPolicyPort
	if ingress {
		for _, rule := range in {
			all = append(all, rule.Ports...)
		}
	} else {
		for _, rule := range out {
			all = append(all, rule.Ports...)
		}
	}
	for _, port := range all {
		number := "any"
		if port.Port != nil {
			number = port.Port.String()
		}
		numbers = append(numbers, fmt.Sprintf("%s:%s", *port.Protocol, number))
	}
	return numbers
}

// KL-02 to KL-05: the agents' own commands take the arguments of all Deployments in all modes, and start with them.
func TestArgumentsOfDeployments(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, full := range []bool{false, true} {
			k := klusterletWith(mode)
			if full {
				everything(k)
			}
			for _, object := range planFor(layoutOf(k), allInputs).deployments {
				deployment, ok := object.(*appsv1.Deployment)
				if !ok {
					continue
				}
				parse(t, deployment.Spec.Template.Spec.Containers[0].Args)
			}
		}
	}
}

func parse(t *testing.T, args []string) {
	t.Helper()
	command, err := ocmcommands.Translate(args)
	if err != nil || command == nil || command.Program != ocmcommands.Agent {
		t.Fatalf("%v is %v, %v", args, command, err)
	}
	options, flags := agent.NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	options.AddCommonFlags(flags)
	parts := agent.Parts{Registration: command.Args[0] != "work", Work: command.Args[0] != "registration"}
	if parts.Registration {
		options.AddRegistrationFlags(flags)
	}
	if parts.Work {
		options.AddWorkFlags(flags)
	}
	if err := flags.Parse(command.Args[1:]); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	if err := options.Validate(parts); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	if rest := flags.Args(); len(rest) > 0 {
		t.Errorf("%v: %v are no flags", args, rest)
	}
}

// KL-27, KL-30: the pods of all modes name the Secret to pull images with, which is copied to their namespace if the operator has one, or
// stored there by a user. The service accounts do not: controllers of the platform write into the same list, and neither would give way.
func TestPullSecret(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, in := range []inputs{plainInputs, allInputs} {
			l := layoutOf(klusterletWith(mode))
			p := planFor(l, in)
			want := []corev1.LocalObjectReference{{Name: fleet.SecretImagePullCredentials}}
			copied := false
			for _, object := range slices.Concat(p.managed, p.onManagement()) {
				switch o := object.(type) {
				case *corev1.ServiceAccount:
					if len(o.ImagePullSecrets) > 0 {
						t.Errorf("%s: service account %s/%s has %v", mode, o.Namespace, o.Name, o.ImagePullSecrets)
					}
				case *appsv1.Deployment:
					if got := o.Spec.Template.Spec.ImagePullSecrets; !slices.Equal(got, want) {
						t.Errorf("%s: the pods of %s have %v, want %v", mode, o.Name, got, want)
					}
				case *corev1.Secret:
					copied = copied || o.Namespace == l.agents && o.Name == fleet.SecretImagePullCredentials
				}
			}
			if copied != (in.pullSecret != nil) {
				t.Errorf("%s: the namespace of the pods has the Secret: %t", mode, copied)
			}
		}
	}
}

// KL-20: an agent has the suffixes that the spec has, whatever is in them.
func TestReservedSuffixes(t *testing.T) {
	t.Parallel()
	for want, suffixes := range map[string][]string{"": nil, "x.io,y.io": {"x.io", "y.io"}, `"x,y","""z"""`: {"x,y", `"z"`}} {
		k := klusterletWith(operatorv1.InstallModeDefault)
		k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{
			ClusterClaimConfiguration: &operatorv1.ClusterClaimConfiguration{ReservedClusterClaimSuffixes: suffixes}}
		got := ""
		for _, flag := range layoutOf(k).registrationFlags() {
			if value, found := strings.CutPrefix(flag, "--reserved-cluster-claim-suffixes="); found {
				got = value
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", suffixes, got, want)
		}
	}
}

// KL-34, O15: without the gate there are NetworkPolicies, and none if it is disabled. Policies let agents reach every
// port by UDP, for DNS, and by TCP: networks apply them behind Services and NodePorts, where the port is another one than clients name.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeDefault)
	policies := func() (found []*networkingv1.NetworkPolicy) {
		for _, object := range planFor(layoutOf(k), inputs{}).management {
			if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
				found = append(found, policy)
			}
		}
		return found
	}
	if found := policies(); len(found) != 4 {
		t.Errorf("there are %d policies", len(found))
	}
	for _, policy := range policies() {
		want, got := map[string]string{"allow-dns-and-api": "[UDP:any TCP:any]", "klusterlet-agent": "[TCP:any]"}[policy.Name], ""
		if len(policy.Spec.Egress) > 0 {
			got = fmt.Sprint(portNumbers(nil, policy.Spec.Egress, false))
		}
		if got != want {
			t.Errorf("policy %s lets agents reach %q, want %q", policy.Name, got, want)
		}
	}
	k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{FeatureGates: []operatorv1.FeatureGate{
		{Feature: "NetworkPolicies", Mode: operatorv1.FeatureGateModeTypeDisable}}}
	if found := policies(); len(found) != 0 {
		t.Errorf("there are %d policies without the gate", len(found))
	}
}

// KL-17, GR-11: an agent that chooses among several hubs has the configuration of a gRPC client for each.
func TestSeveralHubsByGRPC(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeSingleton)
	everything(k)
	k.Spec.RegistrationConfiguration.RegistrationDriver.AuthType = operatorv1.RegistrationAuthTypeGRPC
	flags := layoutOf(k).registrationFlags()
	for _, want := range []string{"--registration-auth=grpc", "--grpc-config=/spoke/hub-kubeconfig/config.yaml",
		"--grpc-bootstrap-configs=/spoke/hub-a/config.yaml", "--grpc-bootstrap-configs=/spoke/hub-b/config.yaml"} {
		if !slices.Contains(flags, want) {
			t.Errorf("%s is not among %v", want, flags)
		}
	}
	if rest := strings.Join(flags, " "); strings.Contains(rest, "--bootstrap-kubeconfig") || strings.Contains(rest, "--grpc-bootstrap-config=") {
		t.Errorf("got %v", flags)
	}
}

// WK-03: a work agent has the credentials to register with, to ask a hub about other clusters with them, and no flag for it that one
// of Open Cluster Management does not know. Of several hubs, the environment names the files.
func TestWorkAgentMayAskTheHub(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		changes             []func(*operatorv1.Klusterlet)
		environment, mounts string
	}{
		"one hub": {nil, "", "/spoke/bootstrap"},
		"by gRPC": {[]func(*operatorv1.Klusterlet){byGRPC}, "", "/spoke/bootstrap"},
		"several hubs": {[]func(*operatorv1.Klusterlet){everything}, "/spoke/hub-a/kubeconfig,/spoke/hub-b/kubeconfig",
			"/spoke/hub-a /spoke/hub-b"},
		"several hubs by gRPC": {[]func(*operatorv1.Klusterlet){everything, func(k *operatorv1.Klusterlet) {
			k.Spec.RegistrationConfiguration.RegistrationDriver.AuthType = operatorv1.RegistrationAuthTypeGRPC
		}}, "/spoke/hub-a/config.yaml,/spoke/hub-b/config.yaml", "/spoke/hub-a /spoke/hub-b"},
	} {
		for _, mode := range []operatorv1.InstallMode{operatorv1.InstallModeDefault, operatorv1.InstallModeHosted} {
			k := klusterletWith(mode)
			for _, change := range test.changes {
				change(k)
			}
			c := layoutOf(k).workAgent(plainInputs)
			environment, mounted := "", []string{}
			for _, variable := range c.Env {
				if variable.Name == fleet.EnvBootstrapConfigs {
					environment = variable.Value
				}
			}
			for _, volume := range c.Volumes {
				if strings.HasPrefix(volume.Name, "bootstrap-secret") {
					mounted = append(mounted, volume.Path)
				}
			}
			if environment != test.environment || strings.Join(mounted, " ") != test.mounts ||
				strings.Contains(strings.Join(c.Args, " "), "bootstrap") {
				t.Errorf("%s, %s: environment %q, mounts %v, arguments %v", name, mode, environment, mounted, c.Args)
			}
		}
	}
}
