package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// parse reads the flags of an agent of both parts.
func parse(args ...string) (*Options, error) {
	o, flags := NewOptions(), pflag.NewFlagSet("agent", pflag.ContinueOnError)
	o.AddCommonFlags(flags)
	o.AddRegistrationFlags(flags)
	o.AddWorkFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	return o, o.Validate(Parts{Registration: true, Work: true})
}

// WK-18 WK-19 WK-38 RG-54 KL-14 KL-16 KL-13 KL-22: command lines of the agents of OCM are accepted, and what changes nothing is
// said.
func TestFlagsOfOthers(t *testing.T) {
	t.Parallel()
	o, err := parse(
		"--spoke-cluster-name=c1", "--bootstrap-kubeconfig=/spoke/bootstrap/kubeconfig", "--bootstrap-kubeconfig-secret=bootstrap-hub-kubeconfig",
		"--hub-kubeconfig-secret=hub-kubeconfig-secret", "--hub-kubeconfig-dir=/spoke/hub-kubeconfig", "--agent-id=uid",
		"--registration-auth=csr",
		"--feature-gates=AddonManagement=true,ClusterClaim=true,RawFeedbackJsonString=true,ExecutorValidatingCaches=true,V1beta1CSRAPICompatibility=false",
		"--cluster-annotations=agent.open-cluster-management.io/a=b", "--kube-api-qps=50", "--kube-api-burst=100", "--disable-leader-election",
		"--workload-source-driver=kube", "--workload-source-config=/spoke/hub-kubeconfig/kubeconfig", "--hub-kube-api-qps=50",
		"--hub-kube-api-burst=100",
		"--status-sync-interval=60s", "--max-feedback-watch=50", "--max-json-raw-length=1024", "--appliedmanifestwork-eviction-grace-period=60m",
		"--cloudevents-client-id=c1-work-agent", "--cloudevents-client-codecs=manifestbundle", "--terminate-on-files=/spoke/config/kubeconfig",
		"--addon-kubeclient-registration-auth=csr", "--client-cert-expiration-seconds=3600", "--tls-min-version=VersionTLS12",
		"--tls-cipher-suites=TLS_AES_128_GCM_SHA256",
	)
	if err != nil {
		t.Fatal(err)
	}
	if o.HubKubeconfigDir != "/spoke/hub-kubeconfig" || !slices.Equal(o.TerminateOnFiles, []string{"/spoke/config/kubeconfig"}) {
		t.Errorf("options %+v", o)
	}
	var logged strings.Builder
	o.log(funcr.New(func(_, line string) { logged.WriteString(line + "\n") }, funcr.Options{}))
	for _, text := range []string{
		"--bootstrap-kubeconfig-secret", "--status-sync-interval", "--kube-api-qps", "--hub-kube-api-burst",
		"--max-feedback-watch",
		"--cloudevents-client-id", "ExecutorValidatingCaches", "V1beta1CSRAPICompatibility",
	} {
		if !strings.Contains(logged.String(), text) {
			t.Errorf("nothing is said about %s", text)
		}
	}
	for _, text := range []string{"ClusterClaim", "--agent-id", "--tls-min-version", "--workload-source-config", "left out"} {
		if strings.Contains(logged.String(), text) {
			t.Errorf("%s is in the log:\n%s", text, logged.String())
		}
	}
}

const (
	hubARN   = "arn:aws:eks:us-west-2:123456789012:cluster/hub1"
	awsFlags = "--registration-auth=awsirsa --hub-cluster-arn=" + hubARN + " --managed-cluster-arn=arn:aws:eks:us-west-2:210987654321:cluster/c1"
)

// RG-52: the two ARNs are all that registration by AWS IAM needs.
func TestRegistrationByAWS(t *testing.T) {
	t.Parallel()
	o, err := parse(strings.Fields(awsFlags)...)
	if err != nil {
		t.Fatal(err)
	}
	if o.aws == nil || o.aws.Hub.ARN() != hubARN || o.aws.Managed.Name != "c1" {
		t.Errorf("%+v", o.aws)
	}
	if user := o.hubUser("c1"); user != "open-cluster-management:c1" {
		t.Errorf("it acts as %q on the hub", user)
	}
	if user := (&Options{}).hubUser("c1"); user != "" {
		t.Errorf("without AWS IAM, it acts as %q on the hub", user)
	}
}

