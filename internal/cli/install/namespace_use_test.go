package install_test

import (
	"slices"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// CA-15, CA-16: an agent is not installed in a namespace that is for something else, where its operator would refuse it, but one that runs
// there already is joined again.
func TestJoinLeavesANamespaceWithAnotherUse(t *testing.T) {
	t.Parallel()
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	hosted := []string{"--mode", "hosted", "--managed-cluster-kubeconfig", managed.File}
	const ofCluster = `{"metadata":{"labels":{"open-cluster-management.io/cluster-name":"used"}}}`
	const ofManager = `{"metadata":{"labels":{"open-cluster-management.io/created-by-clustermanager":"used"}}}`
	const name, namespace = "Name another klusterlet.name in the file of", "Name another klusterlet.namespace in the file of"
	for title, test := range map[string]struct {
		namespace string // the content of the namespace
		secret    bool   // with the kubeconfig of a hub
		runs      string // the spec of Klusterlet used, which has joined already; empty for none
		values    string
		flags     []string
		use, how  string // empty if nothing is refused
	}{
		"of a managed cluster": {namespace: ofCluster, values: "namespace: used", use: "it is that of ManagedCluster used", how: namespace},
		"hosted, of a managed cluster": {namespace: ofCluster, values: "name: used, namespace: of-agent", flags: hosted,
			use: "it is that of ManagedCluster used", how: name},
		"of a ClusterManager": {namespace: ofManager, values: "namespace: used", use: "it is that of ClusterManager used", how: namespace},
		"hosted, of a hosted ClusterManager": {secret: true, values: "name: used, namespace: of-agent", flags: hosted,
			use: "it has Secret external-hub-kubeconfig, of a hosted ClusterManager", how: name},
		"hosted, with such a namespace on the managed cluster": {namespace: ofCluster, values: "name: other, namespace: used", flags: hosted},
		"of nobody":         {values: "namespace: used"},
		"of the same agent": {namespace: ofCluster, runs: `{"clusterName":"c1","namespace":"used"}`, values: "name: used, namespace: used"},
		"of the same agent, which ran elsewhere": {namespace: ofCluster, runs: `{"clusterName":"c1","namespace":"former"}`,
			values: "name: used, namespace: used", use: "it is that of ManagedCluster used", how: namespace},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			path := namespacesPath + "used"
			put(t, h, map[string]string{path: "Namespace"}, map[string]string{path: test.namespace})
			if test.secret {
				put(t, h, map[string]string{path + "/secrets/external-hub-kubeconfig": "Secret"}, nil)
			}
			if test.runs != "" {
				put(t, h, map[string]string{klusterletsPath + "used": "Klusterlet"},
					map[string]string{klusterletsPath + "used": `{"spec":` + test.runs + `}`})
			}
			before := h.Paths()
			join := joinCommand(t, hub, append([]string{"--klusterlet-values-file",
				inDir(t)("values.yaml", "klusterlet: {"+test.values+"}")}, test.flags...)...)
			got := h.Run(t, "", join...)
			if test.use == "" {
				got.Succeeds(t)
				return
			}
			got.Fails(t, "the namespace used, which has another use: "+test.use+". "+test.how)
			if n := changes(h); n != 0 || !slices.Equal(h.Paths(), before) {
				t.Errorf("%d changes were made; there are %v", n, h.Paths())
			}
			h.Run(t, "", append(join, "--force")...).Succeeds(t)
		})
	}
}
