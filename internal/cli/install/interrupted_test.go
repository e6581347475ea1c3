package install_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// put adds objects, each given by its path and what differs from an object with that name.
func put(t *testing.T, h clitest.Hub, kinds map[string]string, contents map[string]string) {
	t.Helper()
	for path, kind := range kinds {
		parts := strings.Split(path, "/")
		version := parts[2]
		if parts[1] == "apis" {
			version += "/" + parts[3]
		}
		metadata := map[string]any{"name": parts[len(parts)-1]}
		if len(parts) > 6 && parts[len(parts)-4] == "namespaces" {
			metadata["namespace"] = parts[len(parts)-3]
		}
		object := map[string]any{}
		if content := contents[path]; content != "" {
			if err := json.Unmarshal([]byte(content), &object); err != nil {
				t.Fatal(err)
			}
		}
		if given, ok := object["metadata"].(map[string]any); ok {
			for key, value := range given {
				metadata[key] = value
			}
		}
		object["apiVersion"], object["kind"], object["metadata"] = version, kind, metadata
		h.Put(t, path, &unstructured.Unstructured{Object: object})
	}
}

const (
	klusterletsPath = "/apis/operator.open-cluster-management.io/v1/klusterlets/"
	managersPath    = "/apis/operator.open-cluster-management.io/v1/clustermanagers/"
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
)

var agentDefinitions = []string{"appliedmanifestworks.work.open-cluster-management.io", "clusterclaims.cluster.open-cluster-management.io"}

// withAgent is a cluster with an agent.
func withAgent(t *testing.T, klusterlet, namespace, spec string) clitest.Hub {
	t.Helper()
	h := newCluster(t)
	serve(h, "/apis/work.open-cluster-management.io/v1", "appliedmanifestworks AppliedManifestWork")
	putOperator(t, h, "klusterlet", "r/x:v0.3.0", nil)
	kinds := map[string]string{
		klusterletsPath + klusterlet: "Klusterlet", "/api/v1/namespaces/" + namespace: "Namespace",
		"/api/v1/namespaces/" + namespace + "/secrets/bootstrap-hub-kubeconfig": "Secret",
		"/api/v1/namespaces/open-cluster-management":                            "Namespace",
	}
	for _, name := range agentDefinitions {
		kinds[definitionsPath+name] = "CustomResourceDefinition"
	}
	put(t, h, kinds, map[string]string{
		klusterletsPath + klusterlet:      `{"metadata":{"uid":"u1"},"spec":` + spec + `}`,
		"/api/v1/namespaces/" + namespace: `{"metadata":{"labels":{"operator.open-cluster-management.io/klusterlet":"` + klusterlet + `"}}}`,
	})
	return h
}

