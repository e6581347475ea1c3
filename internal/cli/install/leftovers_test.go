package install_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"a version in between, of an agent": {func(t *testing.T) clitest.Hub {
			h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
			putOperator(t, h, "klusterlet", "other/capstan-agent:v0.1.0", nil)
			return h
		}, joinCommand(t, newHubToJoin(t), strings.Fields(overrides)...), "upgrade klusterlet --force",
			[]string{"--force", "--force " + overrides}},
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

// CA-11, CA-15, CA-41: what another tool has installed is left alone, and replaced by the same command with --force, as the error advises.
func TestForceTakesOver(t *testing.T) {
	t.Parallel()
	helm := metav1.ObjectMeta{Annotations: map[string]string{"meta.helm.sh/release-name": "ocm"}}
	olm := metav1.ObjectMeta{Labels: map[string]string{"olm.owner": "ocm.v1"}}
	upgrade := []string{"upgrade", "clustermanager", "--bundle-version-overrides", inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
	for name, test := range map[string]struct {
		operator string
		metadata metav1.ObjectMeta
		args     []string
		says     string
	}{
		"init":    {"cluster-manager", helm, []string{"init"}, "is kept by Helm (release ocm"},
		"join":    {"klusterlet", helm, joinCommand(t, newHubToJoin(t)), "is kept by Helm (release ocm"},
		"upgrade": {"cluster-manager", olm, upgrade, "is kept by the Operator Lifecycle Manager (ocm.v1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newClusterForHub(t)
			const others = "other/x:v0.2.0"
			putOperator(t, h, test.operator, others, test.metadata.Annotations)
			put(t, h, map[string]string{managersPath + "cluster-manager": "ClusterManager"}, nil)
			var deployment, after appsv1.Deployment
			h.Get(t, clitest.OperatorsPath+test.operator, &deployment)
			deployment.Labels = test.metadata.Labels
			h.Put(t, clitest.OperatorsPath+test.operator, &deployment)
			h.Run(t, "", test.args...).Fails(t, test.operator+" "+test.says, "take it over with --force")
			if n := changes(h); n != 0 {
				t.Errorf("%d changes were made", n)
			}
			h.Run(t, "", append(slices.Clone(test.args), "--force")...).Succeeds(t)
			h.Get(t, clitest.OperatorsPath+test.operator, &after)
			if image := after.Spec.Template.Spec.Containers[0].Image; image == others {
				t.Errorf("the operator is still %s", image)
			}
		})
	}
}
