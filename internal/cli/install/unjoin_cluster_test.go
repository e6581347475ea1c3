package install_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const (
	namespacesPath   = "/api/v1/namespaces/"
	deploymentsOf    = "/apis/apps/v1/namespaces/"
	clusterRolesPath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
)

// createdBy is an object that the operator has made for a Klusterlet.
func createdBy(klusterlet string) string {
	return `{"metadata":{"labels":{"open-cluster-management.io/created-by-klusterlet":"` + klusterlet + `"}}}`
}

// MS-04: the status of a hosted Klusterlet does not say on which of two clusters an object is: what others have under its name on the other
// one stays. So do the service accounts of other agents.
func TestForcedHostedUnjoinLeavesWhatIsOfOthers(t *testing.T) {
	t.Parallel()
	const name = "klusterlet-hosted-x"
	const account, another = namespacesPath + "open-cluster-management-agent-addon/serviceaccounts/ci", namespacesPath +
		"open-cluster-management-agent-addon/serviceaccounts/another"
	hosting, managed := withHostedAgent(t)
	related := func(group, resource, namespace, name string) string {
		return `{"group":"` + group + `","version":"v1","resource":"` + resource + `","namespace":"` + namespace + `","name":"` + name + `"}`
	}
	put(t, hosting, map[string]string{
		klusterletsPath + name: "Klusterlet", namespacesPath + name: "Namespace", deploymentsOf + name + "/deployments/agent": "Deployment",
		namespacesPath + "open-cluster-management-agent": "Namespace", clusterRolesPath + "of-" + name: "ClusterRole",
	}, map[string]string{
		klusterletsPath + name: `{"metadata":{"uid":"u1","finalizers":["operator.open-cluster-management.io/klusterlet-hosted-cleanup"]},
			"spec":{"clusterName":"c1","deployOption":{"mode":"Hosted"}},"status":{"relatedResources":[` + strings.Join([]string{
			related("", "namespaces", "", "open-cluster-management-agent"), related("", "namespaces", "", name),
			related("rbac.authorization.k8s.io", "clusterroles", "", "of-"+name), related("apps", "deployments", name, "agent"),
		}, ",") + `]}}`,
		namespacesPath + name:                            createdBy(name),
		deploymentsOf + name + "/deployments/agent":      createdBy(name),
		namespacesPath + "open-cluster-management-agent": createdBy("klusterlet"),
	})
	put(t, managed, map[string]string{
		namespacesPath + "open-cluster-management-agent": "Namespace", namespacesPath + name: "Namespace",
		clusterRolesPath + "of-" + name: "ClusterRole", account: "ServiceAccount", another: "ServiceAccount",
	}, map[string]string{
		namespacesPath + "open-cluster-management-agent": createdBy(name), clusterRolesPath + "of-" + name: createdBy(name),
		account: tokenAccount("u1"), another: tokenAccount("u2"),
	})
	got := hosting.Run(t, "", "unjoin", "--cluster-name", "c1", "--force")
	got.Succeeds(t)
	for _, test := range []struct {
		on    clitest.Hub
		path  string
		stays bool
	}{
		{hosting, namespacesPath + "open-cluster-management-agent", true},
		{hosting, clusterRolesPath + "of-" + name, true},
		{hosting, namespacesPath + name, false},
		{hosting, deploymentsOf + name + "/deployments/agent", false},
		{hosting, klusterletsPath + name, false},
		{managed, namespacesPath + name, true},
		{managed, namespacesPath + "open-cluster-management-agent", false},
		{managed, clusterRolesPath + "of-" + name, false},
		{managed, account, false},
		{managed, another, true},
	} {
		if test.on.Has(test.path) != test.stays {
			t.Errorf("%s on %s is there: %t", test.path, test.on.URL, !test.stays)
		}
	}
	const says = "Namespace open-cluster-management-agent stays in "
	if !strings.Contains(got.ErrOut, says+hosting.URL+": it has no label open-cluster-management.io/created-by-klusterlet="+name) {
		t.Errorf("nothing says what stays: %s", got.ErrOut)
	}
}

