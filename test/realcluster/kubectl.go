package realcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner of what Apply applies.
const fieldOwner = client.FieldOwner("realcluster")

// Apply applies manifests of YAML, separated by "---", as "kubectl apply --server-side" does.
func (c *Cluster) Apply(t testing.TB, manifests string) {
	t.Helper()
	if err := c.apply(t.Context(), []byte(manifests)); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}

func (c *Cluster) apply(ctx context.Context, manifests []byte) error {
	objects, err := parse(manifests)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// Delete deletes the objects of manifests, those of the end first, and waits until they are gone.
func (c *Cluster) Delete(t testing.TB, manifests string) {
	t.Helper()
	objects, err := parse([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		object := objects[len(objects)-1-i]
		if err := client.IgnoreNotFound(c.Client.Delete(t.Context(), object)); err != nil {
			t.Fatalf("cluster %s: delete %s %s: %v", c.Name, object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		c.AwaitGone(t, object)
	}
}

func parse(manifests []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifest %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// AwaitGone waits until the object does not exist.
func (c *Cluster) AwaitGone(t testing.TB, object client.Object) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s %s still exists; finalizers %q", object.GetObjectKind().GroupVersionKind().Kind,
				client.ObjectKeyFromObject(object), object.GetFinalizers())
		}
		return err
	})
}

// Logs is what a container has written, or that of its previous run. An empty container is the only one of the pod.
func (c *Cluster) Logs(ctx context.Context, namespace, pod string, options corev1.PodLogOptions) (string, error) {
	output, err := c.Clientset.CoreV1().Pods(namespace).GetLogs(pod, &options).DoRaw(ctx)
	return string(output), err
}

// Exec runs a command in a container of a pod and returns what it writes. An empty container is the first of the pod. The error has what
// the command writes to stderr.
func (c *Cluster) Exec(ctx context.Context, namespace, pod, container string, command ...string) (string, error) {
	request := c.Clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, request.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		err = fmt.Errorf("%s in pod %s/%s: %w: %s", strings.Join(command, " "), namespace, pod, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

// PortForward makes the port of a pod reachable at an address of this machine, for as long as the test runs.
func (c *Cluster) PortForward(t testing.TB, namespace, pod string, port int) (address string) {
	t.Helper()
	roundTripper, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	url := c.Clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, url)
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var stderr bytes.Buffer
	forwarder, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("forward port %d of pod %s/%s: %v: %s", port, namespace, pod, err, &stderr)
	}
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("forward port %d of pod %s/%s: %v", port, namespace, pod, err)
		}
	})
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0].Local))
}

// Import imports the images of archives, as "docker save" writes them. Pods find them by their names if their pull policy is not Always.
func (c *Cluster) Import(t testing.TB, archives ...string) {
	t.Helper()
	for _, n := range c.nodes {
		for _, path := range archives {
			if err := importFile(t.Context(), n, path); err != nil {
				t.Fatalf("node %s: %v", n.Name, err)
			}
		}
	}
}

// ImportTestImage gives TestImage another name, such as that of an image in the manifests of a test, and has it run a command by default.
func (c *Cluster) ImportTestImage(t testing.TB, name string, command ...string) {
	t.Helper()
	images, err := testImages(image{name: name, command: command})
	c.importArchive(t, images, err)
}

// ImportProgram gives the node an image by that name, which has a program at its root.
func (c *Cluster) ImportProgram(t testing.TB, name, path string) {
	t.Helper()
	images, err := programImage(name, path)
	c.importArchive(t, images, err)
}

func (c *Cluster) importArchive(t testing.TB, images []byte, err error) {
	t.Helper()
	for _, n := range c.nodes {
		if err == nil {
			err = n.Import(t.Context(), bytes.NewReader(images))
		}
	}
	if err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}

// NodeExec runs a command on the first node and returns what it writes.
func (c *Cluster) NodeExec(ctx context.Context, name string, args ...string) (string, error) {
	output, err := c.nodes[0].Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s on the node of %s: %w: %s", name, c.Name, err, bytes.TrimSpace(output))
	}
	return string(output), err
}

// Restart kills a program of the first node, such as "kubelet" or "kube-apiserver", and returns when it has been started again, which does not
// say that it is ready.
func (c *Cluster) Restart(t testing.TB, program string) {
	t.Helper()
	if err := c.nodes[0].Restart(t.Context(), program); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}
