package walkthrough

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// hello is a pod that runs until it is deleted.
const hello = `
apiVersion: v1
kind: Pod
metadata: {name: hello, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: hello
    image: ` + realcluster.TestImage + `
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'echo "Hello, Kubernetes!" && sleep 3600']
`

// note is a ConfigMap.
const note = `
apiVersion: v1
kind: ConfigMap
metadata: {name: note, namespace: default}
`

// createWork gives a cluster the pod hello, and returns it when it runs and the hub says so.
func (c cluster) createWork(t *testing.T, managed cluster, name string) *corev1.Pod {
	t.Helper()
	c.capstan(t, "create", "work", "hello", "--clusters", name, "-f", writeFile(t, hello))
	pod := managed.AwaitPhase(t, "default", "hello", corev1.PodRunning)
	c.awaitWork(t, name)
	return pod
}

// awaitWork waits until the hub says that the work of a cluster is applied and what it has runs.
func (c cluster) awaitWork(t *testing.T, name string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		work := &workv1.ManifestWork{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: name, Name: "hello"}, work); err != nil {
			return err
		}
		return haveConditions(work.Status.Conditions, fleet.ConditionApplied+"=True", fleet.ConditionAvailable+"=True")
	})
}

// reaches makes sure that what the hub has for a cluster still gets there, and comes back.
func (c cluster) reaches(t *testing.T, managed cluster, name string) {
	t.Helper()
	c.capstan(t, "create", "work", "note", "--clusters", name, "-f", writeFile(t, note))
	key := types.NamespacedName{Namespace: "default", Name: "note"}
	managed.Eventually(t, func(ctx context.Context) error { return managed.Client.Get(ctx, key, &corev1.ConfigMap{}) })
	c.deleteWork(t, "note", name)
	managed.AwaitGone(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
}
