package identity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// RG-04 KL-08 KL-33: requested, remembered, random, in this order; and what was used is remembered.
func TestResolve(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	random, err := Resolve("", "", dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(validation.IsDNS1123Label(random.Cluster)) > 0 || len(random.Agent) != 5 {
		t.Errorf("random identity %+v", random)
	}
	if again, err := Resolve("", "", dir); err != nil || again != random {
		t.Errorf("the identity was %+v and is %+v (%v)", random, again, err)
	}
	resolved, err := Resolve("cluster1", "agent1", dir)
	if want := (Identity{Cluster: "cluster1", Agent: "agent1"}); err != nil || resolved != want {
		t.Errorf("asked for %+v, got %+v (%v)", want, resolved, err)
	}
	if again, err := Resolve("", "", dir); err != nil || again != resolved {
		t.Errorf("the identity was %+v and is %+v (%v)", resolved, again, err)
	}
	if got := resolved.User(); got != "system:open-cluster-management:cluster1:agent1" {
		t.Errorf("user %s", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "cluster-name")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the remembered name: %v, %v", info, err)
	}
}

// RG-04: the name has to be that of a namespace, one that is not used for all clusters.
func TestResolveRefusesBadNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Cluster1", "a.b", strings.Repeat("a", 64), "managed-clusters", "cluster-proxy"} {
		if id, err := Resolve(name, "agent1", t.TempDir()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("name %q gave %+v, %v", name, id, err)
		}
	}
	for _, agent := range []string{"a:b", " a"} {
		if id, err := Resolve("cluster1", agent, t.TempDir()); err == nil || !strings.Contains(err.Error(), "--agent-id") {
			t.Errorf("agent %q gave %+v, %v", agent, id, err)
		}
	}
}
