package cli

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
	"github.com/capstan-io/capstan/test/integration/framework"
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
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	diff := func(manifests string) env.Result {
		return framework.Hub.Capstan(t, manifests, "diff", "work", "web", "-f", "-", "--cluster", name)
	}
	one, two := framework.ConfigMap(ns, "one", "1"), framework.ConfigMap(ns, "two", "1")
	diff(one).Ends(t, 1)
	framework.Hub.Capstan(t, one+two, "create", "work", "web", "-f", "-", "--cluster", name, "--dry-run=server").Succeeds(t,
		"2 would be created", "ConfigMap cli-diff/two: would be created")
	awaitNoWork(t, h, name)

	framework.Hub.Capstan(t, one+two, "create", "work", "web", "-f", "-", "--cluster", name).Succeeds(t, "create work web in cluster "+name)
	w := framework.AwaitCondition(t, h, framework.Work(name, "web"), "Applied", metav1.ConditionTrue)
	diff(one+two).Succeeds(t, "2 would not change")

	changed := diff(framework.ConfigMap(ns, "one", "2"))
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
	framework.AwaitConfigMap(t, m, ns, "one", "1")
	framework.AwaitConfigMap(t, m, ns, "two", "1")
}

// CA-31 CA-34: a work that was created by a placement follows it, and goes with its objects; without an agent only by force.
func TestCLIWorkByPlacement(t *testing.T) {
	t.Parallel()
	const first, second = "cli-work-a", "cli-work-b"
	env.Join(t, framework.Hub, framework.Managed, first)
	agent := env.Join(t, framework.Hub, framework.Managed, second)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "cli-work-target")
	decision := framework.Decide(t, h, "cli-work", first)
	dir := t.TempDir()
	for file, content := range map[string]string{
		"kustomization.yaml": "resources: [map.yaml]\nnamespace: " + ns + "\n",
		"map.yaml":           framework.ConfigMap("elsewhere", "built", "1"),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create := []string{"create", "work", "moved", "-k", dir, "--placement", "cli-work/cli-work", "--overwrite"}
	framework.Hub.Capstan(t, "", create...).Succeeds(t, "create work moved in cluster "+first)
	framework.AwaitConfigMap(t, m, ns, "built", "1")
	framework.Redecide(t, h, decision, second)
	framework.Hub.Capstan(t, "", create...).Succeeds(t, "create work moved in cluster "+second, "delete work moved in cluster "+first)
	awaitNoWork(t, h, first)
	framework.AwaitCondition(t, h, framework.Work(second, "moved"), "Applied", metav1.ConditionTrue)
	framework.Hub.Capstan(t, "", "get", "works", "moved", "-c", second, "-o", "name").Succeeds(t, "manifestwork.work.open-cluster-management.io/moved\n")

	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	remove := []string{"delete", "work", "moved", "--cluster", second}
	framework.Hub.Interrupted(t, "manifestworks", remove...).Ends(t, env.CodeInterrupted)
	framework.Hub.Capstan(t, "", append(remove, "--force")...).Succeeds(t, "work moved in cluster "+second+" is deleted")
}

// CA-31
func TestCLIReplicaSet(t *testing.T) {
	t.Parallel()
	const name = "cli-set"
	h := framework.Hub.Client(t)
	clusters := framework.ClusterNamespaces(t, h, name+"-c", 2)
	framework.Decide(t, h, name, clusters...)
	create := []string{"create", "work", "web", "-f", "-", "--placement", name + "/" + name, "--replicaset"}
	framework.Hub.Capstan(t, framework.SetManifest(name, "1"), create...).Succeeds(t, "create manifestworkreplicaset web in namespace "+name)
	set := framework.ReplicaSet(name, "web", "")
	framework.AwaitUpdated(t, h, set, "1", 2, 2)
	framework.Hub.Capstan(t, framework.SetManifest(name, "2"), create...).Ends(t, 1, "--overwrite")
	framework.Hub.Capstan(t, framework.SetManifest(name, "2"), append(create, "--overwrite")...).
		Succeeds(t, "update manifestworkreplicaset web in namespace "+name)
	framework.AwaitUpdated(t, h, set, "2", 2, 2)
	found, err := framework.WorksOf(t.Context(), h, set)
	if err != nil || len(found) != 2 {
		t.Fatalf("%d works, %v", len(found), err)
	}
	framework.Hub.Capstan(t, "", "delete", "work", found[0].Name, "--cluster", found[0].Namespace).Ends(t, 1, "belongs to ManifestWorkReplicaSet "+name+
		".web")
}