// putAgent puts a Klusterlet with what its agent joins with.
func putAgent(t *testing.T, h clitest.Hub, klusterlet, namespace, hub, spec string) {
	t.Helper()
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: b}}]\n" +
		"clusters: [{name: b, cluster: {server: '" + hub + "'}}]\n"
	secret := namespacesPath + namespace + "/secrets/bootstrap-hub-kubeconfig"
	put(t, h, map[string]string{
		klusterletsPath + klusterlet: "Klusterlet", namespacesPath + namespace: "Namespace", secret: "Secret",
	}, map[string]string{
		klusterletsPath + klusterlet: `{"metadata":{"uid":"` + klusterlet + `"},"spec":` + spec + `}`,
		secret:                       `{"data":{"kubeconfig":"` + base64.StdEncoding.EncodeToString([]byte(kubeconfig)) + `"}}`,
	})
}

// A cluster that has the same name on two hubs has two Klusterlets: none goes until the user says which, and then only that one.
func TestUnjoinFromOneOfTwoHubs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags       []string
		fails       []string // empty if second goes
		interrupted bool
	}{
		"not chosen": {fails: []string{"has 2 Klusterlets for cluster c1: choose one with --klusterlet:",
			"\n  Klusterlet first, with its agent in namespace open-cluster-management-agent, for the hub at https://one.example.com",
			"\n  Klusterlet second, with its agent in namespace mine, for the hub at https://two.example.com"}},
		"not chosen, in a dry run": {flags: []string{"--dry-run"}, fails: []string{"choose one with --klusterlet"}},
		"chosen":                   {flags: []string{"--klusterlet", "second"}},
		"chosen, and interrupted":  {flags: []string{"--klusterlet", "second"}, interrupted: true},
		"no such one": {flags: []string{"--klusterlet", "third"},
			fails: []string{"no Klusterlet third, which --klusterlet names, for cluster c1", "c1 (Klusterlet first), c1 (Klusterlet second)"}},
		"of another cluster": {flags: []string{"--klusterlet", "first", "--cluster-name", "c2"},
			fails: []string{"no Klusterlet first, which --klusterlet names, for cluster c2", "c1 (Klusterlet first)"}},
		"local": {flags: []string{"--klusterlet", "second", "--local"}, fails: []string{"[klusterlet local] were all set"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putOperator(t, h, "klusterlet", "r/x:v0.3.0", nil)
			putAgent(t, h, "first", "open-cluster-management-agent", "https://one.example.com", `{"clusterName":"c1"}`)
			before := h.Paths()
			putAgent(t, h, "second", "mine", "https://two.example.com", `{"clusterName":"c1","namespace":"mine"}`)
			both := h.Paths()
			args := append([]string{"unjoin", "--cluster-name", "c1"}, test.flags...)
			if test.interrupted {
				if got := runKilled(t, []clitest.Hub{h}, 2, args...); got.Code == 0 || h.Has(klusterletsPath+"second") {
					t.Fatalf("it is not interrupted after the Klusterlet is gone: %s", got.ErrOut)
				}
			}
			got := h.Run(t, "", args...)
			if len(test.fails) > 0 {
				got.Fails(t, test.fails...)
				if !slices.Equal(h.Paths(), both) {
					t.Errorf("it leaves %v", h.Paths())
				}
				return
			}
			got.Succeeds(t)
			left := slices.DeleteFunc(h.Paths(), func(path string) bool { return strings.HasPrefix(path, namespacesPath+"mine/") })
			if !slices.Equal(left, before) { // the namespace takes what is in it with it
				t.Errorf("it leaves %v, want %v", left, before)
			}
		})
	}
}

