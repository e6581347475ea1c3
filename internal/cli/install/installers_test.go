package install_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// keeper is a tool that keeps what it has installed.
type keeper struct {
	labels, annotations map[string]string // that it puts on that
	name, uninstall     string            // in messages
	restores            bool
}

var keepers = map[string]keeper{
	"Helm": {
		annotations: map[string]string{releaseName: "ocm", releaseNamespace: "open-cluster-management"},
		name:        "Helm (release ocm in namespace open-cluster-management)",
		uninstall:   `run "helm uninstall ocm --namespace open-cluster-management"`,
	},
	"the Operator Lifecycle Manager": {
		labels: map[string]string{"olm.owner": "ocm.v1"}, name: "the Operator Lifecycle Manager (ocm.v1)",
		uninstall: "delete its Subscription and ClusterServiceVersion ocm.v1", restores: true,
	},
	"Argo CD": {
		annotations: map[string]string{"argocd.argoproj.io/tracking-id": "fleet:apps/Deployment:open-cluster-management/klusterlet"},
		name:        "Argo CD (Application fleet)", uninstall: "take it out of what Application fleet applies", restores: true,
	},
	"Flux": {
		labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
		name:   "Flux (Kustomization flux-system/fleet)", restores: true,
		uninstall: "take it out of what Kustomization flux-system/fleet applies",
	},
}

// marks puts the marks of the tool on the object at a path.
func (k keeper) marks(t *testing.T, h clitest.Hub, path string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": k.labels, "annotations": k.annotations}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Client(t).Raw().Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// removals are the commands that remove what another tool may keep, each with a cluster, the operator there, and its custom resource.
var removals = map[string]struct {
	world        func(t *testing.T) clitest.Hub
	args         []string
	operator     string
	custom, path string
	rest         string // what is removed with --purge-operator=false
}{
	"unjoin": {func(t *testing.T) clitest.Hub {
		t.Helper()
		return withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
	}, []string{"unjoin", "--cluster-name", "c1"}, "klusterlet", "Klusterlet klusterlet", klusterletsPath + "klusterlet", "the agent"},
	"clean": {withManager, []string{"clean"}, "cluster-manager", "ClusterManager cluster-manager",
		managersPath + "cluster-manager", "the hub"},
}

// CA-19, CA-20: an operator that another tool keeps is not removed before that lets go of it, unless --force insists. The error says how it
// is uninstalled, and how all else is removed.
func TestRemovalOfAKeptOperator(t *testing.T) {
	t.Parallel()
	for command, removal := range removals {
		for tool, by := range keepers {
			t.Run(command+" over "+tool, func(t *testing.T) {
				t.Parallel()
				operator := clitest.OperatorsPath + removal.operator
				world := func() clitest.Hub {
					h := removal.world(t)
					by.marks(t, h, operator)
					putRecords(t, h, "ocm", "open-cluster-management/secrets/sh.helm.release.v1.ocm.v1")
					return h
				}
				h := world()
				before, made := h.Paths(), changes(h)
				for _, flags := range [][]string{nil, {"--dry-run"}, {"--wait"}} {
					h.Run(t, "", append(slices.Clone(removal.args), flags...)...).Fails(t,
						"Deployment open-cluster-management/"+removal.operator+" is kept by "+by.name, by.uninstall,
						"Remove only "+removal.rest+" with --purge-operator=false", "--force")
				}
				if !slices.Equal(h.Paths(), before) || changes(h) != made {
					t.Errorf("%d changes were made; left are %v", changes(h)-made, h.Paths())
				}
				h.Run(t, "", append(slices.Clone(removal.args), "--purge-operator=false")...).Succeeds(t)
				if h.Has(removal.path) || !h.Has(operator) {
					t.Errorf("without the operator, it leaves %v", h.Paths())
				}

				h = world()
				forced := h.Run(t, "", append(slices.Clone(removal.args), "--force")...)
				forced.Succeeds(t)
				if h.Has(operator) {
					t.Error("the operator is left")
				}
				says := "\"helm upgrade\" would install again what was removed. The record is in namespace open-cluster-management"
				if by.restores {
					says = "is kept by " + by.name + ", which makes it again. To prevent that, " + by.uninstall
				}
				if !strings.Contains(forced.ErrOut, says) || by.restores == strings.Contains(forced.ErrOut, "Helm still has") {
					t.Errorf("%q is missing in:\n%s", says, forced.ErrOut)
				}
			})
		}
	}
}

// CA-19, CA-20: what another tool makes again by itself is removed with a warning that names the tool.
func TestRemovalOfWhatComesBack(t *testing.T) {
	t.Parallel()
	for command, removal := range removals {
		for tool, by := range keepers {
			t.Run(command+" over "+tool, func(t *testing.T) {
				t.Parallel()
				h := removal.world(t)
				by.marks(t, h, removal.path)
				got := h.Run(t, "", removal.args...)
				got.Succeeds(t)
				if strings.Contains(got.ErrOut, removal.custom+" is kept by "+by.name+", which makes it again") != by.restores {
					t.Errorf("it says\n%s", got.ErrOut)
				}
			})
		}
	}
}

// CA-19: an operator without any Klusterlet goes as the tool that keeps it takes it away, unless --force insists.
func TestUnjoinNamesWhoKeepsAnIdleOperator(t *testing.T) {
	t.Parallel()
	h, by := newCluster(t), keepers["Helm"]
	putOperator(t, h, "klusterlet", "r/x:v0.3.0", by.annotations)
	unjoin := []string{"unjoin", "--cluster-name", "c1"}
	h.Run(t, "", unjoin...).Fails(t, "There is no Klusterlet at all", "it is kept by "+by.name+": "+by.uninstall+", or insist with --force")
	h.Run(t, "", append(slices.Clone(unjoin), "--force")...).Succeeds(t)
	if left := h.Paths(); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

// CA-15: a Klusterlet that another tool keeps is left alone, also where the operator runs and stays as it is, unless --force takes it over.
func TestJoinOverAKeptKlusterlet(t *testing.T) {
	t.Parallel()
	hub := newHubToJoin(t)
	for tool, by := range keepers {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			h, join := withAgentOfHelm(t), joinCommand(t, hub)
			by.marks(t, h, partsOfAgent[0])
			made := changes(h)
			takeOver := "or take it over with --force"
			if by.restores {
				takeOver += " once that does not keep it any more"
			}
			h.Run(t, "", join...).Fails(t, "Klusterlet klusterlet is kept by "+by.name+": change it with that, "+takeOver)
			if changes(h) != made {
				t.Errorf("%d changes were made", changes(h)-made)
			}
			h.Run(t, "", append(slices.Clone(join), "--force")...).Succeeds(t)
			h.Run(t, "", join...).Succeeds(t)
		})
	}
}

