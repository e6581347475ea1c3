package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/featuregates"
)

// registrationArgs and workArgs are what Deployments of the klusterlet operator pass in all modes.
const (
	registrationArgs = "--spoke-cluster-name=cluster1 --bootstrap-kubeconfig=/spoke/bootstrap/kubeconfig --agent-id=3f0c"
	workArgs         = "--spoke-cluster-name=cluster1 --agent-id=3f0c --workload-source-driver=kube " +
		"--workload-source-config=/spoke/hub-kubeconfig/kubeconfig"
	hosted  = " --spoke-kubeconfig=/spoke/config/kubeconfig --terminate-on-files=/spoke/config/kubeconfig"
	profile = " --tls-min-version=VersionTLS12 --tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256"
	limits  = " --kube-api-qps=60 --kube-api-burst=120"
)

// KL-02 KL-03 KL-04 KL-05: the commands of the Deployments of the klusterlet operator are ours, with the values of their flags.
func TestCommandsOfDeployments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line    string
		command string
		flags   map[string]string
	}{
		"registration": {"/registration agent " + registrationArgs, "registration", map[string]string{
			"cluster-name": "cluster1", "bootstrap-kubeconfig": "/spoke/bootstrap/kubeconfig", "agent-id": "3f0c",
			// Defaults.
			"hub-kubeconfig-dir": "/spoke/hub-kubeconfig", "hub-kubeconfig-secret": "hub-kubeconfig-secret", "leader-elect": "true",
			"disable-leader-election": "false", "listen": ":8443", "metrics-bind-address": "0", "health-probe-bind-address": "0",
			"feature-gates": "MultipleHubs=false,RawFeedbackJsonString=false", "namespace": "open-cluster-management-agent",
		}},
		"registration, one replica": {"/registration agent " + registrationArgs + " --disable-leader-election", "registration",
			map[string]string{"disable-leader-election": "true"}},
		"registration, hosted": {"/registration agent " + registrationArgs + hosted + " --disable-leader-election", "registration",
			map[string]string{"spoke-kubeconfig": "/spoke/config/kubeconfig", "terminate-on-files": "[/spoke/config/kubeconfig]"}},
		"registration, several hubs": {"/registration agent --spoke-cluster-name=cluster1 --agent-id=3f0c --feature-gates=MultipleHubs=true" +
			" --bootstrap-kubeconfigs=/spoke/hub-a/kubeconfig --bootstrap-kubeconfigs=/spoke/hub-b/kubeconfig --hub-connection-timeout-seconds=600",
			"registration", map[string]string{"bootstrap-kubeconfigs": "[/spoke/hub-a/kubeconfig,/spoke/hub-b/kubeconfig]",
				"hub-connection-timeout-seconds": "600", "feature-gates": "MultipleHubs=true,RawFeedbackJsonString=false"}},
		"registration, all options": {"/registration agent " + registrationArgs + profile + limits +
			" --feature-gates=ClusterClaim=false --feature-gates=AddonManagement=true --feature-gates=ClusterProperty=true" +
			" --feature-gates=V1beta1CSRAPICompatibility=false --spoke-external-server-urls=https://api.example.com:6443" +
			" --client-cert-expiration-seconds=3600 --cluster-annotations=agent.open-cluster-management.io/a=b,agent.open-cluster-management.io/c=d" +
			" --registration-auth=csr --addon-kubeclient-registration-auth=token --addon-token-expiration-seconds=7200" +
			" --max-custom-cluster-claims=30 --reserved-cluster-claim-suffixes=a.example.com,b.example.com" +
			" --bootstrap-kubeconfig-secret=bootstrap-hub-kubeconfig --hub-kubeconfig-secret=other --hub-kubeconfig-dir=/hub --namespace=ns" +
			" --cluster-healthcheck-period=2m --listen=0.0.0.0:8444 --v=4",
			"registration", map[string]string{
				"feature-gates":                  "ClusterClaim=false,AddonManagement=true,ClusterProperty=true",
				"spoke-external-server-urls":     "[https://api.example.com:6443]",
				"client-cert-expiration-seconds": "3600", "addon-kubeclient-registration-auth": "token", "addon-token-expiration-seconds": "7200",
				"cluster-annotations":       "[agent.open-cluster-management.io/a=b,agent.open-cluster-management.io/c=d]",
				"max-custom-cluster-claims": "30", "reserved-cluster-claim-suffixes": "[a.example.com,b.example.com]",
				"hub-kubeconfig-secret": "other", "hub-kubeconfig-dir": "/hub", "namespace": "ns", "cluster-healthcheck-period": "2m0s",
				"listen": "0.0.0.0:8444", "tls-min-version": "VersionTLS12", "v": "4",
			}},
		"work": {"/work agent " + workArgs, "work", map[string]string{
			"cluster-name": "cluster1", "agent-id": "3f0c", "workload-source-config": "/spoke/hub-kubeconfig/kubeconfig",
			// Defaults. The credential comes as a volume, which cannot be written to.
			"hub-kubeconfig-secret": "", "hub-kubeconfig-dir": "/spoke/hub-kubeconfig", "leader-elect": "true", "listen": ":8443",
			"feature-gates": "RawFeedbackJsonString=false",
		}},
		"work, hosted, one replica": {"/work agent " + workArgs + hosted + profile + limits + " --hub-kube-api-qps=70 --hub-kube-api-burst=140" +
			" --disable-leader-election --status-sync-interval=60s --appliedmanifestwork-eviction-grace-period=10m" +
			" --feature-gates=ExecutorValidatingCaches=true --feature-gates=RawFeedbackJsonString=true --workload-agent-workers=5" +
			" --max-feedback-watch=60 --max-json-raw-length=512 --cloudevents-client-id=cluster1-work-agent --cloudevents-client-codecs=manifestbundle",
			"work", map[string]string{"spoke-kubeconfig": "/spoke/config/kubeconfig", "disable-leader-election": "true",
				"appliedmanifestwork-eviction-grace-period": "10m0s", "feature-gates": "RawFeedbackJsonString=true", "workload-agent-workers": "5",
				"max-json-raw-length": "512", "status-sync-interval": "1m0s"}},
		"work, older operators": {"/work agent --spoke-cluster-name=cluster1 --hub-kubeconfig=/spoke/hub-kubeconfig/kubeconfig --agent-id=3f0c",
			"work", map[string]string{"workload-source-config": "/spoke/hub-kubeconfig/kubeconfig"}},
		"singleton": {"/registration-operator agent " + registrationArgs + " --workload-source-driver=kube" +
			" --workload-source-config=/spoke/hub-kubeconfig/kubeconfig --disable-leader-election --status-sync-interval=60s", "run",
			map[string]string{"hub-kubeconfig-secret": "hub-kubeconfig-secret", "listen": ":8443", "agent-id": "3f0c"}},
		"singleton, hosted": {"/registration-operator agent " + registrationArgs + hosted + limits + profile + " --hub-kube-api-qps=70" +
			" --hub-kube-api-burst=140 --feature-gates=RawFeedbackJsonString=true --feature-gates=ClusterProperty=true" +
			" --appliedmanifestwork-eviction-grace-period=10m --client-cert-expiration-seconds=3600", "run",
			map[string]string{"spoke-kubeconfig": "/spoke/config/kubeconfig", "feature-gates": "RawFeedbackJsonString=true,ClusterProperty=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := execute(t, test.line)
			if command.Name() != test.command {
				t.Fatalf("it runs %s, want %s", command.Name(), test.command)
			}
			for flag, want := range test.flags {
				got := command.Flags().Lookup(flag).Value.String()
				if flag == "feature-gates" {
					for _, gate := range strings.Split(want, ",") {
						if !slices.Contains(strings.Split(got, ","), gate) {
							t.Errorf("--feature-gates %s lacks %s", got, gate)
						}
					}
				} else if sorted(got) != sorted(want) {
					t.Errorf("--%s is %q, want %q", flag, got, want)
				}
			}
		})
	}
}