// CA-19, CA-20, O18: a command that is killed after any of its changes does the rest when it is run again, and leaves what it leaves
// without that.
func TestInterruptedCommands(t *testing.T) {
	const noKlusterlet = "There is no Klusterlet at all"
	write := inDir(t)
	manifest := write("manifest.yaml", clitest.ConfigMap)
	another := write("another.yaml", strings.ReplaceAll(clitest.ConfigMap, "settings", "another"))
	// What commands have done that the paths of objects do not show.
	done := map[string]func(t *testing.T, h clitest.Hub) bool{
		"accept": func(t *testing.T, h clitest.Hub) bool {
			return h.Accepted(t, "cluster1") && h.Accepted(t, "cluster2") && h.Approved(t, "two")
		},
		"clusterset": func(t *testing.T, h clitest.Hub) bool {
			return clusterSetOf(t, h, "cluster1") == "staging" && clusterSetOf(t, h, "cluster2") == "staging"
		},
		"deny": func(t *testing.T, h clitest.Hub) bool {
			return !h.Accepted(t, "cluster1") && !h.Accepted(t, "cluster2") && denied(t, h, "one") && denied(t, h, "two")
		},
		"init --force over Helm": func(t *testing.T, h clitest.Hub) bool { return !isHelms(t, h, partsOfOperator("cluster-manager")...) },
		"join --force over Helm": func(t *testing.T, h clitest.Hub) bool { return !isHelms(t, h, partsOfOperator("klusterlet")...) },
		"upgrade --force over Helm": func(t *testing.T, h clitest.Hub) bool {
			return !isHelms(t, h, append(partsOfOperator("cluster-manager"), managersPath+"cluster-manager")...)
		},
		"init --singleton --force over Helm": func(t *testing.T, h clitest.Hub) bool { return !isHelms(t, h, partsOfStandaloneHub...) },
		"join --force over Helm, beside its operator": func(t *testing.T, h clitest.Hub) bool {
			return !isHelms(t, h, partsOfAgent...) && isHelms(t, h, clitest.OperatorsPath+"klusterlet")
		},
		"unjoin --force": func(t *testing.T, h clitest.Hub) bool {
			return len(metadataAt(t, h, appliedPath+"/web").Finalizers) == 0
		},
		"create work over an existing one": func(t *testing.T, h clitest.Hub) bool {
			return delivers(t, h, "cluster1", "another") && delivers(t, h, "cluster2", "another")
		},
		"create placement --overwrite": func(t *testing.T, h clitest.Hub) bool {
			var placement clusterv1beta1.Placement
			h.Get(t, clitest.PlacementsPath+"/web", &placement)
			return placement.Spec.NumberOfClusters != nil && *placement.Spec.NumberOfClusters == 2
		},
	}
	for name, test := range map[string]struct {
		world func(t *testing.T) clitest.Hub
		args  []string
		gone  string // what a run after the last change fails with, where it finds nothing to do; empty if it succeeds
	}{
		"join": {newCluster, joinCommand(t, newHubToJoin(t)), ""},
		"accept": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHub(t)
			h.PutClusters(t)
			h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
			h.PutRequest(t, fakehub.JoinRequest(t, "two", "cluster2", "a1"))
			return h
		}, []string{"accept", "--clusters", "cluster1,cluster2"}, ""},
		"unjoin": {func(t *testing.T) clitest.Hub {
			return withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
		}, []string{"unjoin", "--cluster-name", "c1"}, noKlusterlet},
		"unjoin from a namespace of its own": {func(t *testing.T) clitest.Hub {
			return withAgent(t, "klusterlet", "mine", `{"clusterName":"c1","namespace":"mine"}`)
		}, []string{"unjoin", "--cluster-name", "c1"}, noKlusterlet},
		"unjoin one of two": {func(t *testing.T) clitest.Hub {
			h := withAgent(t, "klusterlet", "mine", `{"clusterName":"c1","namespace":"mine"}`)
			put(t, h, map[string]string{klusterletsPath + "second": "Klusterlet"}, map[string]string{
				klusterletsPath + "second": `{"spec":{"clusterName":"c2"}}`})
			return h
		}, []string{"unjoin", "--cluster-name", "c1"}, "The Klusterlets there are for: c2"},
		"unjoin of a hosted agent": {func(t *testing.T) clitest.Hub {
			h := withAgent(t, "klusterlet-hosted-x", "klusterlet-hosted-x", `{"clusterName":"c1","deployOption":{"mode":"Hosted"}}`)
			return h
		}, []string{"unjoin", "--cluster-name", "c1", "--force"}, noKlusterlet},
		"unjoin of a cluster that its agent has named": {func(t *testing.T) clitest.Hub { return withNamelessKlusterlet(t, "made-up") },
			[]string{"unjoin", "--cluster-name", "made-up"}, noKlusterlet},
		"unjoin of a cluster that nobody has named": {func(t *testing.T) clitest.Hub { return withNamelessKlusterlet(t, "") },
			[]string{"unjoin", "--cluster-name", "c1", "--klusterlet", "klusterlet"}, noKlusterlet},
		"unjoin --force over Helm": {func(t *testing.T) clitest.Hub {
			h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
			markAsHelms(t, h, "ocm", "open-cluster-management", clitest.OperatorsPath+"klusterlet")
			putRecords(t, h, "ocm", "open-cluster-management/secrets/sh.helm.release.v1.ocm.v1")
			return h
		}, []string{"unjoin", "--cluster-name", "c1", "--force"}, noKlusterlet},
		"clean --force over Helm": {func(t *testing.T) clitest.Hub {
			h := withManager(t)
			markAsHelms(t, h, "ocm", "open-cluster-management", clitest.OperatorsPath+"cluster-manager")
			putRecords(t, h, "ocm", "open-cluster-management/secrets/sh.helm.release.v1.ocm.v1")
			return h
		}, []string{"clean", "--force"}, ""},
		"join --force over Helm, beside its operator": {func(t *testing.T) clitest.Hub {
			return withAgentOfHelm(t, append(slices.Clone(partsOfAgent), clitest.OperatorsPath+"klusterlet")...)
		}, joinCommand(t, newHubToJoin(t), "--force"), ""},
		"unjoin --force": {withAgentThatWaits, []string{"unjoin", "--cluster-name", "c1", "--force"}, noKlusterlet},
		"clean":          {withManager, []string{"clean"}, ""},
		"init":           {newClusterForHub, []string{"init"}, ""},
		"upgrade": {func(t *testing.T) clitest.Hub {
			h := withManager(t)
			putOperator(t, h, "cluster-manager", "r/x:v0.2.0", nil)
			return h
		}, []string{"upgrade", "clustermanager"}, ""},
		"join of a hosted agent": {newCluster,
			joinCommand(t, newHubToJoin(t), "--mode", "hosted", "--managed-cluster-kubeconfig", newCluster(t).File), ""},
		"upgrade of the agent": {func(t *testing.T) clitest.Hub {
			h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
			putOperator(t, h, "klusterlet", "r/x:v0.2.0", nil)
			return h
		}, []string{"upgrade", "klusterlet"}, ""},
		"init of a standalone hub": {newClusterWithVolumes, []string{"init", "--singleton"}, ""},
		"init --force over Helm": {func(t *testing.T) clitest.Hub { return withHelms(t, "cluster-manager") },
			[]string{"init", "--force"}, ""},
		"join --force over Helm": {func(t *testing.T) clitest.Hub { return withHelms(t, "klusterlet") },
			joinCommand(t, newHubToJoin(t), "--force"), ""},
		"upgrade --force over Helm": {func(t *testing.T) clitest.Hub {
			h := withHelms(t, "cluster-manager")
			put(t, h, map[string]string{managersPath + "cluster-manager": "ClusterManager"}, nil)
			markAsHelms(t, h, "ocm", "open-cluster-management", managersPath+"cluster-manager")
			return h
		}, []string{"upgrade", "clustermanager", "--force"}, ""},
		"init --singleton --force over Helm": {withHelmsStandaloneHub, []string{"init", "--singleton", "--force"}, ""},
		"get token":                          {withoutBootstrapAccount, []string{"get", "token"}, ""},
		"addon enable": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHubWithClusters(t)
			h.PutCatalogue(t, "hello", nil)
			return h
		}, []string{"addon", "enable", "--names", "hello", "--clusters", "cluster1,cluster2"}, ""},
		"addon disable": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHubWithClusters(t)
			h.PutCatalogue(t, "hello", nil)
			h.PutAddOn(t, "cluster1", "hello")
			h.PutAddOn(t, "cluster2", "hello")
			return h
		}, []string{"addon", "disable", "--names", "hello", "--clusters", "cluster1,cluster2"}, ""},
		"clusterset": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHub(t)
			h.PutClusters(t)
			h.PutSet(t, "staging")
			return h
		}, []string{"clusterset", "set", "staging", "--clusters", "cluster1,cluster2"}, ""},
		"create work": {clitest.NewHubWithClusters, []string{"create", "work", "web", "-f", manifest, "--clusters", "cluster1,cluster2"}, ""},
		"create work over an existing one": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHubWithClusters(t)
			h.Run(t, "", "create", "work", "web", "-f", manifest, "--clusters", "cluster1,cluster2").Succeeds(t)
			return h
		}, []string{"create", "work", "web", "-f", another, "--clusters", "cluster1,cluster2", "--overwrite"}, ""},
		"clean --force": {withObjectsThatWait, []string{"clean", "--force"}, ""},
		"deny": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHubWithClusters(t)
			h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
			h.PutRequest(t, fakehub.JoinRequest(t, "two", "cluster2", "a1"))
			return h
		}, []string{"deny", "--now", "--clusters", "cluster1,cluster2"}, ""},
		"delete token": {withToken, []string{"delete", "token"}, ""},
		"addon create": {clitest.NewHubWithClusters, []string{"addon", "create", "hello", "-f", manifest}, ""},
		"delete work": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHubWithClusters(t)
			h.Run(t, "", "create", "work", "web", "-f", manifest, "--clusters", "cluster1,cluster2").Succeeds(t)
			return h
		}, []string{"delete", "work", "web", "--clusters", "cluster1,cluster2"}, ""},
		"create clusterset": {clitest.NewHub, []string{"create", "clusterset", "prod", "staging"}, ""},
		"delete clusterset": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHub(t)
			h.PutSet(t, "prod")
			h.PutSet(t, "staging")
			return h
		}, []string{"delete", "clusterset", "prod", "staging"}, `"prod" not found`},
		"clusterset bind": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHub(t)
			h.PutSet(t, "prod")
			return h
		}, []string{"clusterset", "bind", "prod", "--namespace", "team-a"}, ""},
		"clusterset unbind": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHub(t)
			h.PutSet(t, "prod")
			h.Run(t, "", "clusterset", "bind", "prod", "--namespace", "team-a").Succeeds(t)
			return h
		}, []string{"clusterset", "unbind", "prod", "--namespace", "team-a"}, ""},
		"create placement": {clitest.NewHub, []string{"create", "placement", "web", "--namespace", "team-a"},
			"already exists: replace it with --overwrite"},
		"create placement --overwrite": {func(t *testing.T) clitest.Hub {
			h := clitest.NewHub(t)
			h.PutPlacement(t, "team-a", "web", "cluster1")
			return h
		}, []string{"create", "placement", "web", "--namespace", "team-a", "--count", "2", "--overwrite"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			whole := test.world(t)
			whole.Run(t, "", test.args...).Succeeds(t)
			for steps := 1; ; steps++ {
				h := test.world(t)
				if got := runKilled(t, []clitest.Hub{h}, steps, test.args...); got.Code == 0 {
					break
				}
				again := h.Run(t, "", test.args...)
				nothing := test.gone != "" && strings.Contains(again.ErrOut, test.gone)
				if again.Code != 0 && !nothing {
					t.Errorf("killed after change %d: %s", steps, again.ErrOut)
				}
				if isDone := done[name]; isDone != nil && !isDone(t, h) {
					t.Errorf("killed after change %d and run again, it has not changed all", steps)
				}
				if !slices.Equal(h.Paths(), whole.Paths()) {
					t.Errorf("killed after change %d and run again, it leaves\n%v\nand in one run\n%v", steps, h.Paths(), whole.Paths())
				}
			}
		})
	}
}

