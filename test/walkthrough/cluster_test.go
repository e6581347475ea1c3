package walkthrough

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster"
)

// cluster is one with pods, and a user of the command line whose kubeconfig leads there.
type cluster struct {
	*realcluster.Cluster
	home string
}

func newCluster(t *testing.T, started *realcluster.Cluster) cluster {
	t.Helper()
	return cluster{Cluster: started, home: t.TempDir()}
}

// importImages gives the node images of this commit.
func (c cluster) importImages(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		c.Import(t, filepath.Join(images, name+".tar"))
	}
}

// tagged is the file of --bundle-version-overrides that chooses images with a tag.
func tagged(t *testing.T, tag string) (flag, file string) {
	t.Helper()
	return "--bundle-version-overrides", writeFile(t, `{"ocm": "`+tag+`"}`)
}

// capstan runs the command line, which must succeed, and returns what it writes to standard output.
func (c cluster) capstan(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refused runs the command line, which must fail, and returns what it says.
func (c cluster) refused(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t, args...)
	if err == nil {
		t.Fatalf("capstan %s succeeds:\n%s", strings.Join(args, " "), out)
	}
	return err.Error()
}

// output runs the command line, which must succeed, and returns all that it writes, to standard error, too.
func (c cluster) output(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	out, err := newCommand(ctx, t, "capstan", c.Kubeconfig, c.home, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("capstan %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (c cluster) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return capstan(t, c.Kubeconfig, c.home, args...)
}

// interrupted runs the command line until it watches a resource, and returns what it says when it is interrupted then.
func (c cluster) interrupted(t *testing.T, watched string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	command := newCommand(ctx, t, "capstan", c.Kubeconfig, c.home, args...)
	env.InterruptOnceItWatches(command, watched)
	if err := command.Run(); command.ProcessState.ExitCode() != env.CodeInterrupted || ctx.Err() != nil {
		t.Fatalf("capstan %s: %v\n%s", strings.Join(args, " "), err, command.Stderr)
	}
	return fmt.Sprint(command.Stderr)
}

// capstan runs the command line of a user with a kubeconfig, and returns what it writes to standard output.
func capstan(t *testing.T, kubeconfig, home string, args ...string) (string, error) {
	t.Helper()
	return runCommand(t, "capstan", kubeconfig, home, args...)
}

// runCommand runs a program in bin/ for a user with a kubeconfig, and returns what it writes to standard output.
func runCommand(t *testing.T, program, kubeconfig, home string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	command := newCommand(ctx, t, program, kubeconfig, home, args...)
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), nil
}

// commandTimeout is for commands that wait for pods. It is longer than their own --timeout, after which they say what these lack.
const commandTimeout = 6 * time.Minute

// newCommand is a program in bin/ for a user with a kubeconfig. In the home of the user is what programs remember of a cluster: another
// one may have its address later.
func newCommand(ctx context.Context, t *testing.T, program, kubeconfig, home string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := env.Binary(program)
	if err != nil {
		t.Fatal(err)
	}
	command := env.Command(ctx, path, args...)
	command.Env = env.Environ("KUBECONFIG="+kubeconfig, "CAPSTAN_HOME="+home, "KUBECACHEDIR="+filepath.Join(home, "cache"))
	return command
}

// deleteWork deletes a work, and waits until its pods have ended.
func (c cluster) deleteWork(t *testing.T, name, managed string) {
	t.Helper()
	c.capstan(t, "delete", "work", name, "--clusters", managed, "--timeout", "300")
}

// initialize makes the cluster a hub, and returns what the command says.
func (c cluster) initialize(t *testing.T, flags ...string) string {
	t.Helper()
	flag, file := tagged(t, tag)
	return c.capstan(t, append([]string{"init", "--wait", flag, file}, flags...)...)
}

// join runs the command that init has printed, for a cluster of that name.
func (c cluster) join(t *testing.T, initialized, name string, flags ...string) {
	t.Helper()
	flag, file := tagged(t, tag)
	args := append(joinCommand(t, initialized, name), flag, file)
	c.capstan(t, append(args, flags...)...)
}

// joinCommand is the command that the output of init has for a cluster, without the name of the program.
func joinCommand(t *testing.T, output, cluster string) []string {
	t.Helper()
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "capstan" && words[1] == "join" {
			return strings.Fields(strings.ReplaceAll(strings.Join(words[1:], " "), "<cluster_name>", cluster))
		}
	}
	t.Fatalf("init prints no command to join:\n%s", output)
	return nil
}

