package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// awaitNoWork waits until a cluster has no such work any more, nor any other.
func awaitNoWork(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &workv1.ManifestWorkList{}
		if err := c.List(ctx, list, client.InNamespace(cluster)); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("cluster %s has %d works: %w", cluster, len(list.Items), err)
		}
		return nil
	})
}

// Gap W12: "diff work" says what would change on a cluster, also that the work would drop something and that the cluster refuses
// something, and leaves the work and the cluster as they are.
func TestCLIDiffWork(t *testing.T) {
	t.Parallel()
	const name = "cli-diff"
	env.Join(t, hub, managed, name)
	h, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, name)
	diff := func(manifests string) env.Result {
		return hub.Capstan(t, manifests, "diff", "work", "web", "-f", "-", "--cluster", name)
	}
	one, two := configMap(ns, "one", "1"), configMap(ns, "two", "1")
	diff(one).Ends(t, 1)
	hub.Capstan(t, one+two, "create", "work", "web", "-f", "-", "--cluster", name, "--dry-run=server").Succeeds(t,
		"2 would be created", "ConfigMap cli-diff/two: would be created")
	awaitNoWork(t, h, name)

	hub.Capstan(t, one+two, "create", "work", "web", "-f", "-", "--cluster", name).Succeeds(t, "create work web in cluster "+name)
	w := awaitCondition(t, h, work(name, "web"), "Applied", metav1.ConditionTrue)
	diff(one+two).Succeeds(t, "2 would not change")

	changed := diff(configMap(ns, "one", "2"))
	changed.Ends(t, 1)
	changed.Code = 0
	changed.Succeeds(t, `data.key: "1" -> "2"`, "ConfigMap cli-diff/two: would be deleted")
	refused := diff(fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":%q,"name":"bad"},"spec":{"ports":[{"port":0}]}}`,
		ns))
	refused.Ends(t, 2, "would not take 1 of the manifests of work web")

	list := &workv1.ManifestWorkList{}
	if err := h.List(t.Context(), list, client.InNamespace(name)); err != nil || len(list.Items) != 1 ||
		list.Items[0].Generation != w.Generation {
		t.Errorf("works %+v, %v", list.Items, err)
	}
	awaitConfigMap(t, m, ns, "one", "1")
	awaitConfigMap(t, m, ns, "two", "1")
}

// CA-31 CA-34: a work that was created by a placement follows it, and goes with its objects; without an agent only by force.
func TestCLIWorkByPlacement(t *testing.T) {
	t.Parallel()
	const first, second = "cli-work-a", "cli-work-b"
	env.Join(t, hub, managed, first)
	agent := env.Join(t, hub, managed, second)
	h, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, "cli-work-target")
	decision := decide(t, h, "cli-work", first)
	dir := t.TempDir()
	for file, content := range map[string]string{
		"kustomization.yaml": "resources: [map.yaml]\nnamespace: " + ns + "\n",
		"map.yaml":           configMap("elsewhere", "built", "1"),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create := []string{"create", "work", "moved", "-k", dir, "--placement", "cli-work/cli-work", "--overwrite"}
	hub.Capstan(t, "", create...).Succeeds(t, "create work moved in cluster "+first)
	awaitConfigMap(t, m, ns, "built", "1")
	redecide(t, h, decision, second)
	hub.Capstan(t, "", create...).Succeeds(t, "create work moved in cluster "+second, "delete work moved in cluster "+first)
	awaitNoWork(t, h, first)
	awaitCondition(t, h, work(second, "moved"), "Applied", metav1.ConditionTrue)
	hub.Capstan(t, "", "get", "works", "moved", "-c", second, "-o", "name").Succeeds(t, "manifestwork.work.open-cluster-management.io/moved\n")

	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	remove := []string{"delete", "work", "moved", "--cluster", second}
	hub.Interrupted(t, "manifestworks", remove...).Ends(t, env.CodeInterrupted)
	hub.Capstan(t, "", append(remove, "--force")...).Succeeds(t, "work moved in cluster "+second+" is deleted")
}

// CA-31
func TestCLIReplicaSet(t *testing.T) {
	t.Parallel()
	const name = "cli-set"
	h := hub.Client(t)
	clusters := clusterNamespaces(t, h, name+"-c", 2)
	decide(t, h, name, clusters...)
	create := []string{"create", "work", "web", "-f", "-", "--placement", name + "/" + name, "--replicaset"}
	hub.Capstan(t, version(name, "1"), create...).Succeeds(t, "create manifestworkreplicaset web in namespace "+name)
	set := replicaSet(name, "web", "")
	awaitUpdated(t, h, set, "1", 2, 2)
	hub.Capstan(t, version(name, "2"), create...).Ends(t, 1, "--overwrite")
	hub.Capstan(t, version(name, "2"), append(create, "--overwrite")...).Succeeds(t, "update manifestworkreplicaset web in namespace "+name)
	awaitUpdated(t, h, set, "2", 2, 2)
	found, err := worksOf(t.Context(), h, set)
	if err != nil || len(found) != 2 {
		t.Fatalf("%d works, %v", len(found), err)
	}
	hub.Capstan(t, "", "delete", "work", found[0].Name, "--cluster", found[0].Namespace).Ends(t, 1, "belongs to ManifestWorkReplicaSet "+name+
		".web")
}