// partsOfOperator are the paths of the Deployment and of another part of an operator.
func partsOfOperator(name string) []string {
	return []string{namespacesPath + "open-cluster-management/serviceaccounts/" + name, clitest.OperatorsPath + name}
}

// withHelms is a cluster in which Helm has installed an operator.
func withHelms(t *testing.T, operator string) clitest.Hub {
	t.Helper()
	h := newClusterForHub(t)
	parts := partsOfOperator(operator)
	put(t, h, map[string]string{parts[0]: "ServiceAccount"}, nil)
	putOperator(t, h, operator, "r/x:v0.2.0", nil)
	markAsHelms(t, h, "ocm", "open-cluster-management", parts...)
	putRecords(t, h, "ocm", "open-cluster-management/secrets/sh.helm.release.v1.ocm.v1")
	return h
}

// partsOfStandaloneHub are the paths of the Deployment and of another part of a standalone hub.
var partsOfStandaloneHub = []string{namespacesPath + "singleton-controlplane/serviceaccounts/multicluster-controlplane-sa",
	deploymentsOf + "singleton-controlplane/deployments/multicluster-controlplane"}

// withHelmsStandaloneHub is a cluster in which Helm has installed a standalone hub.
func withHelmsStandaloneHub(t *testing.T) clitest.Hub {
	t.Helper()
	h := newClusterWithVolumes(t)
	put(t, h, map[string]string{partsOfStandaloneHub[0]: "ServiceAccount", partsOfStandaloneHub[1]: "Deployment"},
		map[string]string{partsOfStandaloneHub[1]: `{"metadata":{"labels":{"app":"multicluster-controlplane"}}}`})
	markAsHelms(t, h, "hub", "singleton-controlplane", partsOfStandaloneHub...)
	putRecords(t, h, "hub", "singleton-controlplane/secrets/sh.helm.release.v1.hub.v1")
	return h
}

// isHelms reports whether Helm would take any of the objects at some paths for its own.
func isHelms(t *testing.T, h clitest.Hub, paths ...string) bool {
	t.Helper()
	return slices.ContainsFunc(paths, func(path string) bool { return len(marksOfHelm(t, h, path)) > 0 })
}

// withAgentThatWaits is a cluster without operator and agent, whose Klusterlet and what a work has applied wait for them.
func withAgentThatWaits(t *testing.T) clitest.Hub {
	t.Helper()
	h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
	const klusterlet, work, role = klusterletsPath + "klusterlet", appliedPath + "/web", clusterRolesPath + "of-klusterlet"
	const agent = deploymentsOf + "open-cluster-management-agent/deployments/klusterlet-agent"
	put(t, h, map[string]string{
		klusterlet: "Klusterlet", work: "AppliedManifestWork", role: "ClusterRole", agent: "Deployment",
	}, map[string]string{
		klusterlet: `{"metadata":{"uid":"u1","finalizers":["operator.open-cluster-management.io/klusterlet-cleanup"]},
			"spec":{"clusterName":"c1"},"status":{"relatedResources":[
			{"group":"rbac.authorization.k8s.io","version":"v1","resource":"clusterroles","name":"of-klusterlet"},
			{"group":"apps","version":"v1","resource":"deployments","namespace":"open-cluster-management-agent","name":"klusterlet-agent"}]}}`,
		work: `{"metadata":{"finalizers":["cluster.open-cluster-management.io/applied-manifest-work-cleanup"]},
			"spec":{"agentID":"u1","manifestWorkName":"web"}}`,
		role: createdBy("klusterlet"), agent: createdBy("klusterlet"),
	})
	return h
}