// WK-38 CE-10: what is not in this version is refused with what to use in its place.
func TestFlagsRefused(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--workload-source-driver=kafka":                                                       `"kafka" is not in this version; use kube, grpc or mqtt`,
		"--workload-source-driver=pubsub":                                                      `"pubsub" is not in this version; use kube, grpc or mqtt`,
		"--registration-auth=grpc --bootstrap-kubeconfigs=/a":                                  "name the hubs by --grpc-bootstrap-configs",
		"--workload-source-driver=grpc --bootstrap-kubeconfigs=/a":                             "name the hubs by --grpc-bootstrap-configs",
		"--grpc-bootstrap-configs=/a,/b":                                                       "name the hubs by --bootstrap-kubeconfigs",
		"--registration-auth=grpc --cloudevents-client-codecs=manifest":                        "manifestbundle has to be among them",
		"--registration-auth=grpc --grpc-config=/a/kubeconfig":                                 "it must be a file config.yaml",
		"--workload-source-driver=grpc --workload-source-config=/a/kubeconfig":                 "it must be a file config.yaml",
		"--registration-auth=x":                                                                `"x" is not in this version; use csr, grpc or awsirsa`,
		"--registration-auth=awsirsa":                                                          `--hub-cluster-arn: "" is not the ARN`,
		"--hub-cluster-arn=x":                                                                  "--hub-cluster-arn is for --registration-auth=awsirsa",
		"--registration-auth=awsirsa --hub-cluster-arn=" + hubARN + " --managed-cluster-arn=x": `--managed-cluster-arn: "x" is not the ARN`,
		awsFlags + " --managed-cluster-role-suffix=x":                                          "--managed-cluster-role-suffix is \"x\"",
		awsFlags + " --bootstrap-kubeconfigs=/a,/b":                                            "names 2 hubs, and --hub-cluster-arn is of one",
		awsFlags + " --workload-source-driver=grpc":                                            "--workload-source-driver=grpc is not for --registration-auth=awsirsa",
		"--workload-source-config=/etc/config.yaml":                                            "it must be a file kubeconfig",
		"--hub-kubeconfig-dir=/a --workload-source-config=/b/kubeconfig":                       "which is not in --hub-kubeconfig-dir /a",
		"--feature-gates=Nonsense=true":                                                        `"Nonsense" is no feature gate here; use some of AddonManagement, ClusterClaim, `,
		"--feature-gates=MultipleHubs=false --bootstrap-kubeconfigs=/a,/b":                     "names 2 hubs",
		"--status-sync-interval=soon":                                                          "--status-sync-interval",
	} {
		if _, err := parse(strings.Fields(arg)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", arg, err, want)
		}
	}
}

// WK-38: the work agent may be configured with where the hub kubeconfig is by two flags.
func TestWorkloadSourceConfig(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--workload-source-config=/a/kubeconfig":                            "/a",
		"--hub-kubeconfig-dir=/a/ --workload-source-config=/a/./kubeconfig": "/a",
		"--hub-kubeconfig-dir=/b":                                           "/b",
	} {
		if o, err := parse(strings.Fields(arg)...); err != nil || o.HubKubeconfigDir != want {
			t.Errorf("%s: %+v, %v", arg, o, err)
		}
	}
}

