package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CA-04: a command that misses a namespace of the hub succeeds when that is created as the error advises.
func TestAdviceToCreateNamespaces(t *testing.T) {
	t.Parallel()
	const name, config = "cli-advice", `{"apiVersion":"addon.open-cluster-management.io/v1alpha1","kind":"AddOnDeploymentConfig",` +
		`"metadata":{"namespace":"cli-advice-config","name":"config"},"spec":{}}`
	h := framework.Hub.Client(t)
	framework.AcceptAll(t, name)
	framework.Create(t, h, framework.ClusterSet(name, clusterv1beta2.ExclusiveClusterSetLabel, nil))
	framework.Hub.Capstan(t, framework.ConfigMap(metav1.NamespaceDefault, "agent", "1"), "addon", "create", name, "-f", "-").Succeeds(t)
	for namespace, test := range map[string]struct{ args, stdin string }{
		"cli-advice-placement": {"create placement web --namespace cli-advice-placement", ""},
		"cli-advice-binding":   {"clusterset bind cli-advice --namespace cli-advice-binding", ""},
		"cli-advice-config":    {"addon enable --names cli-advice --clusters cli-advice --config-file -", config},
	} {
		args := strings.Fields(test.args)
		refused := framework.Hub.Capstan(t, test.stdin, args...)
		refused.Ends(t, 1, fmt.Sprintf("the hub has no namespace %q", namespace))
		framework.FollowAdvice(t, h, refused.ErrOut, "create namespace "+namespace)
		framework.Hub.Capstan(t, test.stdin, args...).Succeeds(t)
	}
}

// CA-31, gap W12: a work that a dry run holds back is applied when its annotation is taken off, as the warning advises.
func TestAdviceToApplyAfterDryRun(t *testing.T) {
	t.Parallel()
	const name = "cli-held-back"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	framework.Create(t, h, framework.Annotated(framework.Work(name, name, framework.ConfigMap(ns, "cm", "1")),
		fleet.AnnotationDryRun, fleet.DryRunServer))
	updated := framework.Hub.Capstan(t, framework.ConfigMap(ns, "cm", "2"),
		"create", "work", name, "-f", "-", "--clusters", name, "--overwrite")
	updated.Succeeds(t, "update work "+name+" in cluster "+name)
	framework.FollowAdvice(t, h, updated.ErrOut, "annotate manifestwork")
	framework.AwaitConfigMap(t, m, ns, "cm", "2")
}