// delivers reports whether work web of a cluster has a manifest with a name.
func delivers(t *testing.T, h clitest.Hub, cluster, name string) bool {
	t.Helper()
	var work workv1.ManifestWork
	h.Get(t, strings.Replace(clitest.WorksPath, "cluster1", cluster, 1)+"/web", &work)
	return strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), `"`+name+`"`)
}

// withObjectsThatWait is a hub without operator and controllers, whose ClusterManager and cluster wait for them.
func withObjectsThatWait(t *testing.T) clitest.Hub {
	t.Helper()
	h := withManager(t)
	serve(h, "/apis/cluster.open-cluster-management.io/v1", "managedclusters ManagedCluster")
	const manager, cluster = managersPath + "cluster-manager", clitest.ClustersPath + "/c1"
	const waits = `{"metadata":{"uid":"u1","finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]}}`
	put(t, h, map[string]string{manager: "ClusterManager", cluster: "ManagedCluster"}, map[string]string{manager: waits, cluster: waits})
	return h
}

// withToken is a hub with a bootstrap token, and what gives it rights.
func withToken(t *testing.T) clitest.Hub {
	t.Helper()
	h := withManager(t)
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	const token = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef"
	put(t, h, map[string]string{token: "Secret"}, map[string]string{
		token: `{"type":"bootstrap.kubernetes.io/token","metadata":{"labels":{"app":"cluster-manager"}}}`})
	return h
}

// denied reports whether a certificate request has been denied.
func denied(t *testing.T, h clitest.Hub, name string) bool {
	t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	h.Get(t, clitest.RequestsPath+"/"+name, &csr)
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateDenied
	})
}

