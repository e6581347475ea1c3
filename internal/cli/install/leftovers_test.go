package install_test

import (
	"slices"
	"testing"
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