// RG-18, CA-34: the namespace of a cluster without an agent that is being deleted waits for the works in it. They go by force, as the
// condition of the cluster advises, and the hub sets up the cluster again.
func TestAdviceForANamespaceWithoutAgent(t *testing.T) {
	t.Parallel()
	const name = "cli-namespace-lost"
	framework.AcceptAll(t, name)
	h := framework.Hub.Client(t)
	w := workOfAgent(name)
	framework.Create(t, h, w)
	if err := h.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	deleteAsAdvised(t, framework.Hub, name, fleet.ConditionHubAccepted)
	framework.AwaitGone(t, h, w)
	framework.AwaitHubAccepted(t, h, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
}

// RG-44, CA-34: without the feature gate ResourceCleanup, a cluster without an agent that is being deleted goes when its works do, by
// force, as its condition advises.
func TestAdviceWithoutResourceCleanup(t *testing.T) {
	t.Parallel()
	const name = "cli-kept"
	own := env.StartHub(t, "registration", "--feature-gates", "ResourceCleanup=false")
	h := own.Client(t)
	framework.Create(t, h, framework.AcceptedCluster(name))
	framework.AwaitHubAccepted(t, h, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	framework.Create(t, h, workOfAgent(name))
	cluster := framework.DeleteCluster(t, h, name)
	deleteAsAdvised(t, own, name, fleet.ConditionDeleting)
	framework.AwaitGone(t, h, cluster)
}

// CA-11: what Helm has kept of a hub that --force has taken over is deleted as the warning advises, and nothing else.
func TestAdviceAfterHelm(t *testing.T) {
	t.Parallel()
	const release = "ocm"
	server := env.StartSandbox(t)
	c := server.Client(t)
	server.Capstan(t, "", "init").Succeeds(t)
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: "cluster-manager"}}
	ofHelm := framework.Merge(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {
		"meta.helm.sh/release-name": "` + release + `", "meta.helm.sh/release-namespace": "` + fleet.NamespaceOperators + `"}}}`)
	if err := c.Patch(t.Context(), operator, ofHelm, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	record := func(name string) *corev1.Secret {
		return &corev1.Secret{Type: "helm.sh/release.v1", ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators,
			Name: "sh.helm.release.v1." + name + ".v1", Labels: map[string]string{"owner": "helm", "name": name}}}
	}
	framework.Create(t, c, record(release), record("other"))
	server.Capstan(t, "", "init").Ends(t, 1, "is kept by Helm (release "+release)
	forced := server.Capstan(t, "", "init", "--force")
	forced.Succeeds(t)
	framework.FollowAdvice(t, c, forced.ErrOut, "delete secrets")
	framework.AwaitGone(t, c, record(release))
	framework.Get(t, c, client.ObjectKeyFromObject(record("other")), &corev1.Secret{})
	if again := server.Capstan(t, "", "init"); again.Code != 0 || strings.Contains(again.ErrOut, "Helm still has") {
		t.Errorf("the next run ends with %d and says %s", again.Code, again.ErrOut)
	}
}

// RG-01, CA-04, CA-18: an agent that is not accepted yet, or no more, says by which command it is, and so does the hub when it
// refuses a work of a denied cluster. Each has the agent work again.
func TestAdviceToAccept(t *testing.T) {
	t.Parallel()
	const name = "cli-accepted"
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitRequests(t, name, 1)
	framework.AwaitLog(t, agent.Process, "Registering; an administrator of the hub has to accept the cluster", 1)
	runAdvised(t, agent.Log(), "accept --clusters ").Succeeds(t)
	h := framework.Hub.Client(t)
	env.AwaitAvailable(t, h, name)

	create := func(work string) env.Result {
		t.Helper()
		return framework.Hub.Capstan(t, framework.ConfigMap(metav1.NamespaceDefault, name, "1"),
			"create", "work", work, "--clusters", name, "-f", "-")
	}
	framework.Hub.Capstan(t, "", "deny", "--clusters", name).Succeeds(t)
	var refused env.Result
	tried := 0
	env.Eventually(t, func(context.Context) error {
		tried++
		if refused = create(fmt.Sprintf("tried-%d", tried)); refused.Code == 0 {
			return errors.New("the hub has not seen the denial yet")
		}
		return nil
	})
	runAdvised(t, refused.ErrOut, "get clusters").Succeeds(t, name)
	runAdvised(t, refused.ErrOut, "accept --clusters ").Succeeds(t)
	create("web").Succeeds(t, "create work web in cluster "+name)
	framework.AwaitHubAccepted(t, h, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)

	framework.Hub.Capstan(t, "", "deny", "--clusters", name).Succeeds(t)
	framework.AwaitHubAccepted(t, h, name, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied) // it has taken the rights away
	connected := strings.Count(agent.Log(), "Connected to the hub")
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	const waits = "Waiting for the hub; if the cluster is not accepted there, accept it"
	framework.AwaitLog(t, agent.Process, waits, 1)
	_, after, _ := strings.Cut(agent.Log(), waits)
	runAdvised(t, after, "accept --clusters ").Succeeds(t)
	framework.AwaitLog(t, agent.Process, "Connected to the hub", connected+1)
}

// CA-04: the hub says how a cluster is connected that is not, and it is then.
func TestAdviceToConnect(t *testing.T) {
	t.Parallel()
	const name = "cli-unconnected"
	env.Join(t, framework.Hub, framework.Managed, name, "--namespace", framework.Namespace(t, framework.Managed.Client(t), name))
	read := []string{"get", "configmaps", "-n", name, "--clusters", name}
	refused := framework.Hub.Capstan(t, "", read...)
	refused.Ends(t, 1, "does not have the add-on cluster-proxy")
	runAdvised(t, refused.ErrOut, "proxy health").Succeeds(t, name)
	runAdvised(t, refused.ErrOut, "addon enable --names ").Succeeds(t)
	env.Eventually(t, func(context.Context) error {
		if after := framework.Hub.Capstan(t, "", read...); strings.Contains(after.ErrOut, "not connected") {
			return errors.New(after.ErrOut)
		}
		return nil
	})
}

// runAdvised runs on the shared hub the command of capstan that a text advises and that begins with some words.
func runAdvised(t *testing.T, text, command string) env.Result {
	t.Helper()
	found := regexp.MustCompile(`capstan (` + command + `[a-z0-9 -]*)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("capstan %s is not advised in: %s", command, text)
	}
	return framework.Hub.Capstan(t, "", strings.Fields(found[1])...)
}

// workOfAgent is a work that an agent has to finish.
func workOfAgent(cluster string) *workv1.ManifestWork {
	w := framework.Work(cluster, "web", framework.ConfigMap(metav1.NamespaceDefault, cluster, "1"))
	w.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	return w
}

var deletionByForce = regexp.MustCompile(`capstan (delete work NAME --clusters \S+ --force)`)

// deleteAsAdvised waits until a condition of a cluster advises to delete works by force, and does that with its work.
func deleteAsAdvised(t *testing.T, on *env.Server, cluster, condition string) {
	t.Helper()
	var advised string
	framework.AwaitObject(t, on.Client(t), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		func(mc *clusterv1.ManagedCluster) error {
			if c := meta.FindStatusCondition(mc.Status.Conditions, condition); c != nil {
				if found := deletionByForce.FindStringSubmatch(c.Message); found != nil {
					advised = found[1]
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", mc.Status.Conditions)
		})
	on.Capstan(t, "", strings.Fields(strings.Replace(advised, "NAME", "web", 1))...).Succeeds(t, "work web in cluster "+cluster+" is deleted")
}
