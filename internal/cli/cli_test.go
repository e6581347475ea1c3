package cli_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// CA-04
func TestNotAHub(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	for _, request := range []string{"GET " + clitest.ClustersPath, "GET " + clitest.ClustersPath + "/cluster1", "POST " + clitest.WorksPath} {
		h.Handle(request, http.NotFound)
	}
	for _, command := range []string{"get clusters", "accept --cluster cluster1", "create work w -f - --cluster cluster1"} {
		h.Run(t, clitest.ConfigMap, strings.Fields(command)...).Fails(t, "is not an Open Cluster Management hub", "--context")
	}
}

// CA-44
func TestVersion(t *testing.T) {
	t.Parallel()
	clitest.Run(t.Context(), "", "version").Succeeds(t, "capstan\tversion\t:")
	clitest.Run(t.Context(), "", "--version").Succeeds(t, "capstan version ")
	clitest.Run(t.Context(), "", "version", "-o", "json").Succeeds(t, `"version":`, `"platform":`)
}

// CA-01: a user without a home, as in a container, needs one for a playground alone.
func TestWithoutHome(t *testing.T) {
	h := clitest.NewHubWithClusters(t)
	for _, name := range []string{"HOME", playground.EnvHome, "KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	clitest.Run(t.Context(), "", "version").Succeeds(t, "capstan\tversion\t:")
	h.Run(t, "", "get", "clusters").Succeeds(t, "cluster1")
	noHome := []string{"find the home folder", playground.EnvHome}
	for command, says := range map[string][]string{
		"up":     noHome,
		"status": noHome,
		"down":   noHome,
		"join --local --hub-token t --hub-apiserver https://hub --cluster-name c --managed-cluster-kubeconfig " + h.File: noHome,
		"unjoin --local --cluster-name c": noHome,
		"get clusters":                    {"HOME is not set", "--kubeconfig"},
		"get clusters --context hub":      {"HOME is not set", "--kubeconfig"},
		"unjoin --cluster-name c":         {"HOME is not set", "--kubeconfig"},
	} {
		clitest.Run(t.Context(), "", strings.Fields(command)...).Fails(t, says...)
	}
}

// CA-02 CA-03
func TestBadCommandLine(t *testing.T) {
	t.Parallel()
	for command, says := range map[string][]string{
		"get clutsers":                           {`unknown command "clutsers" for "capstan get"`, `Did you mean "clusters"?`},
		"creat":                                  {`unknown command "creat"`, `Did you mean "create"?`},
		"frobnicate":                             {`unknown command "frobnicate"`, "capstan --help"},
		"get clusters --bogus":                   {"unknown flag: --bogus", "capstan get clusters --help"},
		"get clusters --timeout 0":               {"--timeout: 0"},
		"up --clusters 0":                        {"--clusters: 0"},
		"up 3":                                   {`"3"`, "flags only"},
		"accept":                                 {"either --cluster or --clusters needs to be set"},
		"unjoin":                                 {"cluster-name is missing", "capstan status"},
		"unjoin --cluster-name C1":               {"--cluster-name", `"C1"`},
		"unjoin --cluster-name c --kubeconfig k": {"kubeconfig k is missing or empty", "leads to a cluster"},
		"unjoin --cluster-name c --local --kubeconfig k": {"--kubeconfig, --context: of no use with --local"},
		"accept cluster1": {`"cluster1"`, "accept --clusters CLUSTER,..."},
	} {
		clitest.Run(t.Context(), "", strings.Fields(command)...).Fails(t, says...)
	}
}

// CA-02: names of clusters complete from the hub, the last one of a list.
func TestCompletion(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.Put(t, clitest.ClustersPath+"/idle", clitest.Cluster("idle", nil))
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.PutSet(t, "default")
	h.PutSet(t, "prod")
	h.PutNamespace(t, "team-a")
	h.PutPlacement(t, "team-a", "web")
	h.PutPlacement(t, "team-b", "db")
	h.Put(t, clitest.WorksPath+"/web", &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1"}})
	h.PutCatalogue(t, "hello", nil)
	h.PutAddOn(t, "cluster1", "orphan")
	for typed, want := range map[string]string{
		"accept --cluster=":                        "cluster1\ncluster2\nidle\n",
		"accept --clusters=":                       "cluster1\ncluster2\nidle\n",
		"accept --clusters=cluster1,":              "cluster1,cluster2\ncluster1,idle\n",
		"get clusters -o ":                         "tree\ntable\nyaml\njson\nname\n",
		"get clusters --clusterset=":               "default\nprod\n",
		"clusterset bind ":                         "default\nprod\n",
		"clusterset bind prod ":                    "",
		"delete clusterset prod ":                  "default\n",
		"clusterset set prod --clusters=cluster1,": "cluster1,cluster2\ncluster1,idle\n",
		"clusterset bind prod --namespace=":        "team-a\n",
		"accept --cluster=cluster1 --requesters=":  "one\tsystem:open-cluster-management:cluster1:a1\n",
		"get works --context=":                     "hub\n",
		"get works ":                               "web\n",
		"get works --cluster=idle ":                "",
		"get works web ":                           "",
		"join --cluster-name=":                     "",
		"get placements ":                          "db\nweb\n",
		"get placements -n team-b ":                "db\n",
		"explain placement ":                       "db\nweb\n",
		"explain placement web --cluster=":         "cluster1\ncluster2\nidle\n",
		"create placement new --clustersets=prod,": "prod,default\n",
		"create work new --placement=":             "team-a/web\nteam-b/db\n",
		"create work new --dry-run=":               "client\nserver\n",
		"delete work --cluster=cluster1 ":          "web\n",
		"get addon hello ":                         "orphan\n",
		"addon enable --names=hello,":              "hello,orphan\n",
		"addon disable --clusters=cluster1,":       "cluster1,cluster2\ncluster1,idle\n",
		"addon create new --placement-ref=":        "team-a/web\nteam-b/db\n",
		"install hub-addon --names=argocd,":        "argocd,argocd-agent\nargocd,governance-policy-framework\n",
		"uninstall hub-addon --namespace=":         "team-a\n",
		"diff work ":                               "web\n",
		"kubeconfig ":                              "cluster1\ncluster2\nidle\n",
		"kubeconfig cluster1 ":                     "cluster2\nidle\n",
		"kubectl --cluster=":                       "cluster1\ncluster2\nidle\n",
		"proxy kubectl --cluster=":                 "cluster1\ncluster2\nidle\n",
		"proxy health --clusters=idle,":            "idle,cluster1\nidle,cluster2\n",
		"get pods --clusters=cluster1,":            "cluster1,cluster2\ncluster1,idle\n",
		"get pods --clusterset=":                   "default\nprod\n",
		"access --cluster=":                        "cluster1\ncluster2\nidle\n",
		"access --clusterset=":                     "default\nprod\n",
		"access ":                                  "get\nlist\nwatch\ncreate\nupdate\npatch\ndelete\ndeletecollection\n",
		"access list ":                             "",
		"access --as=":                             "",
		"get pods --placement=":                    "team-a/web\nteam-b/db\n",
		"get pods -o ":                             "table\nwide\nyaml\njson\nname\n",
	} {
		words := strings.Split(typed, " ")
		got := h.Run(t, "", append([]string{"__complete", "--kubeconfig", h.File}, words...)...)
		if !strings.HasPrefix(got.Out, want+":") {
			t.Errorf("%q completes to %q, want %q", typed, got.Out, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		clitest.Run(t.Context(), "", "completion", shell).Succeeds(t, "capstan")
	}
}
