package charts

import (
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// HC-05: an agent never runs in the namespace of its operator, which would be deleted with the Klusterlet.
func TestAgentBesideItsOperator(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		namespace, values string
		refused           bool
	}{
		{fleet.NamespaceAgent, "", true},
		{fleet.NamespaceAgent, "klusterlet: {mode: Default, namespace: open-cluster-management-agent}", true},
		{"open-cluster-management-a", "klusterlet: {namespace: open-cluster-management-a}", true},
		{fleet.NamespaceAgent, "klusterlet: {namespace: open-cluster-management-a}", false},
		{fleet.NamespaceAgent, "klusterlet: {create: false}", false},
		{fleet.NamespaceAgent, "noOperator: true", false},
		{"klusterlet-c1", "klusterlet: {mode: Hosted, clusterName: c1}", false},
	} {
		release := installation{chart: "klusterlet", release: "klusterlet", namespace: test.namespace, values: test.values}
		want := `klusterlet.namespace is "` + test.namespace + `", where the operator runs`
		if _, err := release.files(t); (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q in %s: %v", test.values, test.namespace, err)
		}
	}
}

// HC-05: names that are made of a long name of a cluster are refused before anything is made, unless others are given.
func TestLongClusterNames(t *testing.T) {
	t.Parallel()
	const (
		most = "a-cluster-with-33-characters-more" // for a namespace
		more = most + "x"
	)
	for _, mode := range []string{"Hosted", "SingletonHosted"} {
		install("klusterlet", "klusterlet: {mode: "+mode+", clusterName: "+most+"}").objects(t)
		install("klusterlet", "klusterlet: {mode: "+mode+", clusterName: "+more+", name: k, namespace: open-cluster-management-k}").objects(t)
		got := install("klusterlet", "klusterlet: {mode: "+mode+", clusterName: "+more+"}").fails(t)
		want := `klusterlet.namespace is "open-cluster-management-` + more + `", with 58 characters: it may have 57 at most; ` +
			"set klusterlet.name and klusterlet.namespace"
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}