// CA-11: what --force has taken over from a tool says so no more, so that the next run needs none. What the tool still keeps gets its marks
// from it again.
func TestForceTakesAHubFromTools(t *testing.T) {
	t.Parallel()
	const manager = managersPath + "cluster-manager"
	for tool, by := range keepers {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			h := newClusterForHub(t)
			h.Run(t, "", "init").Succeeds(t)
			for _, path := range []string{clitest.OperatorsPath + "cluster-manager", manager} {
				by.marks(t, h, path)
			}
			h.Run(t, "", "init").Fails(t, "is kept by "+by.name)
			h.Run(t, "", "init", "--force").Succeeds(t)
			for _, path := range []string{clitest.OperatorsPath + "cluster-manager", manager} {
				found := metadataAt(t, h, path)
				for mark := range by.labels {
					if _, has := found.Labels[mark]; has {
						t.Errorf("%s has the label %s", path, mark)
					}
				}
				for mark := range by.annotations {
					if _, has := found.Annotations[mark]; has {
						t.Errorf("%s has the annotation %s", path, mark)
					}
				}
			}
			h.Run(t, "", "init").Succeeds(t)
		})
	}
}

// CA-11, CA-41: a custom resource that another tool keeps is left alone, also where the operator is nobody's, unless --force takes it over.
func TestInstallOverAKeptCustomResource(t *testing.T) {
	t.Parallel()
	for command, test := range map[string]struct {
		world        func(t *testing.T) clitest.Hub
		custom, path string
		args         []string
	}{
		"init": {newHubByInit, "ClusterManager cluster-manager", managersPath + "cluster-manager", []string{"init"}},
		"upgrade clustermanager": {newHubByInit, "ClusterManager cluster-manager", managersPath + "cluster-manager",
			[]string{"upgrade", "clustermanager"}},
		"upgrade klusterlet": {func(t *testing.T) clitest.Hub {
			t.Helper()
			h := newCluster(t)
			h.Run(t, "", joinCommand(t, newHubToJoin(t))...).Succeeds(t)
			return h
		}, "Klusterlet klusterlet", klusterletsPath + "klusterlet", []string{"upgrade", "klusterlet"}},
	} {
		for tool, by := range keepers {
			t.Run(command+" over "+tool, func(t *testing.T) {
				t.Parallel()
				h := test.world(t)
				by.marks(t, h, test.path)
				made := changes(h)
				h.Run(t, "", test.args...).Fails(t, test.custom+" is kept by "+by.name+": change it with that, or take it over with --force")
				if changes(h) != made {
					t.Errorf("%d changes were made", changes(h)-made)
				}
				h.Run(t, "", append(slices.Clone(test.args), "--force")...).Succeeds(t)
				h.Run(t, "", test.args...).Succeeds(t)
			})
		}
	}
}

