package install_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// kubeconfigIn is the data of a Secret with the kubeconfig of an agent, which leads to a hub.
func kubeconfigIn(t *testing.T, server string, ca []byte) string {
	t.Helper()
	config := hubapi.Invitation{Server: server, Token: "t"}.Kubeconfig(hubapi.Trust{CA: ca})
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return `{"data":{"kubeconfig":"` + base64.StdEncoding.EncodeToString(content) + `"}}`
}

// putClusterName stores the name of its cluster where an agent keeps it.
func putClusterName(t *testing.T, h clitest.Hub, namespace, cluster string) {
	t.Helper()
	path := namespacesPath + namespace + "/secrets/hub-kubeconfig-secret"
	put(t, h, map[string]string{path: "Secret"}, map[string]string{
		path: `{"data":{"cluster-name":"` + base64.StdEncoding.EncodeToString([]byte(cluster)) + `"}}`})
}

// CA-15: an agent for a second hub is not installed where another one runs, which would follow to that hub, nor in the namespace of the
// operator.
func TestJoinLeavesTheNamespaceOfAnother(t *testing.T) {
	t.Parallel()
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	hosted := []string{"--mode", "hosted", "--managed-cluster-kubeconfig", managed.File}
	for name, test := range map[string]struct {
		namespace, spec string // of Klusterlet klusterlet
		values          string
		flags           []string
		refused         []string
	}{
		"only another name": {namespace: "open-cluster-management-agent", spec: `{"clusterName":"c1"}`, values: "name: hub2",
			refused: []string{"Klusterlet klusterlet runs in the namespace open-cluster-management-agent", "Klusterlet hub2",
				"name another klusterlet.namespace in the file of --klusterlet-values-file"}},
		"for another cluster": {namespace: "open-cluster-management-agent", spec: `{"clusterName":"c2"}`, values: "name: hub2",
			refused: []string{"Klusterlet klusterlet runs in the namespace open-cluster-management-agent"}},
		"a namespace of its own": {namespace: "open-cluster-management-agent", spec: `{"clusterName":"c1"}`,
			values: "name: hub2, namespace: of-hub2"},
		"the namespace that another has of its own": {namespace: "mine", spec: `{"clusterName":"c1","namespace":"mine"}`,
			values:  "name: hub2, namespace: mine",
			refused: []string{"Klusterlet klusterlet runs in the namespace mine", "Klusterlet hub2"}},
		"the namespace that another has left free": {namespace: "mine", spec: `{"clusterName":"c1","namespace":"mine"}`, values: "name: hub2"},
		"hosted, with the name of the namespace": {namespace: "mine", spec: `{"clusterName":"c2","namespace":"mine"}`, flags: hosted,
			values:  "name: mine, namespace: of-mine",
			refused: []string{"Klusterlet klusterlet runs in the namespace mine", "name another klusterlet.name in"}},
		"hosted, with the namespace on the managed cluster alone": {namespace: "mine", spec: `{"clusterName":"c2","namespace":"mine"}`,
			flags: hosted, values: "name: other, namespace: mine"},
		"the namespace of the operator": {namespace: "mine", spec: `{"clusterName":"c1","namespace":"mine"}`,
			values:  "name: hub2, namespace: open-cluster-management",
			refused: []string{"klusterlet.namespace is \"open-cluster-management\", where the operator runs"}},
		"hosted, in the namespace of the operator": {namespace: "mine", spec: `{"clusterName":"c1","namespace":"mine"}`, flags: hosted,
			values:  "name: open-cluster-management, namespace: of-hub2",
			refused: []string{"the namespace open-cluster-management, which has another use: it is that of the operators. Name another klusterlet.name"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putAgent(t, h, "klusterlet", test.namespace, "https://former.example.com", test.spec)
			before := h.Paths()
			file := inDir(t)("values.yaml", "klusterlet: {"+test.values+"}")
			got := h.Run(t, "", joinCommand(t, hub, append([]string{"--klusterlet-values-file", file}, test.flags...)...)...)
			if test.refused == nil {
				got.Succeeds(t)
				return
			}
			got.Fails(t, test.refused...)
			if n := changes(h); n != 0 || !slices.Equal(h.Paths(), before) {
				t.Errorf("%d changes were made; there are %v", n, h.Paths())
			}
		})
	}
}