// RG-51 GR-11 WK-38 CE-13 R13: registration and work come the same way in one process, and there may be several hubs.
func TestGRPCFlags(t *testing.T) {
	t.Parallel()
	both, registration, work := Parts{Registration: true, Work: true}, Parts{Registration: true}, Parts{Work: true}
	for _, test := range []struct {
		args  string
		parts Parts
		key   string // of the file of the credential; empty if that is refused
	}{
		{"", both, "kubeconfig"},
		{"--registration-auth=grpc", both, "config.yaml"},
		{"--registration-auth=grpc", registration, "config.yaml"},
		{"--registration-auth=grpc --workload-source-driver=grpc --workload-source-config=/a/config.yaml", both, "config.yaml"},
		{"--workload-source-driver=grpc", work, "config.yaml"},
		{"--workload-source-driver=grpc", both, ""},
		{"--registration-auth=grpc --workload-source-driver=kube", both, ""},
	} {
		o, err := parse(strings.Fields(test.args)...)
		if err != nil {
			t.Fatal(err)
		}
		access, err := o.access(test.parts)
		if (err == nil) != (test.key != "") || err == nil && access.Key != test.key {
			t.Errorf("%s of %+v: %+v, %v", test.args, test.parts, access, err)
		}
	}
	o, err := parse("--registration-auth=grpc", "--grpc-config=/a/config.yaml")
	if err != nil || o.HubKubeconfigDir != "/a" || !slices.Equal(o.bootstrapKubeconfigs(), []string{"/spoke/bootstrap/config.yaml"}) || o.hubTimeout() != 0 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parse("--registration-auth=grpc", "--grpc-bootstrap-configs=/a,/b"); err != nil || o.hubTimeout() == 0 {
		t.Errorf("%+v, %v", o, err)
	}
}