// CA-19: the namespace of an agent stays if it is also that of another Klusterlet, with what that joins with, or if it is not for agents
// alone, and nothing there says any more that it is to go. That the operator refuses one of the two makes no difference, and neither does
// --force.
func TestUnjoinKeepsTheNamespaceOfAnother(t *testing.T) {
	t.Parallel()
	const agents, role = "open-cluster-management-agent", clusterRolesPath + "of-first"
	for name, test := range map[string]struct {
		namespace string // of Klusterlet first, which goes
		labels    string // of the namespace, besides that of who made it
		second    string // the spec of the other one; empty for none
		hub       bool   // it has the kubeconfig of the hub of a hosted ClusterManager
		unread    bool   // which may not be read
		says      string // empty if the namespace goes
	}{
		"of nobody else":   {namespace: agents},
		"of its own":       {namespace: "mine", second: `{"clusterName":"c2"}`},
		"not of its agent": {namespace: "mine", second: `{"clusterName":"c2","namespace":"mine","deployOption":{"mode":"Hosted"}}`},
		"of another":       {namespace: agents, second: `{"clusterName":"c2"}`, says: "it is also that of the agent of Klusterlet second"},
		"of another, by its name": {namespace: agents, second: `{"clusterName":"c2","namespace":"` + agents + `"}`,
			says: "it is also that of the agent of Klusterlet second"},
		"of another, which is hosted": {namespace: "second", second: `{"clusterName":"c2","deployOption":{"mode":"SingletonHosted"}}`,
			says: "it is also that of the agent of Klusterlet second"},
		"of another, whose agent runs elsewhere": {namespace: agents,
			labels: `"operator.open-cluster-management.io/klusterlet":"third","open-cluster-management.io/created-by-klusterlet":"third"`,
			says:   "it is that of Klusterlet third, whose agent runs in another cluster"},
		"of the operators": {namespace: "open-cluster-management", second: `{"clusterName":"c2"}`, says: "it is that of the operators"},
		"of a managed cluster": {namespace: "c9",
			labels: `"open-cluster-management.io/cluster-name":"c9","open-cluster-management.io/created-by-klusterlet":"first"`,
			says:   "it is that of ManagedCluster c9"},
		"of a ClusterManager": {namespace: "hub",
			labels: `"open-cluster-management.io/created-by-clustermanager":"hub","open-cluster-management.io/created-by-klusterlet":"first"`,
			says:   "it is that of ClusterManager hub"},
		"of a hosted ClusterManager": {namespace: "hub", hub: true,
			says: "it has Secret external-hub-kubeconfig, of a hosted ClusterManager"},
		"perhaps of a hosted ClusterManager": {namespace: "hub", hub: true, unread: true},
	} {
		for _, force := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forced: %t", name, force), func(t *testing.T) {
				t.Parallel()
				h := newCluster(t)
				putOperator(t, h, "klusterlet", "r/x:v0.3.0", nil)
				first, namespace := klusterletsPath+"first", namespacesPath+test.namespace
				secret := namespace + "/secrets/bootstrap-hub-kubeconfig"
				labels := cmp.Or(test.labels, `"open-cluster-management.io/created-by-klusterlet":"first"`)
				put(t, h, map[string]string{first: "Klusterlet", namespace: "Namespace", secret: "Secret", role: "ClusterRole"}, map[string]string{
					first: `{"metadata":{"uid":"u1"},"spec":{"clusterName":"c1","namespace":"` + test.namespace + `"},"status":{"relatedResources":[
						{"version":"v1","resource":"namespaces","name":"` + test.namespace + `"},
						{"group":"rbac.authorization.k8s.io","version":"v1","resource":"clusterroles","name":"of-first"}]}}`,
					namespace: `{"metadata":{"labels":{` + labels + `}}}`, role: createdBy("first"),
				})
				if test.second != "" {
					put(t, h, map[string]string{klusterletsPath + "second": "Klusterlet"},
						map[string]string{klusterletsPath + "second": `{"metadata":{"uid":"u2"},"spec":` + test.second + `}`})
				}
				kubeconfig := namespace + "/secrets/external-hub-kubeconfig"
				if test.hub {
					put(t, h, map[string]string{kubeconfig: "Secret"}, nil)
				}
				if test.unread {
					h.Handle("GET "+kubeconfig, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden"))
				}
				args := []string{"unjoin", "--cluster-name", "c1"}
				if force {
					args = append(args, "--force")
				}
				got := h.Run(t, "", args...)
				got.Succeeds(t)
				stays := test.says != ""
				if h.Has(first) || h.Has(namespace) != stays || h.Has(secret) != stays || force == h.Has(role) {
					t.Errorf("it leaves %v", h.Paths())
				}
				if stays != strings.Contains(got.ErrOut, "Namespace "+test.namespace+" stays") || !strings.Contains(got.ErrOut, test.says) {
					t.Errorf("it says\n%s", got.ErrOut)
				}
				if stays && len(metadataAt(t, h, namespace).Annotations) > 0 {
					t.Errorf("the namespace has the annotations %v", metadataAt(t, h, namespace).Annotations)
				}
			})
		}
	}
}