// CA-15: a cluster whose agent has made the name for it is not renamed, no more than one whose Klusterlet has the name.
func TestJoinKeepsTheNameThatTheAgentMade(t *testing.T) {
	t.Parallel()
	hub := newHubToJoin(t)
	for name, test := range map[string]struct {
		namespace, spec string
		credential      string // the name in it
		refused         string // the name that is refused
	}{
		"another name":             {"open-cluster-management-agent", `{}`, "made", "made"},
		"another name, in its own": {"mine", `{"namespace":"mine"}`, "made", "made"},
		"the same name":            {"open-cluster-management-agent", `{}`, "c1", ""},
		"no name yet":              {"open-cluster-management-agent", `{}`, "", ""},
		"named by the Klusterlet":  {"open-cluster-management-agent", `{"clusterName":"c2"}`, "c1", "c2"},
		"named again":              {"open-cluster-management-agent", `{"clusterName":"c1"}`, "made", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putAgent(t, h, "klusterlet", test.namespace, hub.URL, test.spec)
			if test.credential != "" {
				putClusterName(t, h, test.namespace, test.credential)
			}
			got := h.Run(t, "", joinCommand(t, hub)...)
			if test.refused == "" {
				got.Succeeds(t)
				return
			}
			got.Fails(t, "the cluster has joined a hub as "+test.refused+" already", `"capstan unjoin --cluster-name `+test.refused+`"`)
			if n := changes(h); n != 0 {
				t.Errorf("%d changes were made", n)
			}
		})
	}
}

// CA-17: an agent is not taken from its hub by joining another one, whose address and certificate authority are others. A hub that has
// moved, or has another certificate authority, is joined again.
func TestJoinKeepsTheHub(t *testing.T) {
	t.Parallel()
	hub := newHubToJoin(t)
	const former, namespace = "https://former.example.com:6443", namespacesPath + "open-cluster-management-agent"
	own, other := hub.CA(), []byte(otherCA(t))
	type access struct {
		server string
		ca     []byte
	}
	for name, test := range map[string]struct {
		bootstrap, credential access // of the agent; none without a server
		values                string
		force                 bool
		warns, refused        bool
	}{
		"the same hub":                         {bootstrap: access{hub.URL, own}},
		"another authority":                    {bootstrap: access{hub.URL, other}},
		"another way to write the address":     {bootstrap: access{hub.URL + "/", other}},
		"another address":                      {bootstrap: access{former, own}, warns: true},
		"another address, one of two":          {bootstrap: access{former, slices.Concat(other, own)}, warns: true},
		"another hub":                          {bootstrap: access{former, other}, refused: true},
		"another hub, forced":                  {bootstrap: access{former, other}, force: true},
		"another hub, another Klusterlet":      {bootstrap: access{former, other}, values: "name: second, namespace: of-second"},
		"another hub, in another namespace":    {bootstrap: access{former, other}, values: "namespace: mine", refused: true},
		"perhaps another hub":                  {bootstrap: access{former, nil}, refused: true},
		"its credential follows the authority": {bootstrap: access{former, other}, credential: access{former, own}, warns: true},
		"its credential follows the address":   {bootstrap: access{former, other}, credential: access{hub.URL, other}},
		"its credential is for another hub":    {credential: access{former, other}, refused: true},
		"nothing is known of the hub":          {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			put(t, h, map[string]string{klusterletsPath + "klusterlet": "Klusterlet", namespace: "Namespace"}, map[string]string{
				klusterletsPath + "klusterlet": `{"spec":{"clusterName":"c1"}}`})
			for secret, of := range map[string]access{"bootstrap-hub-kubeconfig": test.bootstrap, "hub-kubeconfig-secret": test.credential} {
				if path := namespace + "/secrets/" + secret; of.server != "" {
					put(t, h, map[string]string{path: "Secret"}, map[string]string{path: kubeconfigIn(t, of.server, of.ca)})
				}
			}
			before := h.Paths()
			args := joinCommand(t, hub, "--klusterlet-values-file", inDir(t)("values.yaml", "klusterlet: {"+test.values+"}"))
			if test.force {
				args = append(args, "--force")
			}
			got := h.Run(t, "", args...)
			const warning = "Warning: the agent of cluster c1 joined the hub at " + former + " before. If "
			if strings.Contains(got.ErrOut, warning+hub.URL+" is another hub") != test.warns {
				t.Errorf("it says %s", got.ErrOut)
			}
			if !test.refused {
				got.Succeeds(t, "capstan accept --clusters c1")
				return
			}
			why := "neither the address nor the certificate authority is the same"
			if test.bootstrap.server != "" && test.bootstrap.ca == nil {
				why = "nothing shows that it is the same hub"
			}
			got.Fails(t, "Klusterlet klusterlet is the agent of cluster c1 for the hub at "+former, "taken from there to "+hub.URL+": ", why,
				"klusterlet.name and klusterlet.namespace", "--force")
			if n := changes(h); n != 0 || !slices.Equal(h.Paths(), before) {
				t.Errorf("%d changes were made; there are %v", n, h.Paths())
			}
		})
	}
}
