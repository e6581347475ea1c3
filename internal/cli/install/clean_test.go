package install_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

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

// With --force, webhooks that do not answer do not keep what they would check: the API server refuses all changes of that.
func TestForcedCleanWithDeadWebhooks(t *testing.T) {
	t.Parallel()
	const (
		manager, work = managersPath + "cluster-manager", "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/web"
		validating    = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
		mutating      = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
	)
	for name, test := range map[string]struct {
		pods  map[string]int // that are ready, by the Deployment of the webhook
		stays bool
	}{
		"none is there":   {},
		"one is not":      {pods: map[string]int{"registration-webhook": 1, "work-webhook": 1}},
		"one has no pods": {pods: map[string]int{"registration-webhook": 3, "work-webhook": 0, "addon-webhook": 3}},
		"all run":         {pods: map[string]int{"registration-webhook": 1, "work-webhook": 1, "addon-webhook": 1}, stays: true},
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
			for webhook, pods := range test.pods {
				path := deploymentsOf + "open-cluster-management-hub/deployments/cluster-manager-" + webhook
				put(t, h, map[string]string{path: "Deployment"}, map[string]string{path: `{"status":{"availableReplicas":` + strconv.Itoa(pods) + `}}`})
			}
			gone := fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "it is gone")
			h.Handle("PATCH "+work, func(w http.ResponseWriter, r *http.Request) {
				dead := !test.stays && (h.HasLocked(validating+"works") || h.HasLocked(mutating+"works"))
				operator := httptest.NewRecorder()
				h.RespondLocked(operator, manager)
				if dead || !strings.Contains(operator.Body.String(), "deletionTimestamp") { // it would make them again
					fakehub.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook")(w, r)
					return
				}
				gone(w, r)
			})
			h.Run(t, "", "clean", "--force").Succeeds(t, "cleaned up successfully")
			if h.Has(validating+"works") != test.stays || h.Has(mutating+"works") != test.stays || !h.Has(validating+"of-another") {
				t.Errorf("it leaves %v", strings.Join(h.Paths(), "\n"))
			}
		})
	}
}