// withoutBootstrapAccount is a hub without what its tokens are good for, which makes tokens once it has the account for that.
func withoutBootstrapAccount(t *testing.T) clitest.Hub {
	t.Helper()
	h := newHubToJoin(t)
	h.Handle("POST "+tokenPath, func(w http.ResponseWriter, r *http.Request) {
		if h.HasLocked(strings.TrimSuffix(tokenPath, "/token")) {
			fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"t"}}`)(w, r)
			return
		}
		fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no such account")(w, r)
	})
	return h
}

func clusterSetOf(t *testing.T, h clitest.Hub, cluster string) string {
	t.Helper()
	var c clusterv1.ManagedCluster
	h.Get(t, clitest.ClustersPath+"/"+cluster, &c)
	return c.Labels["cluster.open-cluster-management.io/clusterset"]
}

// CA-19: the kubeconfig of the managed cluster of a hosted agent is needed until all that is there is removed.
func TestInterruptedHostedUnjoin(t *testing.T) {
	for steps := 1; ; steps++ {
		h, managed := withHostedAgent(t)
		got := runKilled(t, []clitest.Hub{h, managed}, steps, "unjoin", "--cluster-name", "c1")
		if got.Code == 0 {
			break
		}
		again := h.Run(t, "", "unjoin", "--cluster-name", "c1")
		if again.Code != 0 && !strings.Contains(again.ErrOut, "There is no Klusterlet at all") {
			t.Errorf("killed after change %d: %s", steps, again.ErrOut)
		}
		if left := slices.Concat(h.Paths(), managed.Paths()); len(left) > 0 {
			t.Errorf("killed after change %d and run again, it leaves %v", steps, left)
		}
	}
}

// CA-10, O18: the same holds for init of a hosted hub, which changes two clusters.
func TestInterruptedHostedInit(t *testing.T) {
	args := []string{"init", "--cluster-manager-values-file", inDir(t)("values.yaml", "clusterManager: {mode: Hosted}")}
	world := func() (hosting, hub clitest.Hub) {
		hosting, hub = newCluster(t), newClusterForHub(t)
		putHubKubeconfig(t, hosting, hub)
		return hosting, hub
	}
	whole, wholeHub := world()
	whole.Run(t, "", args...).Succeeds(t, "capstan join")
	for steps := 1; ; steps++ {
		hosting, hub := world()
		if got := runKilled(t, []clitest.Hub{hosting, hub}, steps, args...); got.Code == 0 {
			break
		}
		hosting.Run(t, "", args...).Succeeds(t, "capstan join")
		if !slices.Equal(hosting.Paths(), whole.Paths()) || !slices.Equal(hub.Paths(), wholeHub.Paths()) {
			t.Errorf("killed after change %d and run again, it leaves\n%v and on the hub\n%v\nand in one run\n%v and\n%v", steps,
				hosting.Paths(), hub.Paths(), whole.Paths(), wholeHub.Paths())
		}
	}
}

// CA-20: the hub of a hosted ClusterManager is found until all that is there is removed, also once the ClusterManager is gone.
func TestInterruptedHostedClean(t *testing.T) {
	testInterruptedHostedClean(t, func() (hosting, hub clitest.Hub) { return withHostedHub(t) }, "clean")
}

// CA-20: the same holds with --force for a hub whose operator does not run.
func TestInterruptedForcedHostedClean(t *testing.T) {
	const deployment, role = deploymentsOf + "cluster-manager/deployments/controller", clusterRolesPath + "of-hub"
	const cluster, manager = clitest.ClustersPath + "/c1", managersPath + "cluster-manager"
	testInterruptedHostedClean(t, func() (hosting, hub clitest.Hub) {
		hosting, hub = withHostedHub(t)
		put(t, hosting, map[string]string{manager: "ClusterManager", deployment: "Deployment"}, map[string]string{
			manager: `{"metadata":{"uid":"u1","finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]},
				"spec":{"deployOption":{"mode":"Hosted"}},"status":{"relatedResources":[
				{"group":"apps","version":"v1","resource":"deployments","namespace":"cluster-manager","name":"controller"},
				{"group":"rbac.authorization.k8s.io","version":"v1","resource":"clusterroles","name":"of-hub"}]}}`,
			deployment: partOf("cluster-manager")})
		put(t, hub, map[string]string{role: "ClusterRole", cluster: "ManagedCluster"}, map[string]string{
			role: partOf("cluster-manager"), cluster: `{"metadata":{"uid":"u2","finalizers":["cluster.open-cluster-management.io/api-resource-cleanup"]}}`})
		return hosting, hub
	}, "clean", "--force")
}

func testInterruptedHostedClean(t *testing.T, world func() (hosting, hub clitest.Hub), args ...string) {
	t.Helper()
	for steps := 1; ; steps++ {
		hosting, hub := world()
		put(t, hub, map[string]string{
			"/api/v1/namespaces/open-cluster-management":                                              "Namespace",
			"/api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap": "ServiceAccount",
			"/api/v1/namespaces/c1":        "Namespace",
			clitest.RequestsPath + "/c1-x": "CertificateSigningRequest",
		}, map[string]string{"/api/v1/namespaces/c1": ofCluster, clitest.RequestsPath + "/c1-x": ofCluster})
		got := runKilled(t, []clitest.Hub{hosting, hub}, steps, args...)
		finished := got.Code == 0
		if !finished {
			hosting.Run(t, "", args...).Succeeds(t)
		}
		const namespace = namespacesPath + "cluster-manager"
		want := []string{namespace, namespace + "/secrets/external-hub-kubeconfig"}
		if !slices.Equal(hosting.Paths(), want) || len(hub.Paths()) > 0 {
			t.Errorf("killed after change %d and run again, it leaves %v and on the hub %v", steps, hosting.Paths(), hub.Paths())
		}
		var left corev1.Namespace
		if hosting.Get(t, namespace, &left); len(left.Annotations) > 0 {
			t.Errorf("killed after change %d and run again, it leaves the annotations %v", steps, left.Annotations)
		}
		if finished {
			break
		}
	}
}

// CA-20, O18: an interrupted run that has deleted the hosted ClusterManager is run again where the hub of another one is, too, which stays.
func TestInterruptedHostedCleanNextToAHub(t *testing.T) {
	hosting, hub := withHostedHub(t)
	const namespace, requests = namespacesPath + "cluster-manager", clitest.RequestsPath + "/c1-x"
	put(t, hosting, map[string]string{managersPath + "another": "ClusterManager", namespace: "Namespace"},
		map[string]string{namespace: `{"metadata":{"annotations":{"capstan.io/cleaning":"true"}}}`})
	hosting.Remove(t, managersPath+"cluster-manager")
	put(t, hub, map[string]string{requests: "CertificateSigningRequest"}, map[string]string{requests: ofCluster})
	hosting.Run(t, "", "clean").Succeeds(t, "cleaned up successfully")
	if hub.Has(requests) || !hosting.Has(managersPath+"another") {
		t.Errorf("it leaves %v and on the hub %v", hosting.Paths(), hub.Paths())
	}
	hosting.Run(t, "", "clean").Fails(t, "--name: there is no ClusterManager cluster-manager", "another")
}

// CA-20: once a hub has been removed, the kubeconfig that stays may lead to one that is another's, which is left alone.
func TestCleanAfterHostedHub(t *testing.T) {
	hosting, hub := withHostedHub(t)
	hosting.Run(t, "", "clean").Succeeds(t)
	put(t, hub, map[string]string{"/api/v1/namespaces/c1": "Namespace"}, map[string]string{"/api/v1/namespaces/c1": ofCluster})
	hosting.Run(t, "", "clean").Succeeds(t, "There is no hub in")
	if !hub.Has("/api/v1/namespaces/c1") {
		t.Error("it has changed the hub of another")
	}
}

// CA-19: --purge-operator is about the cluster of the operator: the kinds of a hosted agent go from the managed cluster, which has none.
func TestHostedUnjoinLeavesTheOperatorAlone(t *testing.T) {
	h, managed := withHostedAgent(t)
	h.Run(t, "", "unjoin", "--cluster-name", "c1", "--purge-operator=false").Succeeds(t)
	if left := managed.Paths(); len(left) > 0 {
		t.Errorf("it leaves %v on the managed cluster", left)
	}
	if !h.Has(definitionsPath + agentDefinitions[0]) {
		t.Errorf("it leaves only %v on the cluster of the operator", h.Paths())
	}
}

// CA-19: a hosted agent of the cluster that hosts it: what is there is the operator's, and stays with that.
func TestUnjoinHostedOnItself(t *testing.T) {
	for _, purge := range []bool{false, true} {
		h := withAgent(t, "klusterlet-hosted-x", "klusterlet-hosted-x", `{"clusterName":"c1","deployOption":{"mode":"Hosted"}}`)
		// The operator has deleted the namespace of the agent by then, which here only loses its label.
		const system, agent = "/api/v1/namespaces/kube-system", "/api/v1/namespaces/klusterlet-hosted-x"
		put(t, h, map[string]string{system: "Namespace", agent: "Namespace"}, map[string]string{system: `{"metadata":{"uid":"1"}}`})
		putManagedKubeconfig(t, h, h)
		h.Run(t, "", "unjoin", "--cluster-name", "c1", fmt.Sprintf("--purge-operator=%t", purge)).Succeeds(t)
		for _, name := range agentDefinitions {
			if h.Has(definitionsPath+name) == purge {
				t.Errorf("with --purge-operator=%t it leaves %v", purge, h.Paths())
			}
		}
	}
}

// withHostedAgent has the operator and the agent on one cluster, and the kinds of agents also on the managed one.
func withHostedAgent(t *testing.T) (hosting, managed clitest.Hub) {
	t.Helper()
	managed = newCluster(t)
	serve(managed, "/apis/work.open-cluster-management.io/v1", "appliedmanifestworks AppliedManifestWork")
	for _, name := range agentDefinitions {
		put(t, managed, map[string]string{definitionsPath + name: "CustomResourceDefinition"}, nil)
	}
	hosting = withAgent(t, "klusterlet-hosted-x", "klusterlet-hosted-x", `{"clusterName":"c1","deployOption":{"mode":"Hosted"}}`)
	putManagedKubeconfig(t, hosting, managed)
	return hosting, managed
}

// putManagedKubeconfig stores the kubeconfig of the managed cluster where the operator and unjoin read it.
func putManagedKubeconfig(t *testing.T, hosting, managed clitest.Hub) {
	t.Helper()
	kubeconfig, err := os.ReadFile(managed.File)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "/api/v1/namespaces/klusterlet-hosted-x/secrets/external-managed-kubeconfig"
	put(t, hosting, map[string]string{secret: "Secret"},
		map[string]string{secret: `{"data":{"kubeconfig":"` + base64.StdEncoding.EncodeToString(kubeconfig) + `"}}`})
}

// CA-19: what an interrupted run has left is not taken for the agent that the namespace has now.
func TestUnjoinLeavesTheNextAgent(t *testing.T) {
	const mark = `{"metadata":{"annotations":{"capstan.io/unjoining":"{\"spec\":{\"clusterName\":\"c1\",\"namespace\":\"NS\"}}"}}}`
	for name, test := range map[string]struct {
		namespace, says, spec string
		stays                 bool
	}{
		"in the usual namespace":     {"open-cluster-management-agent", "open-cluster-management-agent", `{"clusterName":"c2"}`, true},
		"in one of its own":          {"mine", "mine", `{"clusterName":"c2","namespace":"mine"}`, true},
		"in another one":             {"mine", "mine", `{"clusterName":"c2","namespace":"other"}`, false},
		"hosted, in one of its name": {"klusterlet", "klusterlet", `{"clusterName":"c2","deployOption":{"mode":"Hosted"}}`, true},
		"of a third one":             {"mine", "kube-system", `{"clusterName":"c2","namespace":"other"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := withAgent(t, "klusterlet", "theirs", test.spec)
			path := "/api/v1/namespaces/" + test.namespace
			put(t, h, map[string]string{path: "Namespace"}, map[string]string{path: strings.Replace(mark, "NS", test.says, 1)})
			got := h.Run(t, "", "unjoin", "--cluster-name", "c1")
			if test.stays {
				got.Fails(t, "has no Klusterlet for cluster c1", "c2")
			} else {
				got.Succeeds(t)
			}
			if h.Has(path) != test.stays {
				t.Errorf("it leaves %v", h.Paths())
			}
		})
	}
}

