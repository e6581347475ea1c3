package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/featuregates"
)

// What the Deployments of the cluster manager operator pass besides.
const (
	hostedArgs  = " --kubeconfig=/var/run/secrets/hub/kubeconfig --disable-leader-election"
	profileArgs = " --tls-min-version=VersionTLS13 --tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256"
)

// CM-03 CM-05 CM-09 CM-10 CM-12 CM-13 CM-14 CM-17 CM-27 CM-30 CM-31: the commands of the Deployments of the cluster manager operator are
// ours, with the values of their flags.
func TestCommandsOfDeployments(t *testing.T) {
	t.Parallel()
	// What a command of controllers has without flags.
	defaults := func(group string) map[string]string {
		return map[string]string{"controllers": "[" + group + "]", "listen": ":8443", "metrics-bind-address": "0",
			"health-probe-bind-address": "0", "placement-debug-bind-address": "0", "leader-elect": "true", "disable-leader-election": "false",
			"kubeconfig": "", "leader-election-namespace": "kube-system"}
	}
	hosted := map[string]string{"kubeconfig": "/var/run/secrets/hub/kubeconfig", "disable-leader-election": "true", "listen": ":8443"}
	webhooks := map[string]string{"cert-dir": "/tmp/k8s-webhook-server/serving-certs", "port": "9443", "metrics-bind-address": ":8080",
		"health-probe-bind-address": ":8000"}
	for name, test := range map[string]struct {
		line    string
		command string
		flags   map[string]string
	}{
		"registration":         {"/registration controller", "controllers", defaults("registration")},
		"registration, hosted": {"/registration controller" + hostedArgs, "controllers", hosted},
		"registration, all options": {"/registration controller --feature-gates=DefaultClusterSet=true --feature-gates=ManagedClusterAutoApproval=true" +
			" --feature-gates=ResourceCleanup=false --feature-gates=ClusterProfile=true --feature-gates=ClusterImporter=false" +
			" --feature-gates=V1beta1CSRAPICompatibility=false --cluster-auto-approval-users=a,b --auto-approved-csr-users=c" +
			" --enabled-registration-drivers=csr --auto-approved-grpc-users=d --labels=team=a,stage=b" +
			" --grpc-ca-file=/ca --grpc-key-file=/key --grpc-signing-duration=720h --gc-resource-list=work.open-cluster-management.io/v1/manifestworks" +
			" --kube-api-qps=60 --kube-api-burst=120 --namespace=hub --listen=0.0.0.0:8444 -v=2" + profileArgs,
			"controllers", map[string]string{"cluster-auto-approval-users": "[a,b]", "auto-approved-csr-users": "[c]",
				"labels": "[stage=b,team=a]", "leader-election-namespace": "hub", "listen": "0.0.0.0:8444", "tls-min-version": "VersionTLS13",
				"v": "2", "gc-resource-list": "[work.open-cluster-management.io/v1/manifestworks]"}},
		"work":         {"/work manager --work-driver=kube --feature-gates=ManifestWorkReplicaSet=true", "controllers", defaults("work")},
		"work, hosted": {"/work manager --feature-gates=ManifestWorkReplicaSet=true" + hostedArgs, "controllers", hosted},
		"work, all options": {"/work manager --work-driver=kube --work-driver-config=/var/run/secrets/work/config.yaml" +
			" --cloudevents-client-id=work-controller-pod-0 --feature-gates=CleanUpCompletedManifestWork=true" +
			" --feature-gates=CloudEventsDrivers=false --disable-leader-election" + profileArgs, "controllers",
			map[string]string{"controllers": "[work]", "disable-leader-election": "true"}},
		"placement": {"/placement controller", "controllers", defaults("placement")},
		"placement, all options": {"/placement controller --feature-gates=PlacementDebugServer=true --feature-gates=SIGPlacementDecision=false" +
			hostedArgs + profileArgs, "controllers", hosted},
		"explanations": {"/placement debug --feature-gates=PlacementDebugServer=true --kubeconfig=/var/run/secrets/hub/kubeconfig" +
			" --secure-port=9543 --tls-cert-file=/certs/tls.crt --tls-private-key-file=/certs/tls.key --kube-api-qps=50 --kube-api-burst=100" +
			" --disable-leader-election" + profileArgs, "placement-debug", map[string]string{"secure-port": "9543",
			"kubeconfig": "/var/run/secrets/hub/kubeconfig", "tls-cert-file": "/certs/tls.crt", "tls-private-key-file": "/certs/tls.key",
			"tls-min-version": "VersionTLS13"}},
		"explanations, by default": {"/placement debug", "placement-debug", map[string]string{"secure-port": "9443"}},
		"add-ons":                  {"/addon manager", "controllers", defaults("addon")},
		"add-ons, hosted":          {"/addon manager --feature-gates=AddonManagement=true" + hostedArgs + profileArgs, "controllers", hosted},
		"webhooks of registration": {"/registration webhook-server --port=9443 --feature-gates=DefaultClusterSet=true" +
			" --feature-gates=ManagedClusterAutoApproval=true", "webhooks", webhooks},
		"webhooks of registration, other ports": {"/registration webhook-server --port=9543 --health-probe-bind-address=:8100" +
			" --metrics-bind-address=:8180" + profileArgs, "webhooks",
			map[string]string{"port": "9543", "health-probe-bind-address": ":8100", "metrics-bind-address": ":8180"}},
		"webhooks of registration, neither health nor metrics": {"/registration webhook-server --port=9443 --health-probe-bind-address=0" +
			" --metrics-bind-address=0", "webhooks", map[string]string{"health-probe-bind-address": "0", "metrics-bind-address": "0"}},
		"webhooks of works": {"/work webhook-server --port=9443 --feature-gates=NilExecutorValidating=true" +
			" --feature-gates=ManifestWorkReplicaSet=true", "webhooks", webhooks},
		"webhooks of works, hosted": {"/work webhook-server --port=9443 --manifestLimit=512000 --kubeconfig=/var/run/secrets/hub/kubeconfig",
			"webhooks", map[string]string{"kubeconfig": "/var/run/secrets/hub/kubeconfig", "manifestLimit": "512000"}},
		"webhooks of add-ons": {"/addon webhook-server --port=9443", "webhooks", webhooks},
		"webhooks of add-ons, elsewhere": {"/addon webhook-server --certdir=/certs --kube-api-qps=50 --kube-api-burst=100", "webhooks",
			map[string]string{"cert-dir": "/certs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := execute(t, test.line)
			if command.Name() != test.command {
				t.Fatalf("it runs %s, want %s", command.Name(), test.command)
			}
			for flag, want := range test.flags {
				if got := command.Flags().Lookup(flag).Value.String(); sorted(got) != sorted(want) {
					t.Errorf("--%s is %q, want %q", flag, got, want)
				}
			}
		})
	}
}

