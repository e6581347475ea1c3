package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// Hub and agent are pulled from a registry that asks for a password: by the Secret of a flag, then by a mirror that the nodes have, without
// any flag. Nothing is left of either.
//
// CA-10, CA-12, CA-16, CM-28, HC-01, HC-02, HC-05, KL-27
func TestPrivateRegistry(t *testing.T) {
	slow(t)
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	private := realcluster.StartRegistry(t, filepath.Join(images, "capstan-hub.tar"), filepath.Join(images, "capstan-agent.tar"),
		filepath.Join(images, "helloworld-addon.tar"))
	beforeHub, before := hub.Inventory(t), managed.Inventory(t)
	for _, way := range []struct {
		name    string
		install func(t *testing.T, hub, managed cluster, private *realcluster.Registry)
	}{
		{"by a pull secret", installWithSecret},
		{"by a mirror", installByMirror},
	} {
		passed := t.Run(way.name, func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
			way.install(t, hub, managed, private)
			managed.capstan(t, "unjoin", "--cluster-name", "cluster1", "--wait")
			managed.AwaitInventory(t, before)
			hub.forget(t, "cluster1")
			hub.clean(t, hub, []string{"cluster1"}, "--wait")
			hub.AwaitInventory(t, beforeHub)
		})
		if !passed {
			t.FailNow()
		}
	}
}

// installWithSecret installs hub and agent with a wrong password and without one, which the commands say, and then with the right one. The
// operators have the pull policy Always.
func installWithSecret(t *testing.T, hub, managed cluster, private *realcluster.Registry) {
	t.Helper()
	hub.UseRegistry(t, private)
	managed.UseRegistry(t, private)
	repository := private.Host + "/capstan-io"
	wrong, right := private.DockerConfig(private.User, "guessed"), private.DockerConfig(private.User, private.Password)
	always := writeFile(t, "images: {imagePullPolicy: Always}\n")

	hubFlags := []string{"--image-registry", repository, "--cluster-manager-values-file", always, "--image-pull-credential-file"}
	tagFlag, tagFile := tagged(t, tag)
	refused := hub.refused(t, slices.Concat([]string{"init", "--wait", tagFlag, tagFile}, hubFlags, []string{writeFile(t, wrong)})...)
	says(t, refused, "waiting does not mend this", repository+"/capstan-hub:"+tag+" cannot be pulled", "401 Unauthorized",
		"--image-pull-credential-file")
	initialized := hub.initialize(t, append(hubFlags, writeFile(t, right))...)

	join := append(joinCommand(t, initialized, "cluster1"), "--wait", tagFlag, tagFile, "--image-registry", repository,
		"--klusterlet-values-file", always)
	says(t, managed.refused(t, join...), "waiting does not mend this", repository+"/capstan-agent:"+tag+" cannot be pulled",
		"--image-pull-credential-file")
	managed.capstan(t, append(join, "--image-pull-credential-file", writeFile(t, right))...)
	hub.accept(t, "cluster1")

	for _, namespace := range []string{fleet.NamespaceOperators, fleet.NamespaceHub} {
		hub.runsPrivately(t, namespace, repository, right)
	}
	for _, namespace := range []string{fleet.NamespaceOperators, fleet.NamespaceAgent} {
		managed.runsPrivately(t, namespace, repository, right)
	}
	hub.pullsOperatorAgain(t, private, "capstan-io/capstan-hub")
	hub.awaitHubUp(t)
	managed.pullsOperatorAgain(t, private, "capstan-io/capstan-agent")
	managed.awaitAgentUp(t, "klusterlet")
	managed.pullsAddOn(t, repository+"/helloworld-addon:"+tag, right)
}

