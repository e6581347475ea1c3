package install_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// partOf is an object that the operator has made for a ClusterManager.
func partOf(manager string) string {
	return `{"metadata":{"labels":{"open-cluster-management.io/created-by-clustermanager":"` + manager + `"}}}`
}

// withHostedHub is a cluster with a hosted ClusterManager, whose status lists objects, and the cluster with the API of its hub.
func withHostedHub(t *testing.T, related ...string) (hosting, hub clitest.Hub) {
	t.Helper()
	hosting, hub = newCluster(t), newCluster(t)
	putOperator(t, hosting, "cluster-manager", "r/x:v0.3.0", nil)
	serve(hub, "/apis/cluster.open-cluster-management.io/v1", "managedclusters ManagedCluster")
	putHubKubeconfig(t, hosting, hub)
	const manager = managersPath + "cluster-manager"
	put(t, hosting, map[string]string{manager: "ClusterManager"}, map[string]string{
		manager: `{"spec":{"deployOption":{"mode":"Hosted"}},"status":{"relatedResources":[` + strings.Join(related, ",") + `]}}`})
	return hosting, hub
}

// putHubKubeconfig stores the kubeconfig of the cluster with the API of a hosted hub, as a user does before init.
func putHubKubeconfig(t *testing.T, hosting, hub clitest.Hub) {
	t.Helper()
	kubeconfig, err := os.ReadFile(hub.File)
	if err != nil {
		t.Fatal(err)
	}
	const namespace = namespacesPath + "cluster-manager"
	const secret = namespace + "/secrets/external-hub-kubeconfig"
	put(t, hosting, map[string]string{namespace: "Namespace", secret: "Secret"},
		map[string]string{secret: `{"data":{"kubeconfig":"` + base64.StdEncoding.EncodeToString(kubeconfig) + `"}}`})
}

// CA-20: the status of a hosted ClusterManager does not say on which of two clusters an object is: what others have under its name on the
// other one stays, and definitions that are not the hub's alone.
func TestForcedHostedCleanLeavesWhatIsOfOthers(t *testing.T) {
	t.Parallel()
	related := func(group, resource, namespace, name string) string {
		return `{"group":"` + group + `","version":"v1","resource":"` + resource + `","namespace":"` + namespace + `","name":"` + name + `"}`
	}
	const (
		crds, roles = "apiextensions.k8s.io", "rbac.authorization.k8s.io"
		clusters    = definitionsPath + "managedclusters.cluster.open-cluster-management.io"
		profiles    = definitionsPath + "clusterprofiles.multicluster.x-k8s.io"
		namespace   = namespacesPath + "cluster-manager"
		deployment  = deploymentsOf + "cluster-manager/deployments/cluster-manager-registration-controller"
		pull        = namespace + "/secrets/open-cluster-management-image-pull-credentials"
		role        = clusterRolesPath + "open-cluster-management:cluster-manager-registration:controller"
	)
	hosting, hub := withHostedHub(t, related(crds, "customresourcedefinitions", "", "managedclusters.cluster.open-cluster-management.io"),
		related(crds, "customresourcedefinitions", "", "clusterprofiles.multicluster.x-k8s.io"), related("", "namespaces", "", "cluster-manager"),
		related(roles, "clusterroles", "", "open-cluster-management:cluster-manager-registration:controller"),
		related("", "secrets", "cluster-manager", "open-cluster-management-image-pull-credentials"),
		related("apps", "deployments", "cluster-manager", "cluster-manager-registration-controller"))
	put(t, hosting, map[string]string{deployment: "Deployment", pull: "Secret", role: "ClusterRole"},
		map[string]string{deployment: partOf("cluster-manager"), role: partOf("another")})
	put(t, hub, map[string]string{clusters: "CustomResourceDefinition", profiles: "CustomResourceDefinition", namespace: "Namespace",
		deployment: "Deployment", role: "ClusterRole"},
		map[string]string{clusters: partOf("cluster-manager"), profiles: partOf("cluster-manager"), namespace: partOf("another"),
			deployment: partOf("another"), role: partOf("cluster-manager")})
	got := hosting.Run(t, "", "clean", "--force")
	got.Succeeds(t, "cleaned up successfully")
	for _, test := range []struct {
		on    clitest.Hub
		path  string
		stays bool
	}{
		{hosting, managersPath + "cluster-manager", false}, {hosting, deployment, false}, {hosting, pull, true}, {hosting, role, true},
		{hosting, namespace, true}, {hub, clusters, false}, {hub, role, false}, {hub, profiles, true}, {hub, namespace, true},
		{hub, deployment, true},
	} {
		if test.on.Has(test.path) != test.stays {
			t.Errorf("%s on %s is there: %t", test.path, test.on.URL, !test.stays)
		}
	}
	if !strings.Contains(got.ErrOut, "Namespace cluster-manager stays in "+hub.URL+
		": it has no label open-cluster-management.io/created-by-clustermanager=cluster-manager") {
		t.Errorf("nothing says what stays: %s", got.ErrOut)
	}
}