// CA-19: what unjoin says of what works have applied is so: it is gone, or stays, and the advice is about what there is.
func TestUnjoinSaysWhatStays(t *testing.T) {
	const gone = "Applied resources have been deleted during the c1 joined stage"
	const stays = "applied resources stay there"
	for name, test := range map[string]struct {
		agent string // of an AppliedManifestWork
		force bool
		says  string
	}{
		"nothing applied":                   {says: gone},
		"nothing applied, forced":           {force: true, says: gone},
		"applied, forced":                   {agent: "u1", force: true, says: stays},
		"applied by another agent":          {agent: "u2", says: gone},
		"applied by another agent, forced":  {agent: "u2", force: true, says: gone},
		"applied, and only the agent is in": {agent: "u1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
			if test.agent != "" {
				put(t, h, map[string]string{appliedPath + "/web": "AppliedManifestWork"},
					map[string]string{appliedPath + "/web": `{"spec":{"agentID":"` + test.agent + `","manifestWorkName":"web"}}`})
			}
			args := []string{"unjoin", "--cluster-name", "c1"}
			if test.force {
				args = append(args, "--force")
			}
			got := h.Run(t, "", args...)
			if test.says == "" {
				got.Fails(t, "work web", "Sets of works and add-ons make theirs anew", "kubectl delete managedcluster c1", "--force")
				return
			}
			got.Succeeds(t, test.says, "The status of mcl c1 will be unknown in the hub cluster")
			if strings.Contains(got.Out, stays) == strings.Contains(got.Out, gone) ||
				strings.Contains(got.ErrOut, "kubectl delete appliedmanifestworks web") != (test.says == stays) {
				t.Errorf("it says\n%s%s", got.Out, got.ErrOut)
			}
		})
	}
}

const tokenPath = "/api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token"