// accept accepts a cluster, as an administrator of the hub, and waits until it is available.
func (c cluster) accept(t *testing.T, name string, flags ...string) {
	t.Helper()
	c.capstan(t, append([]string{"accept", "--clusters", name, "--wait"}, flags...)...)
	c.awaitAvailable(t, name)
}

// awaitAvailable waits until the hub says that the agent of a cluster works.
func (c cluster) awaitAvailable(t *testing.T, name string) {
	t.Helper()
	c.awaitManagedCluster(t, name, func(managed *clusterv1.ManagedCluster) error {
		return haveConditions(managed.Status.Conditions, fleet.ConditionClusterAvailable+"=True")
	})
}

func (c cluster) awaitManagedCluster(t *testing.T, name string, check func(*clusterv1.ManagedCluster) error) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		managed := &clusterv1.ManagedCluster{}
		if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, managed); err != nil {
			return err
		}
		return check(managed)
	})
}

// forget deletes a cluster on the hub, as an administrator does after "capstan unjoin".
func (c cluster) forget(t *testing.T, name string) {
	t.Helper()
	managed := &clusterv1.ManagedCluster{}
	managed.Name = name
	c.delete(t, managed)
	c.AwaitGone(t, managed)
}

// create creates objects.
func (c cluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("cluster %s: create %T %s: %v", c.Name, object, client.ObjectKeyFromObject(object), err)
		}
	}
}

// delete deletes objects, and does not wait until they are gone.
func (c cluster) delete(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Client.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
			t.Fatalf("cluster %s: delete %T %s: %v", c.Name, object, client.ObjectKeyFromObject(object), err)
		}
	}
}

// deleteRequests deletes certificate requests, as Kubernetes does after an hour.
func (c cluster) deleteRequests(t *testing.T, of client.DeleteAllOfOption) {
	t.Helper()
	if err := c.Client.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{}, of); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}

// deleteNamespace deletes a namespace, and waits until it is gone.
func (c cluster) deleteNamespace(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		namespace := &corev1.Namespace{}
		namespace.Name = name
		c.delete(t, namespace)
		c.AwaitGone(t, namespace)
	}
}

// loseNamespace deletes a namespace that an operator makes again, and waits until the one that there was is gone.
func (c cluster) loseNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Name: name}, namespace); err != nil {
		t.Fatal(err)
	}
	c.delete(t, namespace)
	c.Eventually(t, func(ctx context.Context) error {
		now := &corev1.Namespace{}
		err := c.Client.Get(ctx, types.NamespacedName{Name: name}, now)
		if err == nil && now.UID == namespace.UID {
			err = fmt.Errorf("namespace %s is still being deleted", name)
		}
		return client.IgnoreNotFound(err)
	})
}

// deleteDeployment deletes a Deployment with its pods, and waits until they are gone.
func (c cluster) deleteDeployment(t *testing.T, namespace, name string) {
	t.Helper()
	err := c.Clientset.AppsV1().Deployments(namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
	c.awaitNoPods(t, namespace, name)
}

// awaitNoPods waits until a namespace has no pods, or none of an app if that is not empty.
func (c cluster) awaitNoPods(t *testing.T, namespace, app string) {
	t.Helper()
	var options []client.ListOption
	if app != "" {
		options = append(options, client.MatchingLabels{fleet.LabelApp: app})
	}
	c.Eventually(t, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods, append(options, client.InNamespace(namespace))...); err != nil || len(pods.Items) == 0 {
			return err
		}
		return fmt.Errorf("pod %s/%s is there", namespace, pods.Items[0].Name)
	})
}