// newHubByInit is a cluster with a hub that init has installed.
func newHubByInit(t *testing.T) clitest.Hub {
	t.Helper()
	h := newClusterForHub(t)
	h.Run(t, "", "init").Succeeds(t)
	return h
}

// partsOfAgent are the paths of a Klusterlet, of the namespace of its agent, and of what that joins with.
var partsOfAgent = []string{klusterletsPath + "klusterlet", namespacesPath + "open-cluster-management-agent",
	namespacesPath + "open-cluster-management-agent/secrets/bootstrap-hub-kubeconfig"}

// withAgentOfHelm is a cluster with an agent whose operator runs. Helm has installed what is at some paths.
func withAgentOfHelm(t *testing.T, paths ...string) clitest.Hub {
	t.Helper()
	h := newCluster(t)
	putRunning(t, h, strings.TrimSuffix(clitest.OperatorsPath, "/"), "klusterlet")
	put(t, h, map[string]string{partsOfAgent[0]: "Klusterlet", partsOfAgent[1]: "Namespace", partsOfAgent[2]: "Secret"},
		map[string]string{partsOfAgent[0]: `{"spec":{"clusterName":"c1"}}`})
	markAsHelms(t, h, "ocm", "open-cluster-management", paths...)
	putRecords(t, h, "ocm", "open-cluster-management/secrets/sh.helm.release.v1.ocm.v1")
	return h
}

// CA-15: where the operator stays as it is, --force takes the agent alone from its release of Helm, so that the next run needs none. What
// becomes of the record of the release depends on who has the operator: a release that keeps it does not delete the agent.
func TestForceTakesTheAgentFromHelm(t *testing.T) {
	t.Parallel()
	const operator = clitest.OperatorsPath + "klusterlet"
	const ofOperator = "The operator is of that release, too. Have it leave out the agent: with the value klusterlet.create=false"
	const ofNobody = "kubectl delete secrets --namespace open-cluster-management --selector owner=helm,name=ocm\n"
	hub := newHubToJoin(t)
	for name, test := range map[string]struct {
		helms []string
		fails bool // without --force
		says  string
	}{
		"the agent and its operator": {append(slices.Clone(partsOfAgent), operator), true, ofOperator},
		"the agent alone":            {partsOfAgent, true, ofNobody},
		"without its Klusterlet":     {partsOfAgent[1:], false, ofNobody},
		"the operator alone":         {[]string{operator}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, join := withAgentOfHelm(t, test.helms...), joinCommand(t, hub)
			if test.fails {
				h.Run(t, "", join...).Fails(t, "Klusterlet klusterlet is kept by Helm")
			}
			forced := h.Run(t, "", append(slices.Clone(join), "--force")...)
			forced.Succeeds(t)
			if isHelms(t, h, partsOfAgent...) || isHelms(t, h, operator) != slices.Contains(test.helms, operator) {
				t.Errorf("of the agent, Helm has %t; of the operator, it has %t", isHelms(t, h, partsOfAgent...), isHelms(t, h, operator))
			}
			for _, says := range []string{ofOperator, ofNobody} {
				if strings.Contains(forced.ErrOut, says) != (says == test.says) {
					t.Errorf("it says\n%s", forced.ErrOut)
				}
			}
			again := h.Run(t, "", join...)
			again.Succeeds(t)
			if strings.Contains(again.ErrOut, "Helm still has") {
				t.Errorf("the next run says\n%s", again.ErrOut)
			}
			for _, path := range partsOfAgent { // which Helm deletes with what the release is to leave out, unless it has this
				kept := metadataAt(t, h, path).Annotations["helm.sh/resource-policy"] == "keep"
				if kept != (test.says == ofOperator) {
					t.Errorf("%s is kept from Helm: %t", path, kept)
				}
			}
		})
	}
}
