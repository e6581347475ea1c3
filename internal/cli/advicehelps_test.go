package cli_test

import (
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-04: what a command advises helps: after it, the same command succeeds, or finds something.
func TestAdviceHelps(t *testing.T) {
	t.Parallel()
	file := writeManifest(t)
	connected := func(t *testing.T) clitest.Hub {
		t.Helper()
		h := clitest.NewHubWithClusters(t)
		h.Connect("cluster1", withPod())
		return h
	}
	empty := func(t *testing.T) clitest.Hub { t.Helper(); return clitest.NewHub(t) }
	for name, test := range map[string]struct {
		hub    func(t *testing.T) clitest.Hub
		args   string
		advice string
		pairs  []string // of words of the advice, and what a user puts in for them
		then   string   // the command that the advice helps; the same one if empty
		says   string
	}{
		"no works": {hub: clitest.NewHubWithClusters, args: "get works", advice: "create work NAME -f FILE --clusters CLUSTER",
			pairs: []string{"NAME", "web", "FILE", file, "CLUSTER", "cluster1"}, says: "ManifestWorks: 1"},
		"no placements": {hub: empty, args: "get placements", advice: "create placement NAME --namespace NAMESPACE",
			pairs: []string{"NAMESPACE", "team-a", "NAME", "web"}, says: "Placements: 1"},
		"no cluster sets": {hub: empty, args: "get clustersets", advice: "create clusterset NAME", pairs: []string{"NAME", "prod"},
			says: "ManagedClusterSets: 1"},
		"no add-ons": {hub: empty, args: "get addon", advice: "addon create NAME -f FILE", pairs: []string{"NAME", "hello", "FILE", file},
			says: "hello: on no cluster"},
		"a set that is not bound": {hub: withSets, args: "create placement web --namespace team-a --clustersets prod",
			advice: "clusterset bind prod --namespace team-a", says: "has been created"},
		"a set that is bound": {hub: func(t *testing.T) clitest.Hub {
			t.Helper()
			h := withSets(t)
			h.Run(t, "", "clusterset", "bind", "prod", "--namespace", "team-a").Succeeds(t)
			return h
		}, args: "delete clusterset prod", advice: "clusterset unbind prod --namespace team-a", says: "Clusterset prod is deleted"},
		"clusters of a set that is deleted": {hub: withSets, args: "delete clusterset prod",
			advice: "clusterset set default --clusters cluster1", then: "get clustersets default", says: "Clusters: cluster1"},
		"a resource without clusters": {hub: connected, args: "get pods", advice: "get pods --clusters CLUSTER,...",
			pairs: []string{"CLUSTER,...", "cluster1"}, then: "get pods --clusters cluster1", says: "web-0"},
		"clusters without a resource": {hub: connected, args: "get --clusters cluster1", advice: "get pods --clusters CLUSTER,...",
			pairs: []string{"CLUSTER,...", "cluster1"}, then: "get pods --clusters cluster1", says: "web-0"},
		"a cluster that is not accepted": {hub: withPending, args: "create work web --clusters pending -f " + file,
			advice: "accept --clusters pending", says: "create work web in cluster pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := test.hub(t)
			if test.then == "" {
				test.then = test.args
			}
			before := h.Run(t, "", strings.Fields(test.args)...)
			h.Follow(t, before, test.advice, test.pairs...).Succeeds(t)
			after := h.Run(t, "", strings.Fields(test.then)...)
			after.Succeeds(t, test.says)
			if strings.Contains(after.Out+after.ErrOut, "capstan "+test.advice) {
				t.Errorf("the advice is given again: %s%s", after.Out, after.ErrOut)
			}
		})
	}
}

// withSets is a hub with the set prod, in which cluster1 is, and the default one.
func withSets(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutSet(t, "default")
	h.PutSet(t, "prod")
	return h
}

// withPending is a hub with the cluster pending, which has requested to join.
func withPending(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHub(t)
	h.Put(t, clitest.ClustersPath+"/pending", clitest.Cluster("pending", nil))
	h.PutRequest(t, fakehub.JoinRequest(t, "pending-x", "pending", "a1"))
	return h
}

// CA-04: the same where the rest of what the command does is up to clusters, which do not answer here.
func TestAdviceHelpsToReachClusters(t *testing.T) {
	t.Parallel()
	for args, test := range map[string]struct {
		advice string
		pairs  []string
	}{
		"proxy health":                {advice: "addon enable --names cluster-proxy --clusters idle"},
		"kubeconfig idle":             {advice: "addon enable --names cluster-proxy --clusters idle"},
		"get pods --clusterset empty": {"clusterset set empty --clusters CLUSTER,...", []string{"CLUSTER,...", "cluster1"}},
	} {
		h := clitest.NewHubWithClusters(t)
		h.PutCatalogue(t, "cluster-proxy", nil)
		h.PutSet(t, "empty")
		h.Follow(t, h.Run(t, "", strings.Fields(args)...), test.advice, test.pairs...).Succeeds(t)
		if after := h.Run(t, "", strings.Fields(args)...); strings.Contains(after.Out+after.ErrOut, "capstan "+test.advice) {
			t.Errorf("the advice is given again: %s%s", after.Out, after.ErrOut)
		}
	}
}