// MS-09: the command of the manager of managed service accounts, with its ports and gates.
func TestManagerOfServiceAccounts(t *testing.T) {
	t.Parallel()
	command := execute(t, "/msa manager --leader-elect=true --agent-image-name=quay.io/open-cluster-management/managed-serviceaccount:v1"+
		" --agent-install-all=true --agent-image-pull-secret=pull --feature-gates=EphemeralIdentity=true --feature-gates=ClusterProfile=false")
	if command.Name() != "managed-serviceaccount" {
		t.Fatalf("it runs %s", command.Name())
	}
	for flag, want := range map[string]string{"metrics-bind-address": ":38080", "health-probe-bind-address": ":38081",
		"leader-elect": "true"} {
		if got := command.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
	for value, want := range map[string]bool{"": false, "EphemeralIdentity=true": true} {
		flags := serviceAccountsFlags{gates: featuregates.ServiceAccounts()}
		if err := flags.gates.Set(value); value != "" && err != nil {
			t.Fatal(err)
		}
		o, err := flags.options()
		if err != nil || o.Gates.Enabled(featuregates.ManagedServiceAccountEphemeralIdentity) != want {
			t.Errorf("with %q, the gate of the hub is %t, %v", value, !want, err)
		}
	}
}

// Without flags, feature gates are as in Open Cluster Management, whose operators pass what differs from that.
func TestGatesOfDeployments(t *testing.T) {
	t.Parallel()
	want := []string{"AddonManagement=true", "CleanUpCompletedManifestWork=false", "ClientIdentityPenetration=false",
		"ClusterImporter=false", "ClusterProfile=false", "DefaultClusterSet=true", "GitOpsCluster=false",
		"ManagedClusterAutoApproval=false", "ManagedServiceAccountEphemeralIdentity=false",
		"ManifestWorkReplicaSet=false", "NilExecutorValidating=false", "PlacementDebugServer=false",
		"ResourceCleanup=true", "SIGPlacementDecision=false"}
	for _, line := range []string{"/registration controller", "/work manager", "/placement controller", "/addon manager",
		"/registration webhook-server", "/work webhook-server", "/addon webhook-server"} {
		gates, ok := execute(t, line).Flags().Lookup("feature-gates").Value.(*featuregates.Set)
		if !ok || !slices.Equal(gates.Values(), want) {
			t.Errorf("%s: %v, want %v", line, gates.Values(), want)
		}
	}
}

// execute returns the command that a command line runs. The command itself is replaced.
func execute(t *testing.T, line string) (ran *cobra.Command) {
	t.Helper()
	root, err := parseCommand(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
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