// newClusterForHub shows to everybody what everybody may read, and makes tokens to join with.
func newClusterForHub(t *testing.T) clitest.Hub {
	t.Helper()
	h := newCluster(t)
	h.Handle("POST "+tokenPath, fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"t"}}`))
	h.Handle("GET "+clusterInfoPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" && !h.HasLocked(readersPath) {
			fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "not for everybody")(w, r)
			return
		}
		h.RespondLocked(w, clusterInfoPath)
	})
	return h
}

const (
	clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	readersPath     = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings/open-cluster-management:cluster-info"
)

// CA-10: the token in the script with the join command is for the owner alone, also where others have opened a file that it replaces.
func TestInitJoinCommandFile(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "join.sh")
	if err := os.WriteFile(script, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(script)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	newClusterForHub(t).Run(t, "", "init", "--output-join-command-file", script).Succeeds(t, "capstan join --hub-token t")
	content, err := os.ReadFile(script)
	info, statErr := os.Stat(script)
	if err != nil || statErr != nil || info.Mode().Perm() != 0o700 || !strings.Contains(string(content), "capstan join --hub-token t") {
		t.Errorf("%v, %q, errors %v, %v", info, content, err, statErr)
	}
	if seen, err := io.ReadAll(other); err != nil || string(seen) != "before" {
		t.Errorf("others read %q, error %v", seen, err)
	}
}

// CA-10: the command that init prints last leads to the hub, whoever has made what the cluster publishes.
func TestInitVerifiesTheJoinCommand(t *testing.T) {
	config := func(server, ca string) string {
		return fmt.Sprintf(`{"data":{"kubeconfig":%q}}`, "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: '"+server+
			"', certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte(ca))+"}}]")
	}
	for name, test := range map[string]struct {
		info    func(h clitest.Hub) string
		prepare func(t *testing.T, h clitest.Hub)
		fails   []string
		warns   string
		readers bool
	}{
		"nothing published":                 {readers: true},
		"published, and nobody may read it": {info: func(h clitest.Hub) string { return config(h.URL, string(h.CA())) }, readers: true},
		"published to everybody": {info: func(h clitest.Hub) string { return config(h.URL, string(h.CA())) }, prepare: func(t *testing.T, h clitest.Hub) {
			put(t, h, map[string]string{readersPath: "RoleBinding"}, nil)
		}},
		"made by clusteradm": {info: func(clitest.Hub) string {
			return `{"metadata":{"managedFields":[{"manager":"clusteradm","operation":"Update"}]},"immutable":true}`
		}, readers: true},
		"with another authority": {info: func(h clitest.Hub) string { return config(h.URL, otherCA(t)) },
			fails: []string{"clusters could not join", "kube-public/cluster-info", "unknown authority", "delete it"}},
		"at an address that is not reached from here": {info: func(h clitest.Hub) string { return config("https://127.0.0.1:1", string(h.CA())) },
			warns: "the join command could not be tried from here", readers: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClusterForHub(t)
			if test.info != nil {
				put(t, h, map[string]string{clusterInfoPath: "ConfigMap"}, map[string]string{clusterInfoPath: test.info(h)})
			}
			if test.prepare != nil {
				test.prepare(t, h)
			}
			got := h.Run(t, "", "init")
			if len(test.fails) > 0 {
				got.Fails(t, test.fails...)
				if n := changes(h); n > 0 {
					t.Errorf("%d changes were made", n)
				}
				return
			}
			got.Succeeds(t, "capstan join --hub-token t", "--ca-cert-hash sha256:")
			if !strings.Contains(got.ErrOut, test.warns) || test.warns == "" && strings.Contains(got.ErrOut, "could not be tried") {
				t.Errorf("it says %s", got.ErrOut)
			}
			if made := h.Has(strings.Replace(readersPath, "rolebindings", "roles", 1)); made != test.readers {
				t.Errorf("it has let everybody read: %t", made)
			}
			h.Run(t, "", "clean").Succeeds(t)
			if h.Has(strings.Replace(readersPath, "rolebindings", "roles", 1)) || test.info == nil && h.Has(clusterInfoPath) {
				t.Errorf("clean leaves %v", h.Paths())
			}
		})
	}
}

// withManager is a cluster with a hub.
func withManager(t *testing.T) clitest.Hub {
	t.Helper()
	h := newCluster(t)
	putOperator(t, h, "cluster-manager", "r/x:v0.3.0", nil)
	put(t, h, map[string]string{
		managersPath + "cluster-manager":                                                          "ClusterManager",
		"/api/v1/namespaces/open-cluster-management":                                              "Namespace",
		"/api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap": "ServiceAccount",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/open-cluster-management:bootstrap":       "ClusterRole",
		"/api/v1/namespaces/c1":                                                                   "Namespace",
		clitest.RequestsPath + "/c1-x":                                                            "CertificateSigningRequest",
	}, map[string]string{"/api/v1/namespaces/c1": ofCluster, clitest.RequestsPath + "/c1-x": ofCluster})
	return h
}

const ofCluster = `{"metadata":{"labels":{"open-cluster-management.io/cluster-name":"c1"}}}`

// CA-20: what others make again under its name at once, such as another agent its kinds, is gone all the same.
func TestRemovalOfWhatIsMadeAgain(t *testing.T) {
	h := withManager(t)
	const role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/open-cluster-management:bootstrap"
	put(t, h, map[string]string{role: "ClusterRole"}, map[string]string{role: `{"metadata":{"uid":"first","finalizers":["example.com/slow"]}}`})
	done := make(chan clitest.Result)
	go func() { done <- h.Run(t, "", "clean") }()
	h.WaitForWatch(t, strings.TrimSuffix(role, "/open-cluster-management:bootstrap"))
	put(t, h, map[string]string{role: "ClusterRole"}, map[string]string{role: `{"metadata":{"uid":"second"}}`})
	(<-done).Succeeds(t, "cleaned up successfully")
	if !h.Has(role) {
		t.Error("what others have made is gone, too")
	}
}

// CA-20: nothing of the clusters stays, but what others have put into their namespaces, which is named.
func TestCleanTakesWhatClustersLeave(t *testing.T) {
	h := withManager(t)
	put(t, h, map[string]string{
		"/api/v1/namespaces/c2": "Namespace", "/api/v1/namespaces/c2/secrets/mine": "Secret", "/api/v1/namespaces/other": "Namespace",
		clitest.RequestsPath + "/other": "CertificateSigningRequest",
	}, map[string]string{"/api/v1/namespaces/c2": strings.ReplaceAll(ofCluster, "c1", "c2")})
	h.Run(t, "", "clean", "--dry-run").Succeeds(t, "would delete Namespace c1", "would delete CertificateSigningRequest c1-x")
	got := h.Run(t, "", "clean")
	got.Succeeds(t, "cleaned up successfully")
	if !strings.Contains(got.ErrOut, "Namespace c2 stays: it has Secret c2/mine") {
		t.Errorf("nothing says what stays: %s", got.ErrOut)
	}
	want := []string{"/api/v1/namespaces/c2", "/api/v1/namespaces/c2/secrets/mine", "/api/v1/namespaces/other", clitest.RequestsPath + "/other"}
	if !slices.Equal(h.Paths(), want) {
		t.Errorf("it leaves %v, want %v", h.Paths(), want)
	}
}

// CA-20: a namespace goes with a cluster only if it is that of the cluster, and nothing of others is in it, of whatever kind.
func TestCleanKeepsNamespacesOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		label, object, content string
		says                   string // empty if the namespace goes
	}{
		"nothing":           {label: "c1"},
		"of another name":   {label: "c2", says: " "},
		"a custom resource": {label: "c1", object: "/apis/x.io/v1/namespaces/c1/machines/a", says: "it has Machine c1/a"},
		"a claim":           {label: "c1", object: "/api/v1/namespaces/c1/persistentvolumeclaims/a", says: "it has PersistentVolumeClaim c1/a"},
		"an owned object": {label: "c1", object: "/apis/x.io/v1/namespaces/c1/machines/a",
			content: `{"metadata":{"ownerReferences":[{"kind":"A","name":"b"}]}}`},
		"a copy": {label: "c1", object: "/apis/x.io/v1/namespaces/c1/machines/a",
			content: `{"metadata":{"labels":{"olm.copiedFrom":"b"}}}`},
		"an object of the hub":  {label: "c1", object: "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/a"},
		"what cannot be listed": {label: "c1", object: "/apis/x.io/v1/namespaces/c2/machines/a", says: "which cannot be listed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := withManager(t)
			put(t, h, map[string]string{"/api/v1/namespaces/c1": "Namespace"}, map[string]string{
				"/api/v1/namespaces/c1": `{"metadata":{"labels":{"open-cluster-management.io/cluster-name":"` + test.label + `"}}}`})
			serve(h, "/api/v1", "namespaces Namespace", "pods Pod", "secrets Secret", "configmaps ConfigMap", "events Event",
				"serviceaccounts ServiceAccount", "persistentvolumeclaims PersistentVolumeClaim")
			serve(h, "/apis/x.io/v1", "machines Machine")
			serve(h, "/apis/work.open-cluster-management.io/v1", "manifestworks ManifestWork")
			h.Handle("GET /apis", fakehub.JSON(`{"groups":[{"name":"x.io","preferredVersion":{"version":"v1"}},
				{"name":"work.open-cluster-management.io","preferredVersion":{"version":"v1"}}]}`))
			if test.object != "" {
				put(t, h, map[string]string{test.object: "Machine"}, map[string]string{test.object: test.content})
			}
			if test.says == "which cannot be listed" {
				h.Handle("GET /apis/x.io/v1/namespaces/c1/machines", fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))
			}
			got := h.Run(t, "", "clean")
			got.Succeeds(t, "cleaned up successfully")
			if h.Has("/api/v1/namespaces/c1") != (test.says != "") || !strings.Contains(got.ErrOut, strings.TrimSpace(test.says)) {
				t.Errorf("it leaves %v and says %s", h.Paths(), got.ErrOut)
			}
		})
	}
}

// CA-20: what clean leaves because there are clusters, or because a flag says so, is named with the reason.
func TestCleanSaysWhatStays(t *testing.T) {
	h := withManager(t)
	serve(h, "/apis/cluster.open-cluster-management.io/v1", "managedclusters ManagedCluster")
	put(t, h, map[string]string{"/apis/cluster.open-cluster-management.io/v1/managedclusters/c1": "ManagedCluster"}, nil)
	got := h.Run(t, "", "clean", "--purge-operator=false")
	got.Succeeds(t, "cleaned up successfully")
	if !h.Has("/api/v1/namespaces/c1") || !h.Has(clitest.RequestsPath+"/c1-x") {
		t.Errorf("it leaves %v", h.Paths())
	}
	for _, want := range []string{"there are still these ManagedClusters: c1",
		"The operator stays, with its kinds: --purge-operator is false"} {
		if !strings.Contains(got.ErrOut, want) {
			t.Errorf("no %q in %s", want, got.ErrOut)
		}
	}
}

// CA-19: what unjoin leaves for another agent, or because a flag says so, is named with the reason.
func TestUnjoinSaysWhyTheOperatorStays(t *testing.T) {
	for want, args := range map[string][]string{
		"with its kinds and those of agents: there is Klusterlet second": nil,
		"with its kinds and those of agents: --purge-operator is false":  {"--purge-operator=false"},
	} {
		h := withAgent(t, "klusterlet", "mine", `{"clusterName":"c1","namespace":"mine"}`)
		if args == nil {
			put(t, h, map[string]string{klusterletsPath + "second": "Klusterlet"}, map[string]string{
				klusterletsPath + "second": `{"spec":{"clusterName":"c2"}}`})
		}
		got := h.Run(t, "", append([]string{"unjoin", "--cluster-name", "c1"}, args...)...)
		got.Succeeds(t)
		if !strings.Contains(got.ErrOut, want) || !h.Has(definitionsPath+agentDefinitions[0]) {
			t.Errorf("no %q in %s, or it leaves %v", want, got.ErrOut, h.Paths())
		}
	}
}

// CA-20: what is of one hub does not go with the name of another.
func TestCleanOfNoHub(t *testing.T) {
	h := withManager(t)
	before := h.Paths()
	for _, args := range [][]string{{"clean", "--name", "other"}, {"clean", "--name", "other", "--force"},
		{"clean", "--name", "other", "--dry-run"}} {
		h.Run(t, "", args...).Fails(t, "--name: there is no ClusterManager other", "cluster-manager")
		if !slices.Equal(h.Paths(), before) {
			t.Errorf("%v leaves %v", args, h.Paths())
		}
	}
	put(t, h, map[string]string{managersPath + "cluster-manager": "ClusterManager"},
		map[string]string{managersPath + "cluster-manager": `{"spec":{"deployOption":{"mode":"Hosted"}}}`})
	h.Run(t, "", "clean", "--name", "other").Succeeds(t) // what is left here was of another one
}

// CA-20, O18: what is changed by others at the same time is removed all the same.
func TestRemovalRetriesConflicts(t *testing.T) {
	const operator = "/apis/apps/v1/namespaces/open-cluster-management/deployments/cluster-manager"
	for _, request := range []string{
		"DELETE " + managersPath + "cluster-manager", "PATCH " + managersPath + "cluster-manager", "DELETE " + operator,
		"DELETE /api/v1/namespaces/open-cluster-management", "DELETE " + clitest.RequestsPath + "/c1-x",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			h := withManager(t)
			const manager = managersPath + "cluster-manager"
			put(t, h, map[string]string{manager: "ClusterManager"}, map[string]string{
				manager: `{"metadata":{"finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]}}`})
			h.Conflict(request, 8)
			h.Run(t, "", "clean", "--force").Succeeds(t, "cleaned up successfully")
			if len(h.Paths()) > 0 {
				t.Errorf("it leaves %v", h.Paths())
			}
		})
	}
}

