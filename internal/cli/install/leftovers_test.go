package install_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// CA-10, CA-17: what is being deleted, and waits for an operator that is gone, is not installed anew: it would be deleted then. The command
// that the error names takes it away, and installing works after that.
func TestInstallOverWhatIsBeingDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		path, kind, content string
		install             func(t *testing.T) []string
		remove              []string
		says                string
	}{
		"a hub": {managersPath + "cluster-manager", "ClusterManager",
			`{"metadata":{"uid":"u1","deletionTimestamp":"2026-01-01T00:00:00Z",
				"finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]}}`,
			func(*testing.T) []string { return []string{"init"} },
			[]string{"clean", "--force", "--name", "cluster-manager"}, "capstan clean --force --name cluster-manager"},
		"an agent": {klusterletsPath + "klusterlet", "Klusterlet",
			`{"metadata":{"uid":"u1","deletionTimestamp":"2026-01-01T00:00:00Z",
				"finalizers":["operator.open-cluster-management.io/klusterlet-cleanup"]},"spec":{"clusterName":"c1"}}`,
			func(t *testing.T) []string { return joinCommand(t, newHubToJoin(t)) },
			[]string{"unjoin", "--force", "--cluster-name", "c1"}, "capstan unjoin --force --cluster-name c1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClusterForHub(t)
			serve(h, "/apis/work.open-cluster-management.io/v1", "appliedmanifestworks AppliedManifestWork")
			put(t, h, map[string]string{test.path: test.kind}, map[string]string{test.path: test.content})
			before := h.Paths()
			args := test.install(t)
			h.Run(t, "", args...).Fails(t, test.kind, "is being deleted", "operator.open-cluster-management.io/", test.says)
			if !slices.Equal(h.Paths(), before) {
				t.Errorf("it leaves %v", h.Paths())
			}
			h.Run(t, "", test.remove...).Succeeds(t)
			h.Run(t, "", args...).Succeeds(t)
		})
	}
}

// CA-15, CA-41: a command that refuses to install over what is there says which one makes way, and then installs.
func TestAdviceHelpsToInstall(t *testing.T) {
	t.Parallel()
	overrides := "--bundle-version-overrides " + inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)
	for name, test := range map[string]struct {
		world  func(t *testing.T) clitest.Hub
		args   []string
		advice string
		pairs  []string
	}{
		"a version in between": {func(t *testing.T) clitest.Hub {
			h := newClusterForHub(t)
			putOperator(t, h, "cluster-manager", "other/capstan-hub:v0.1.0", nil)
			put(t, h, map[string]string{managersPath + "cluster-manager": "ClusterManager"}, nil)
			return h
		}, append([]string{"init"}, strings.Fields(overrides)...), "upgrade clustermanager --force", []string{"--force", "--force " + overrides}},
		"another cluster": {func(t *testing.T) clitest.Hub {
			return withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"other"}`)
		}, joinCommand(t, newHubToJoin(t)), "unjoin --cluster-name other", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := test.world(t)
			refused := h.Run(t, "", test.args...)
			refused.Fails(t)
			h.Follow(t, refused, test.advice, test.pairs...).Succeeds(t)
			h.Run(t, "", test.args...).Succeeds(t)
		})
	}
}