// execute returns the command that a command line runs. The command itself is replaced.
func execute(t *testing.T, line string) (ran *cobra.Command) {
	t.Helper()
	root, err := parseCommand(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	root.PersistentPreRunE = nil
	for _, command := range root.Commands() {
		command.RunE = func(command *cobra.Command, _ []string) error {
			ran = command
			return nil
		}
	}
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return ran
}

// sorted is the value of a flag with the members of a list in order, as those of a map have none.
func sorted(value string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Split(strings.Trim(value, "[]"), ","))), ",")
}

// Without flags, feature gates are as in Open Cluster Management, whose operators pass what differs from that. Those that it does not have
// are as usual.
func TestGatesOfDeployments(t *testing.T) {
	t.Parallel()
	want := []string{"AddonManagement=true", "ClusterClaim=true", "ClusterProperty=false", "ClusterProxy=true", "MultipleHubs=false",
		"RawFeedbackJsonString=false"}
	for _, line := range []string{"/registration agent", "/work agent", "/registration-operator agent"} {
		gates, ok := execute(t, line).Flags().Lookup("feature-gates").Value.(*featuregates.Set)
		if !ok || !slices.Equal(gates.Values(), want) {
			t.Errorf("%s: %v, want %v", line, gates.Values(), want)
		}
	}
}