// CA-20: an object that goes by itself while its finalizers are taken off is no failure, whichever it is.
func TestRemovalOfWhatEnds(t *testing.T) {
	const manager, cluster = managersPath + "cluster-manager", "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1"
	for path, kind := range map[string]string{manager: "ClusterManager", cluster: "ManagedCluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := withManager(t)
			serve(h, "/apis/cluster.open-cluster-management.io/v1", "managedclusters ManagedCluster")
			put(t, h, map[string]string{path: kind}, map[string]string{
				path: `{"metadata":{"finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]}}`})
			h.End("PATCH " + path)
			h.Run(t, "", "clean", "--force").Succeeds(t, "cleaned up successfully")
			if len(h.Requests(http.MethodPatch)) == 0 {
				t.Error("no finalizer was taken off")
			}
		})
	}
}

// runKilled runs a command with the first of some clusters, and interrupts it after a number of changes of them.
func runKilled(t *testing.T, clusters []clitest.Hub, steps int, args ...string) clitest.Result {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	var changes atomic.Int64
	for _, h := range clusters {
		h.OnWrite(func() {
			if changes.Add(1) == int64(steps) {
				kill()
			}
		})
		defer h.OnWrite(nil)
	}
	return clitest.Run(ctx, "", append([]string{"--kubeconfig", clusters[0].File}, args...)...)
}