// withNamelessKlusterlet is a cluster with an agent that its Klusterlet does not name, so that it makes a name; empty if it has not yet.
func withNamelessKlusterlet(t *testing.T, made string) clitest.Hub {
	t.Helper()
	h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{}`)
	if made != "" {
		const secret = namespacesPath + "open-cluster-management-agent/secrets/hub-kubeconfig-secret"
		put(t, h, map[string]string{secret: "Secret"},
			map[string]string{secret: `{"data":{"cluster-name":"` + base64.StdEncoding.EncodeToString([]byte(made)) + `"}}`})
	}
	return h
}

// CA-19: a Klusterlet that does not name its cluster is found by the name that the agent has made; before it has, by its own.
func TestUnjoinOfANamelessKlusterlet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		made, flags string
		fails       string // empty if it succeeds
	}{
		"by the name that the agent made": {"made-up", "--cluster-name made-up", ""},
		"by another name":                 {"made-up", "--cluster-name c1", "The Klusterlets there are for: made-up."},
		"by its own name, and another":    {"made-up", "--cluster-name c1 --klusterlet klusterlet", "made-up (Klusterlet klusterlet)"},
		"by both names":                   {"made-up", "--cluster-name made-up --klusterlet klusterlet", ""},
		"before there is a name": {"", "--cluster-name c1",
			"a cluster of which no name is known (Klusterlet klusterlet, which --klusterlet chooses)"},
		"before there is a name, by its own":       {"", "--cluster-name c1 --klusterlet klusterlet", ""},
		"before there is a name, by that of none":  {"", "--cluster-name c1 --klusterlet other", "no Klusterlet other"},
		"by no name, which no agent can have made": {"", "--klusterlet klusterlet", "cluster-name is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withNamelessKlusterlet(t, test.made)
			before := h.Paths()
			got := h.Run(t, "", append([]string{"unjoin"}, strings.Fields(test.flags)...)...)
			if test.fails != "" {
				got.Fails(t, test.fails)
				if !slices.Equal(h.Paths(), before) {
					t.Errorf("it leaves %v", h.Paths())
				}
				return
			}
			got.Succeeds(t, "The status of mcl "+strings.Fields(test.flags)[1]+" will be unknown")
			if left := h.Paths(); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
}

// CA-19: the Secrets of other agents, which may not be readable, are not in the way; with --klusterlet they are not even looked at.
func TestUnjoinBesideAnotherAgent(t *testing.T) {
	t.Parallel()
	const others = namespacesPath + "others/secrets/hub-kubeconfig-secret"
	for _, flags := range [][]string{nil, {"--klusterlet", "first"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putAgent(t, h, "first", "open-cluster-management-agent", "https://one.example.com", `{"clusterName":"c1"}`)
			putAgent(t, h, "second", "others", "https://two.example.com", `{"namespace":"others"}`)
			var asked atomic.Int64
			h.Handle("GET "+others, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden")(w, r)
			})
			h.Run(t, "", "unjoin", "--cluster-name", "c2").Fails(t, "a cluster of which no name is known (Klusterlet second")
			asked.Store(0)
			h.Run(t, "", append([]string{"unjoin", "--cluster-name", "c1"}, flags...)...).Succeeds(t)
			if h.Has(klusterletsPath+"first") || !h.Has(klusterletsPath+"second") || asked.Load() > 0 != (flags == nil) {
				t.Errorf("it asked for that of another %d times, and leaves %v", asked.Load(), h.Paths())
			}
		})
	}
}

func TestCompleteKlusterlets(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	putAgent(t, h, "first", "open-cluster-management-agent", "https://one.example.com", `{"clusterName":"c1"}`)
	if got := h.Run(t, "", "__complete", "unjoin", "--klusterlet="); !strings.HasPrefix(got.Out, "first\n:") {
		t.Errorf("completes to %q", got.Out)
	}
}

// With an operator that no Klusterlet is left of, the namespace of an agent that runs in another cluster stays, with the kinds of agents.
func TestUnjoinLeavesAgentsHostedElsewhere(t *testing.T) {
	t.Parallel()
	const namespace = namespacesPath + "open-cluster-management-agent"
	labelled := func(klusterlet string) string {
		return `{"metadata":{"labels":{"operator.open-cluster-management.io/klusterlet":"` + klusterlet + `"}}}`
	}
	for name, test := range map[string]struct {
		namespace, content string
		agent              bool
		stays              bool
	}{
		"hosted elsewhere":                     {namespace, labelled("klusterlet-hosted-x"), false, true},
		"hosted elsewhere, in another one":     {namespacesPath + "other", labelled("klusterlet-hosted-x"), false, true},
		"left by a Klusterlet":                 {namespace, labelled("klusterlet"), true, false},
		"left by a Klusterlet, without labels": {namespace, `{}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putOperator(t, h, "klusterlet", "r/x:v0.3.0", nil)
			put(t, h, map[string]string{
				test.namespace: "Namespace", definitionsPath + agentDefinitions[0]: "CustomResourceDefinition",
			}, map[string]string{test.namespace: test.content})
			if test.agent {
				const agent = deploymentsOf + "open-cluster-management-agent/deployments/agent"
				put(t, h, map[string]string{agent: "Deployment"}, map[string]string{agent: createdBy("klusterlet")})
			}
			got := h.Run(t, "", "unjoin", "--cluster-name", "c1", "--force")
			got.Succeeds(t)
			if h.Has(test.namespace) != test.stays || h.Has(definitionsPath+agentDefinitions[0]) != test.stays {
				t.Errorf("it leaves %v", h.Paths())
			}
			if h.Has(clitest.OperatorsPath + "klusterlet") {
				t.Error("the operator is left")
			}
			if test.stays && !strings.Contains(got.ErrOut, "the agent of Klusterlet klusterlet-hosted-x is there, too") {
				t.Errorf("nothing says what stays: %s", got.ErrOut)
			}
		})
	}
}