// WK-03: a work agent in a process of its own has the bootstrap credentials of registration, whatever way works come. It chooses no hub.
func TestBootstrapOfWorkAgent(t *testing.T) {
	broker := filepath.Join(t.TempDir(), "broker.yaml")
	if err := os.WriteFile(broker, []byte("brokerHost: a:1883\ntopics: {sourceEvents: sources/s/clusters/+/x, agentEvents: sources/s/clusters/+/y}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, environment, want, key string }{
		{"", "", "/spoke/bootstrap/kubeconfig", "kubeconfig"},
		{"--bootstrap-kubeconfig=/a", "", "/a", "kubeconfig"},
		{"--bootstrap-kubeconfigs=/a,/b", "", "/a,/b", "kubeconfig"},
		{"--feature-gates=MultipleHubs=false --bootstrap-kubeconfigs=/a,/b", "", "/a,/b", "kubeconfig"},
		{"", "/a,/b", "/a,/b", "kubeconfig"},
		{"--bootstrap-kubeconfigs=/c", "/a,/b", "/c", "kubeconfig"},
		{"--workload-source-driver=kube", "/a", "/a", "kubeconfig"},
		{"--workload-source-driver=grpc", "", "/spoke/bootstrap/config.yaml", "config.yaml"},
		{"--workload-source-driver=grpc --grpc-bootstrap-config=/a", "", "/a", "config.yaml"},
		{"--workload-source-driver=grpc --grpc-bootstrap-configs=/a,/b", "", "/a,/b", "config.yaml"},
		{"--workload-source-driver=grpc", "/a,/b", "/a,/b", "config.yaml"},
		{"--workload-source-driver=mqtt --workload-source-config=" + broker, "", "/spoke/bootstrap/kubeconfig", "kubeconfig"},
	} {
		t.Setenv(fleet.EnvBootstrapConfigs, test.environment)
		o, flags := NewOptions(), pflag.NewFlagSet("work", pflag.ContinueOnError)
		o.AddCommonFlags(flags)
		o.AddWorkFlags(flags)
		if err := errors.Join(flags.Parse(strings.Fields(test.args)), o.complete(), o.Validate(Parts{Work: true})); err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		registers := (&Agent{Options: o, parts: Parts{Work: true}}).newBootstrap()
		if got := strings.Join(registers.Kubeconfigs, ","); got != test.want || registers.Access.Key != test.key ||
			registers.Access.Brokered != (test.key == "config.yaml") {
			t.Errorf("%s with %q: asks by %s with %+v, want %s", test.args, test.environment, got, registers.Access, test.want)
		}
	}
}

// WK-38: works come by MQTT to a process for works alone, with the configuration of a broker.
func TestMQTTFlags(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "broker.yaml")
	if err := os.WriteFile(config, []byte("brokerHost: a:1883\ntopics: {sourceEvents: sources/s/clusters/+/x, agentEvents: sources/s/clusters/+/y}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args  string
		parts Parts
		err   string
	}{
		{"--workload-source-config=" + config, Parts{Work: true}, ""},
		{"--workload-source-config=" + config, Parts{Registration: true}, ""},
		{"--workload-source-config=" + config, Parts{Registration: true, Work: true}, "in processes of their own"},
		{"--workload-source-config=/nowhere", Parts{Work: true}, "--workload-source-config: "},
		{"", Parts{Work: true}, "takes --workload-source-config"},
	} {
		o, err := parse(strings.Fields("--workload-source-driver=mqtt " + test.args)...)
		works := false
		if err == nil {
			var access *hubaccess.Access
			if access, err = o.access(test.parts); err == nil {
				works = access.Brokered
			}
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s of %+v: %v, want %q", test.args, test.parts, err, test.err)
		}
		if err == nil && works != test.parts.Work {
			t.Errorf("%+v: works come by a broker: %t", test.parts, works)
		}
	}
}

// KL-14: annotations without the agent's prefix are left out, and said to be.
func TestAnnotationsOfOthers(t *testing.T) {
	t.Parallel()
	o, err := parse("--cluster-annotations=agent.open-cluster-management.io/a=b,example.com/c=d,agent.open-cluster-management.io.example.com/e=f")
	if err != nil {
		t.Fatal(err)
	}
	own, others := o.annotations()
	if !maps.Equal(own, map[string]string{"agent.open-cluster-management.io/a": "b"}) ||
		!slices.Equal(others, []string{"agent.open-cluster-management.io.example.com/e", "example.com/c"}) {
		t.Errorf("own %v, others %v", own, others)
	}
	var logged strings.Builder
	o.log(funcr.New(func(_, line string) { logged.WriteString(line) }, funcr.Options{}))
	if !strings.Contains(logged.String(), "example.com/c") || !strings.Contains(logged.String(), "left out") {
		t.Errorf("logged %q", logged.String())
	}
	a := &Agent{Options: o}
	if got := a.newBootstrap().Annotations; !maps.Equal(got, own) {
		t.Errorf("the ManagedCluster gets %v", got)
	}
}

// SC-23: what the gates of agents switch.
func TestFeatureGates(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		crds, raw int
		addOns    bool
	}{
		"ClusterClaim=true":           {2, 1024, true},
		"ClusterProperty=true":        {3, 1024, true},
		"AddonManagement=false":       {2, 1024, false},
		"RawFeedbackJsonString=false": {2, 0, true},
	} {
		o, err := parse("--feature-gates=" + value)
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{Options: o, parts: Parts{Registration: true, Work: true}}
		if len(a.crds()) != want.crds || a.maxJSONRaw() != want.raw || a.managesAddOns() != want.addOns {
			t.Errorf("%s: %d CRDs, %d bytes of JSON, add-ons %t", value, len(a.crds()), a.maxJSONRaw(), a.managesAddOns())
		}
	}
	if NewOptions().FeatureGates.Enabled(featuregates.ClusterProperty) {
		t.Error("ClusterProperty is on by default")
	}
}

// KL-04: a file that changes ends the agent, and does so in good order.
func TestTerminateOnFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse("--terminate-on-files="+file, "--hub-kubeconfig-dir="+filepath.Join(dir, "hub"), "--bootstrap-kubeconfig="+
		filepath.Join(dir, "none"))
	if err != nil {
		t.Fatal(err)
	}
	o.ManagedCluster = &rest.Config{Host: "https://127.0.0.1:1"}
	working := make(chan struct{}, 100)
	ctx, stop := context.WithCancel(log.IntoContext(t.Context(), funcr.New(func(string, string) {
		select {
		case working <- struct{}{}:
		default:
		}
	}, funcr.Options{})))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, Parts{Registration: true}) }()
	<-working
	if err := os.WriteFile(file, []byte("after"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
