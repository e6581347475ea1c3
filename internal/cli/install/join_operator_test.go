package install_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// CA-16: the values of the file are also for the operator that a hosted agent brings with it, but for what is of the agent.
func TestJoinHostedInstallsOperator(t *testing.T) {
	t.Parallel()
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	const deployment = "Deployment/klusterlet.spec."
	for name, test := range map[string]struct {
		values string
		want   map[string]string
	}{
		"the operator": {"replicaCount: 2\nhostAliases: [{ip: 192.0.2.1, hostnames: [hub]}]\nimages: {registry: r.example.com, tag: v9}\n",
			map[string]string{
				deployment + "replicas":                         "2",
				deployment + "template.spec.hostAliases":        `[{"hostnames":["hub"],"ip":"192.0.2.1"}]`,
				deployment + "template.spec.containers.0.image": "r.example.com/capstan-agent:v9",
			}},
		"the agent": {"klusterlet: {name: second, namespace: of-second, mode: SingletonHosted}\n" +
			"multiHubBootstrapHubKubeConfigs: [{name: other, kubeConfig: x}]\n",
			map[string]string{
				"Klusterlet/second.spec.deployOption.mode":   "SingletonHosted",
				"Secret/other.metadata.namespace":            "second",
				"Klusterlet/klusterlet":                      "null",
				"Namespace/open-cluster-management-agent":    "null",
				"Deployment/klusterlet.metadata.name":        "klusterlet",
				"Secret/bootstrap-hub-kubeconfig.kind":       "Secret",
				"Secret/external-managed-kubeconfig.kind":    "Secret",
				"ServiceAccount/klusterlet.metadata.name":    "klusterlet",
				"Namespace/second.metadata.name":             "second",
				"Namespace/open-cluster-management.kind":     "Namespace",
				"ClusterRole/klusterlet.kind":                "ClusterRole",
				"ClusterRoleBinding/klusterlet.roleRef.name": "klusterlet",
			}},
		"no operator": {"noOperator: true\n", map[string]string{"Deployment/klusterlet": "null"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newCluster(t).Run(t, "", joinCommand(t, hub, "--dry-run", "--mode", "hosted", "--managed-cluster-kubeconfig", managed.File,
				"--klusterlet-values-file", inDir(t)("values.yaml", test.values))...)
			got.Succeeds(t)
			wantValues(t, objectsOf(t, got), test.want)
		})
	}
}

// CA-16: join says which values are of no effect because the operator runs already, and how they are applied.
func TestJoinSaysThatTheOperatorStays(t *testing.T) {
	t.Parallel()
	const upgrade = "upgrade klusterlet --values-file FILE"
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	hosted := []string{"--mode", "hosted", "--managed-cluster-kubeconfig", managed.File}
	helms := map[string]string{"meta.helm.sh/release-name": "ocm", "meta.helm.sh/release-namespace": "of-ocm"}
	for name, test := range map[string]struct {
		values  string
		flags   []string
		stopped bool
		helms   bool
		says    string // empty for nothing
	}{
		"nothing is given": {},
		"a flag":           {flags: []string{"--enable-sync-labels"}, says: "enableSyncLabels. "},
		"values of the operator": {values: "{replicaCount: 2, images: {imagePullPolicy: Always}}",
			says: "replicaCount, images.imagePullPolicy. "},
		"a hosted agent":       {values: "{replicaCount: 2}", flags: hosted, says: "replicaCount. "},
		"values for the agent": {values: "{images: {registry: r.example.com}, klusterlet: {nodePlacement: {nodeSelector: {a: b}}}}"},
		"it does not run":      {values: "{replicaCount: 2}", stopped: true},
		"it is Helm's": {values: "{replicaCount: 2}", helms: true,
			says: "replicaCount. It is for Helm (release ocm in namespace of-ocm) to change."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
			var operator appsv1.Deployment
			h.Get(t, clitest.OperatorsPath+"klusterlet", &operator)
			if !test.stopped {
				operator.Status.AvailableReplicas = 1
			}
			if test.helms {
				operator.Annotations = helms
			}
			h.Put(t, clitest.OperatorsPath+"klusterlet", &operator)
			file := inDir(t)("values.yaml", test.values)
			got := h.Run(t, "", joinCommand(t, hub, slices.Concat(test.flags, []string{"--klusterlet-values-file", file})...)...)
			got.Succeeds(t)
			const stays = "The operator runs already, and stays as it is, whatever these values of its chart say: "
			if strings.Contains(got.ErrOut, stays+test.says) != (test.says != "") || strings.Contains(got.ErrOut, stays) != (test.says != "") {
				t.Errorf("it says %s", got.ErrOut)
			}
			if strings.Contains(got.ErrOut, "capstan "+upgrade) != (test.says != "" && !test.helms) {
				t.Errorf("it says %s", got.ErrOut)
			}
			if !strings.HasPrefix(test.says, "replicaCount") || test.helms {
				return
			}
			h.Follow(t, got, upgrade, "FILE", file).Succeeds(t)
			h.Get(t, clitest.OperatorsPath+"klusterlet", &operator)
			if operator.Spec.Replicas == nil || *operator.Spec.Replicas != 2 {
				t.Errorf("the operator has %v replicas", operator.Spec.Replicas)
			}
		})
	}
}