// installByMirror installs hub and agent with the registry that images have by default, on nodes that pull from a mirror of it.
func installByMirror(t *testing.T, hub, managed cluster, private *realcluster.Registry) {
	t.Helper()
	mirrored, _, _ := strings.Cut(registry, "/")
	hub.UseMirror(t, mirrored, private)
	managed.UseMirror(t, mirrored, private)
	ofHub, ofAgent := private.Pulls("capstan-io/capstan-hub"), private.Pulls("capstan-io/capstan-agent")
	managed.join(t, hub.initialize(t), "cluster1", "--wait")
	hub.accept(t, "cluster1")
	hub.runsImagesOf(t, registry, fleet.NamespaceOperators, fleet.NamespaceHub)
	managed.runsImagesOf(t, registry, fleet.NamespaceOperators, fleet.NamespaceAgent)
	if private.Pulls("capstan-io/capstan-hub") == ofHub || private.Pulls("capstan-io/capstan-agent") == ofAgent {
		t.Error("nobody has asked the mirror")
	}
}

// runsImagesOf fails the test unless the images of all pods of the namespaces are below a path of a registry.
func (c cluster) runsImagesOf(t *testing.T, path string, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		pods := c.Pods(t, namespace, nil)
		if len(pods) == 0 {
			t.Errorf("there are no pods in namespace %s", namespace)
		}
		for _, pod := range pods {
			if image := pod.Spec.Containers[0].Image; !strings.HasPrefix(image, path) {
				t.Errorf("pod %s/%s runs the image %s", namespace, pod.Name, image)
			}
		}
	}
}

// runsPrivately fails the test unless the pods of a namespace have images below a path of a registry, and the Secret with a Docker
// configuration to pull them with.
func (c cluster) runsPrivately(t *testing.T, namespace, path, dockerConfig string) {
	t.Helper()
	c.runsImagesOf(t, path+"/", namespace)
	for _, pod := range c.Pods(t, namespace, nil) {
		if !slices.Contains(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: fleet.SecretImagePullCredentials}) {
			t.Errorf("pod %s/%s has the pull secrets %v", namespace, pod.Name, pod.Spec.ImagePullSecrets)
		}
	}
	if err := c.hasPullSecret(t.Context(), namespace, dockerConfig); err != nil {
		t.Error(err)
	}
}

// hasPullSecret is an error if a namespace does not have the Secret with a Docker configuration.
func (c cluster) hasPullSecret(ctx context.Context, namespace, dockerConfig string) error {
	secret := &corev1.Secret{}
	if err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: fleet.SecretImagePullCredentials}, secret); err != nil {
		return err
	}
	if secret.Type != corev1.SecretTypeDockerConfigJson || string(secret.Data[corev1.DockerConfigJsonKey]) != dockerConfig {
		return fmt.Errorf("the Secret %s/%s of type %s is not what the user has given", namespace, secret.Name, secret.Type)
	}
	return nil
}

// pullsOperatorAgain kills the operator, and waits until the node has asked the registry for its image, which it has.
func (c cluster) pullsOperatorAgain(t *testing.T, private *realcluster.Registry, repository string) {
	t.Helper()
	before := private.Pulls(repository)
	c.killPods(t, fleet.NamespaceOperators)
	c.Eventually(t, func(context.Context) error {
		if private.Pulls(repository) == before {
			return fmt.Errorf("%s has not been pulled again", repository)
		}
		return nil
	})
}

// addOnPod has an image that the node does not have, and ends.
const addOnPod = `
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: private-addon}
spec:
  restartPolicy: Never
  imagePullSecrets: [{name: ` + fleet.SecretImagePullCredentials + `}]
  containers:
  - name: agent
    image: IMAGE
    imagePullPolicy: Always
    args: [--help]
`

// pullsAddOn makes sure that the agent of an add-on is pulled in a namespace that is marked as one of add-ons.
func (c cluster) pullsAddOn(t *testing.T, image, dockerConfig string) {
	t.Helper()
	const namespace = "private-addon"
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
		Labels: map[string]string{fleet.LabelAddOnAgentNamespace: "true"}}})
	c.Eventually(t, func(ctx context.Context) error {
		account := types.NamespacedName{Namespace: namespace, Name: "default"} // without it, no pod is let in
		return errors.Join(c.hasPullSecret(ctx, namespace, dockerConfig), c.Client.Get(ctx, account, &corev1.ServiceAccount{}))
	})
	c.Apply(t, strings.ReplaceAll(addOnPod, "IMAGE", image))
	c.AwaitPhase(t, namespace, "agent", corev1.PodSucceeded)
	c.deleteNamespace(t, namespace)
}