// CA-19: the name of a cluster may be mistyped, so an operator without Klusterlets goes only if it was to go with that cluster's, or if the
// user insists.
func TestUnjoinWithoutKlusterlet(t *testing.T) {
	t.Parallel()
	const operators = namespacesPath + "open-cluster-management"
	mark := func(cluster string) string {
		return `{"metadata":{"annotations":{"capstan.io/unjoining":"{\"spec\":{\"clusterName\":\"` + cluster + `\"}}"}}}`
	}
	for name, test := range map[string]struct {
		operators string // what the namespace of the operator has
		none      bool   // there is no operator
		flags     []string
		fails     []string // empty if the operator goes
		notes     string
	}{
		"never to go": {operators: `{}`, fails: []string{"has no Klusterlet for cluster c1. There is no Klusterlet at all",
			"The operator of agents is there, or a part of it, without any Klusterlet: --force removes that", "--kubeconfig or --context"}},
		"never to go, in a dry run": {operators: `{}`, flags: []string{"--dry-run"}, fails: []string{"--force removes that"}},
		"to go with another":        {operators: mark("c2"), fails: []string{"--force removes that"}},
		"to go with it":             {operators: mark("c1"), notes: "removing what is left of the agent"},
		"never to go, forced":       {operators: `{}`, flags: []string{"--force"}, notes: "removing what is left of the agent"},
		"no operator":               {operators: `{}`, none: true, fails: []string{"There is no Klusterlet at all"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			put(t, h, map[string]string{operators: "Namespace"}, map[string]string{operators: test.operators})
			if !test.none {
				putOperator(t, h, "klusterlet", "r/x:v0.3.0", nil)
			}
			before := h.Paths()
			got := h.Run(t, "", append([]string{"unjoin", "--cluster-name", "c1"}, test.flags...)...)
			if len(test.fails) == 0 {
				got.Succeeds(t)
				if left := h.Paths(); len(left) > 0 || !strings.Contains(got.ErrOut, test.notes) {
					t.Errorf("it leaves %v, and says %s", left, got.ErrOut)
				}
				return
			}
			got.Fails(t, test.fails...)
			if !slices.Equal(h.Paths(), before) || changes(h) > 0 || test.none && strings.Contains(got.ErrOut, "--force") {
				t.Errorf("it leaves %v, and says %s", h.Paths(), got.ErrOut)
			}
		})
	}
}

