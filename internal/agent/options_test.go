package agent

import (
	"context"
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

	"github.com/capstan-io/capstan/internal/featuregates"
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
	return o, o.Validate()
}

// WK-18 WK-19 WK-38 RG-54 KL-14 KL-16 KL-13 KL-22: command lines of other agents of the contract are accepted, and what changes nothing is
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
		"--bootstrap-kubeconfig-secret", "--status-sync-interval", "--workload-source-driver", "--kube-api-qps", "--hub-kube-api-burst",
		"--max-feedback-watch",
		"--cloudevents-client-id", "--registration-auth", "ExecutorValidatingCaches", "V1beta1CSRAPICompatibility",
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

func TestFlagsRefused(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--workload-source-driver=mqtt":                                    `"mqtt" is not in this version; use kube`,
		"--registration-auth=awsirsa":                                      `"awsirsa" is not in this version; use csr`,
		"--workload-source-config=/etc/config.yaml":                        "it must be a file kubeconfig",
		"--hub-kubeconfig-dir=/a --workload-source-config=/b/kubeconfig":   "which is not in --hub-kubeconfig-dir /a",
		"--feature-gates=Nonsense=true":                                    `"Nonsense" is no feature gate here; use some of AddonManagement, ClusterClaim, `,
		"--feature-gates=MultipleHubs=false --bootstrap-kubeconfigs=/a,/b": "names 2 hubs",
		"--status-sync-interval=soon":                                      "--status-sync-interval",
	} {
		if _, err := parse(strings.Fields(arg)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", arg, err, want)
		}
	}
}

// WK-38: the work agent may be told where the hub kubeconfig is in two ways.
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
		if len(a.crds()) != want.crds || a.maxJSONRaw() != want.raw || a.wantsAddOns() != want.addOns {
			t.Errorf("%s: %d CRDs, %d bytes of JSON, add-ons %t", value, len(a.crds()), a.maxJSONRaw(), a.wantsAddOns())
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