// CA-20: a hosted ClusterManager that leads to the hub of another one goes without it: nothing is changed there.
func TestHostedCleanLeavesTheHubOfAnother(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"by the operator": {"clean"}, "forced": {"clean", "--force"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosting, hub := withHostedHub(t)
			put(t, hosting, map[string]string{managersPath + "another": "ClusterManager"}, nil)
			const clusters = definitionsPath + "managedclusters.cluster.open-cluster-management.io"
			const cluster = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1"
			put(t, hub, map[string]string{clusters: "CustomResourceDefinition", cluster: "ManagedCluster"}, map[string]string{
				clusters: partOf("another"),
				cluster:  `{"status":{"conditions":[{"type":"ManagedClusterConditionAvailable","status":"True"}]}}`})
			got := hosting.Run(t, "", args...)
			got.Succeeds(t, "cleaned up successfully")
			if !strings.Contains(got.ErrOut, "The hub in "+hub.URL+" stays: it is that of ClusterManager another.") {
				t.Errorf("nothing says what stays: %s", got.ErrOut)
			}
			if changes(hub) > 0 || hosting.Has(managersPath+"cluster-manager") || !hosting.Has(managersPath+"another") {
				t.Errorf("it makes %d changes of the hub, and leaves %v", changes(hub), hosting.Paths())
			}
		})
	}
}