// CA-19: where the namespace of the operator stays, for the operator of a hub, nothing there says any more that the operator is to go.
func TestUnjoinTakesItsMarkOff(t *testing.T) {
	t.Parallel()
	const operators = namespacesPath + "open-cluster-management"
	h := withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
	putOperator(t, h, "cluster-manager", "r/x:v0.3.0", nil)
	h.Run(t, "", "unjoin", "--cluster-name", "c1").Succeeds(t)
	if left := metadataAt(t, h, operators).Annotations; len(left) > 0 {
		t.Errorf("the namespace has the annotations %v", left)
	}
	if !h.Has(clitest.OperatorsPath+"cluster-manager") || h.Has(clitest.OperatorsPath+"klusterlet") {
		t.Errorf("it leaves %v", h.Paths())
	}
}

// CA-19: a definition of the SIG goes only if the operator, or an agent without one, has installed it: on the cluster of the operator, and
// on that of a hosted agent.
func TestUnjoinLeavesDefinitionsOfOthers(t *testing.T) {
	t.Parallel()
	const definition = "clusterproperties.about.k8s.io"
	for manager, stays := range map[string]bool{"": true, "kubectl-client-side-apply": true, "work-agent": true,
		"capstan-klusterlet-operator": false, "capstan-agent": false} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			hosting, managed := withHostedAgent(t)
			for _, h := range []clitest.Hub{hosting, managed} {
				put(t, h, map[string]string{definitionsPath + definition: "CustomResourceDefinition"}, map[string]string{
					definitionsPath + definition: `{"metadata":{"managedFields":[{"manager":"other"},{"manager":"` + manager + `"}]}}`})
			}
			dryRun := hosting.Run(t, "", "unjoin", "--cluster-name", "c1", "--dry-run")
			dryRun.Succeeds(t)
			if strings.Contains(dryRun.Out, "would delete CustomResourceDefinition "+definition) == stays {
				t.Errorf("a dry run says %s", dryRun.Out)
			}
			got := hosting.Run(t, "", "unjoin", "--cluster-name", "c1")
			got.Succeeds(t)
			if hosting.Has(definitionsPath+definition) != stays || managed.Has(definitionsPath+definition) != stays {
				t.Errorf("it leaves %v and %v", hosting.Paths(), managed.Paths())
			}
			if notes := strings.Count(got.ErrOut, definition+" stays: others may use it, too."); notes != 2 && stays || notes != 0 && !stays {
				t.Errorf("it says %s", got.ErrOut)
			}
		})
	}
}

// A hosted agent is not taken from its hub by joining another one, on which the cluster has the same name.
func TestJoinHostedOnSecondHub(t *testing.T) {
	t.Parallel()
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	const name = "klusterlet-hosted-x"
	for title, test := range map[string]struct {
		server string
		flags  []string
		fails  bool
	}{
		"the same hub":        {server: hub.URL},
		"another hub":         {server: "https://other.example.com", fails: true},
		"another hub, forced": {server: "https://other.example.com", flags: []string{"--force"}},
		"another hub, another name": {server: "https://other.example.com", flags: []string{"--klusterlet-values-file",
			inDir(t)("values.yaml", "klusterlet: {name: second, namespace: of-second}")}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putAgent(t, h, name, name, test.server, `{"clusterName":"c1","deployOption":{"mode":"Hosted"}}`)
			before := h.Paths()
			got := h.Run(t, "", joinCommand(t, hub, append(test.flags, "--mode", "hosted", "--managed-cluster-kubeconfig", managed.File)...)...)
			if !test.fails {
				got.Succeeds(t)
				return
			}
			got.Fails(t, "Klusterlet "+name+" is the hosted agent of cluster c1 for the hub at https://other.example.com", "to "+hub.URL,
				"klusterlet.name and klusterlet.namespace", "--force")
			if !slices.Equal(h.Paths(), before) {
				t.Errorf("it leaves %v", h.Paths())
			}
		})
	}
}
