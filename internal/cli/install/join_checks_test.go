package install_test

import (
	"encoding/base64"
	"slices"
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
			refused: []string{"--klusterlet-values-file: klusterlet.namespace", "the namespace open-cluster-management of the operator"}},
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
	const credential = "/secrets/hub-kubeconfig-secret"
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
			if path := namespacesPath + test.namespace + credential; test.credential != "" {
				put(t, h, map[string]string{path: "Secret"}, map[string]string{
					path: `{"data":{"cluster-name":"` + base64.StdEncoding.EncodeToString([]byte(test.credential)) + `"}}`})
			}
			got := h.Run(t, "", joinCommand(t, hub)...)
			if test.refused == "" {
				got.Succeeds(t)
				return
			}
			got.Fails(t, "this cluster has joined a hub as "+test.refused+" already", `"capstan unjoin --cluster-name `+test.refused+`"`)
			if n := changes(h); n != 0 {
				t.Errorf("%d changes were made", n)
			}
		})
	}
}