// CA-20: a ClusterManager that the operator has refused, as the hub is another's, goes alone.
func TestCleanOfARefusedClusterManager(t *testing.T) {
	t.Parallel()
	const (
		clusters = definitionsPath + "managedclusters.cluster.open-cluster-management.io"
		cluster  = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1"
		work     = "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/web"
	)
	inUse := map[string]string{
		clusters: partOf("cluster-manager"),
		cluster:  `{"metadata":{"finalizers":["a.io/b"]},"status":{"conditions":[{"type":"ManagedClusterConditionAvailable","status":"True"}]}}`,
		work:     `{"metadata":{"finalizers":["a.io/b"]}}`,
	}
	kinds := map[string]string{clusters: "CustomResourceDefinition", cluster: "ManagedCluster", work: "ManifestWork"}
	serveHub := func(h clitest.Hub) {
		serve(h, "/apis/cluster.open-cluster-management.io/v1", "managedclusters ManagedCluster")
		serve(h, "/apis/work.open-cluster-management.io/v1", "manifestworks ManifestWork")
		put(t, h, kinds, inUse)
	}
	for _, force := range []bool{false, true} {
		args := []string{"clean"}
		if force {
			args = append(args, "--force")
		}
		t.Run("in the cluster of the hub "+strings.Join(args[1:], ""), func(t *testing.T) {
			t.Parallel()
			h := withManager(t)
			serveHub(h)
			put(t, h, map[string]string{managersPath + "hub2": "ClusterManager"}, nil)
			before := slices.DeleteFunc(h.Paths(), func(path string) bool { return path == managersPath+"hub2" })
			got := h.Run(t, "", append(args, "--name", "hub2")...)
			got.Succeeds(t, "cleaned up successfully")
			if !strings.Contains(got.ErrOut, "stays: it is that of ClusterManager cluster-manager.") {
				t.Errorf("nothing says what stays: %s", got.ErrOut)
			}
			if diff := cmp.Diff(before, h.Paths()); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("hosted, of a hub with its own "+strings.Join(args[1:], ""), func(t *testing.T) {
			t.Parallel()
			hosting, hub := withHostedHub(t)
			serveHub(hub)
			put(t, hub, map[string]string{managersPath + "cluster-manager": "ClusterManager"},
				map[string]string{managersPath + "cluster-manager": `{"metadata":{"uid":"resident"}}`})
			got := hosting.Run(t, "", args...)
			got.Succeeds(t, "cleaned up successfully")
			if !strings.Contains(got.ErrOut, "stays: it is that of ClusterManager cluster-manager there.") {
				t.Errorf("nothing says what stays: %s", got.ErrOut)
			}
			if changes(hub) > 0 || hosting.Has(managersPath+"cluster-manager") {
				t.Errorf("it makes %d changes of the hub, and leaves %v", changes(hub), hosting.Paths())
			}
		})
	}
}

// CA-11, CA-20: the hub of a ClusterManager is where it was installed, whatever the spec says by now, which "capstan init" does not change.
func TestModeOfAnInstalledHub(t *testing.T) {
	t.Parallel()
	hosting, hub := withHostedHub(t)
	const manager = managersPath + "cluster-manager"
	const cluster = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1"
	put(t, hosting, map[string]string{manager: "ClusterManager"}, map[string]string{
		manager: `{"metadata":{"annotations":{"capstan.io/installed-mode":"Hosted"}},"spec":{"deployOption":{"mode":"Default"}}}`})
	put(t, hub, map[string]string{cluster: "ManagedCluster"}, map[string]string{
		cluster: `{"status":{"conditions":[{"type":"ManagedClusterConditionAvailable","status":"True"}]}}`})
	before := changes(hosting)
	hosting.Run(t, "", "clean").Fails(t, "these clusters of the hub are available: c1")
	refused := hosting.Run(t, "", "init")
	refused.Fails(t, "ClusterManager cluster-manager is installed in the mode Hosted, which cannot change", "--cluster-manager-values-file")
	if changes(hosting) > before || changes(hub) > 0 {
		t.Error("something is changed")
	}
	hub.Remove(t, cluster)
	hosting.Follow(t, refused, "clean --name cluster-manager").Succeeds(t, "cleaned up successfully")
}

// CA-20: with --force, webhooks do not keep what they would check: the API server refuses all changes of that while they do not answer, or
// serve with a certificate that has expired, which their pods do not show.
func TestForcedCleanWithFailingWebhooks(t *testing.T) {
	t.Parallel()
	const (
		manager, work = managersPath + "cluster-manager", "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/web"
		validating    = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
		mutating      = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
	)
	for name, pods := range map[string]map[string]int{ // that are ready, by the Deployment of the webhook
		"none is there":   {},
		"one is not":      {"registration-webhook": 1, "work-webhook": 1},
		"one has no pods": {"registration-webhook": 3, "work-webhook": 0, "addon-webhook": 3},
		"all run":         {"registration-webhook": 1, "work-webhook": 1, "addon-webhook": 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withManager(t)
			serve(h, "/apis/work.open-cluster-management.io/v1", "manifestworks ManifestWork")
			serve(h, "/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations ValidatingWebhookConfiguration",
				"mutatingwebhookconfigurations MutatingWebhookConfiguration")
			put(t, h, map[string]string{
				manager: "ClusterManager", work: "ManifestWork", validating + "works": "ValidatingWebhookConfiguration",
				mutating + "works": "MutatingWebhookConfiguration", validating + "of-another": "ValidatingWebhookConfiguration",
			}, map[string]string{
				manager:              `{"metadata":{"finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]}}`,
				work:                 `{"metadata":{"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`,
				validating + "works": partOf("cluster-manager"), mutating + "works": partOf("cluster-manager"),
				validating + "of-another": partOf("another"),
			})
			for webhook, ready := range pods {
				path := deploymentsOf + "open-cluster-management-hub/deployments/cluster-manager-" + webhook
				status := `{"status":{"availableReplicas":` + strconv.Itoa(ready) + `}}`
				put(t, h, map[string]string{path: "Deployment"}, map[string]string{path: status})
			}
			gone := fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "it is gone")
			h.Handle("PATCH "+work, func(w http.ResponseWriter, r *http.Request) {
				called := h.HasLocked(validating+"works") || h.HasLocked(mutating+"works")
				operator := httptest.NewRecorder()
				h.RespondLocked(operator, manager)
				if called || !strings.Contains(operator.Body.String(), "deletionTimestamp") { // it would make them again
					fakehub.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook")(w, r)
					return
				}
				gone(w, r)
			})
			h.Run(t, "", "clean", "--force").Succeeds(t, "cleaned up successfully")
			if h.Has(validating+"works") || h.Has(mutating+"works") || !h.Has(validating+"of-another") {
				t.Errorf("it leaves %v", strings.Join(h.Paths(), "\n"))
			}
		})
	}
}