// awaitHubUp waits until the ClusterManager says that the hub works, in its present generation.
func (c cluster) awaitHubUp(t *testing.T) {
	t.Helper()
	c.awaitManager(t, func(manager *operatorv1.ClusterManager) error {
		return errors.Join(c.runsEverywhere(t.Context()), haveConditions(manager.Status.Conditions, "Applied=True", "Progressing=False",
			"HubRegistrationDegraded=False", "HubPlacementDegraded=False"))
	})
}

func (c cluster) awaitManager(t *testing.T, check func(*operatorv1.ClusterManager) error) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		manager := &operatorv1.ClusterManager{}
		if err := c.Client.Get(ctx, types.NamespacedName{Name: "cluster-manager"}, manager); err != nil {
			return err
		}
		return check(manager)
	})
}

// awaitAgentUp waits until the Klusterlet says that the agent works.
func (c cluster) awaitAgentUp(t *testing.T, name string) {
	t.Helper()
	c.awaitStatus(t, name, func(klusterlet *operatorv1.Klusterlet) error {
		return errors.Join(c.runsEverywhere(t.Context()), haveConditions(klusterlet.Status.Conditions, "Applied=True", "Available=True",
			"RegistrationDesiredDegraded=False", "WorkDesiredDegraded=False", "HubConnectionDegraded=False"))
	})
}

func (c cluster) awaitStatus(t *testing.T, name string, check func(*operatorv1.Klusterlet) error) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		klusterlet := &operatorv1.Klusterlet{}
		if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, klusterlet); err != nil {
			return err
		}
		return check(klusterlet)
	})
}

// runsEverywhere is an error if a pod of ours is not ready, or is being deleted.
func (c cluster) runsEverywhere(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods); err != nil {
		return err
	}
	var problems []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if strings.HasPrefix(pod.Namespace, "open-cluster-management") && (pod.DeletionTimestamp != nil || !isReady(pod)) {
			problems = append(problems, fmt.Errorf("pod %s/%s is not ready", pod.Namespace, pod.Name))
		}
	}
	return errors.Join(problems...)
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// haveConditions is an error if conditions are not as given: each as Type=Status, or with a text of the message after a colon.
func haveConditions(conditions []metav1.Condition, desired ...string) error {
	for _, want := range desired {
		rest, text, _ := strings.Cut(want, ":")
		kind, status, _ := strings.Cut(rest, "=")
		condition := meta.FindStatusCondition(conditions, kind)
		if condition == nil || string(condition.Status) != status || !strings.Contains(condition.Message, text) {
			return fmt.Errorf("no condition %s among %v", want, conditions)
		}
	}
	return nil
}

// awaitNotServed waits until the API server has no such resource any more, which it forgets a moment after its definition is gone.
func (c cluster) awaitNotServed(t *testing.T, resource schema.GroupVersionResource) {
	t.Helper()
	c.Eventually(t, func(context.Context) error {
		_, lists, err := c.Clientset.Discovery().ServerGroupsAndResources()
		if err != nil {
			return err
		}
		for _, list := range lists {
			for _, served := range list.APIResources {
				if list.GroupVersion == resource.GroupVersion().String() && served.Name == resource.Resource {
					return fmt.Errorf("the server still has a resource type %q", served.Name)
				}
			}
		}
		return nil
	})
}

// podNames are the names of the Deployments that the pods of a namespace are of.
func (c cluster) podNames(t *testing.T, namespace string) map[string]int {
	t.Helper()
	names := map[string]int{}
	for _, pod := range c.Pods(t, namespace, nil) {
		name := strings.TrimSuffix(pod.GenerateName, "-")
		if at := strings.LastIndex(name, "-"); at > 0 {
			name = name[:at] // of the ReplicaSet
		}
		names[name]++
	}
	return names
}

// says fails the test if a text has not all of the words.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

func writeFile(t *testing.T, content string) (path string) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(content)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

func readText(t *testing.T, path string) string { t.Helper(); return string(readFile(t, path)) }

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