// CA-20: a cluster that runs no pods has no hub that an operator has installed. It is left as it is: a standalone hub would go on without
// what clusters join with. That serves ClusterManagers, too, so one of these changes nothing.
func TestCleanLeavesAStandaloneHubAlone(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"as it is": nil, "dry run": {"--dry-run"}, "forced": {"--force"}, "waiting": {"--wait"},
		"of another name": {"--name", "other"}, "without the operator": {"--purge-operator=false"}} {
		for _, hasManager := range []bool{false, true} {
			h := withToken(t)
			h.Handle("GET /apis/apps/v1", fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no"))
			if !hasManager {
				h.Remove(t, managersPath+"cluster-manager")
			}
			before := h.Paths()
			h.Run(t, "", append([]string{"clean"}, flags...)...).Fails(t, "the cluster at "+h.URL, "runs no pods", "it is a standalone hub",
				"delete its namespace there", "ClusterRoleBinding open-cluster-management:multicluster-controlplane:NAMESPACE",
				"\"helm uninstall\"", "--kubeconfig or --context")
			if !slices.Equal(h.Paths(), before) || changes(h) > 0 {
				t.Errorf("%s, with a ClusterManager: %t: it makes %d changes, and leaves %v", name, hasManager, changes(h), h.Paths())
			}
		}
	}
}

// CA-20: where there is no hub of an operator, standalone hubs are named with the commands that remove them, and then nothing is left.
func TestCleanNamesStandaloneHubs(t *testing.T) {
	t.Parallel()
	const rights = "open-cluster-management:multicluster-controlplane:one"
	h := newClusterWithVolumes(t)
	before := h.Paths()
	h.Run(t, "", "init", "--singleton", "--singleton-name", "one").Succeeds(t)
	named := h.Run(t, "", "clean")
	named.Succeeds(t, "There is no hub in "+h.URL+" that an operator has installed")
	for _, advice := range []string{"delete namespace one", "delete clusterrolebinding " + rights, "delete clusterrole " + rights} {
		h.DeleteAs(t, named, advice)
	}
	if left := h.Paths(); !slices.Equal(left, before) {
		t.Errorf("what clean names leaves %v", left)
	}
	none := h.Run(t, "", "clean")
	none.Succeeds(t, "There is no hub in")
	if strings.Contains(none.ErrOut, "standalone") {
		t.Errorf("it names one that is gone:\n%s", none.ErrOut)
	}
}

// CA-20: a standalone hub that a tool keeps is for that to remove. Who cannot list Deployments in all namespaces learns of none, and
// neither is another Deployment of that name taken for one.
func TestCleanNamesWhoKeepsAStandaloneHub(t *testing.T) {
	t.Parallel()
	h := withHelmsStandaloneHub(t)
	put(t, h, map[string]string{deploymentsOf + "other/deployments/multicluster-controlplane": "Deployment"}, nil)
	before := h.Paths()
	named := h.Run(t, "", "clean")
	named.Succeeds(t, "There is no hub in")
	const says = "Namespace singleton-controlplane has a standalone hub, which is kept by Helm (release hub in namespace " +
		"singleton-controlplane). To remove it, run \"helm uninstall hub --namespace singleton-controlplane\""
	isWrong := func(part string) bool { return strings.Contains(named.ErrOut, part) }
	if !strings.Contains(named.ErrOut, says) || slices.ContainsFunc([]string{"kubectl delete", "Namespace other"}, isWrong) {
		t.Errorf("it says\n%s", named.ErrOut)
	}
	for code, reason := range map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	} {
		h.Handle("GET /apis/apps/v1/deployments", fakehub.Refuse(code, reason, "deployments cannot be listed"))
		unseen := h.Run(t, "", "clean")
		unseen.Succeeds(t, "There is no hub in")
		if strings.Contains(unseen.ErrOut, "standalone") || !slices.Equal(h.Paths(), before) {
			t.Errorf("%s: it leaves %v, and says\n%s", reason, h.Paths(), unseen.ErrOut)
		}
	}
}
