package realcluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// web is a Deployment that answers with the hostname, with a Service on port 80 and on a port of the node.
const web = `
apiVersion: v1
kind: Namespace
metadata:
  name: web
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: registry.example.com/web:1
        readinessProbe:
          httpGet: {path: /, port: 8080}
          periodSeconds: 1
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: web
spec:
  type: NodePort
  selector: {app: web}
  ports:
  - {port: 80, targetPort: 8080}
`

// shell is a pod to run commands in.
const shell = `
apiVersion: v1
kind: Pod
metadata:
  name: shell
  namespace: default
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: shell
    image: localhost/test:latest
    imagePullPolicy: Never
    command: [testpod, pause]
`

const serviceAccountFiles = "/var/run/secrets/kubernetes.io/serviceaccount/"

// The tests share two clusters, for time.
func TestClusters(t *testing.T) {
	clusters := StartAll(t, Options{Name: "one"}, Options{Name: "two"})
	one, two := clusters[0], clusters[1]
	for _, c := range clusters {
		c.Apply(t, shell)
		c.AwaitPod(t, "default", "shell")
	}
	one.ImportTestImage(t, "registry.example.com/web:1", "testpod", "serve", ":8080")
	one.Apply(t, web)
	one.AwaitAvailable(t, "web", "web")
	pods := one.Pods(t, "web", map[string]string{"app": "web"})
	if len(pods) != 2 {
		t.Fatalf("%d pods", len(pods))
	}
	pod := pods[0].Name

	t.Run("exec", func(t *testing.T) {
		output, err := one.Exec(t.Context(), "web", pod, "web", "sh", "-c", "hostname")
		if err != nil || strings.TrimSpace(output) != pod {
			t.Errorf("%q, %v", output, err)
		}
		_, err = one.Exec(t.Context(), "web", pod, "", "sh", "-c", "echo it does not work >&2; exit 3")
		if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "it does not work") {
			t.Errorf("a command that fails: %v", err)
		}
	})
	t.Run("logs", func(t *testing.T) {
		output, err := one.Logs(t.Context(), "web", pod, corev1.PodLogOptions{})
		if err != nil || !strings.Contains(output, "serving on :8080") {
			t.Errorf("%q, %v", output, err)
		}
	})
	t.Run("port-forward", func(t *testing.T) {
		address := one.PortForward(t, "web", pod, 8080)
		if answer := httpGet(t, one, "http://"+address); answer != pod {
			t.Errorf("%q answers instead of %s", answer, pod)
		}
	})
	t.Run("DNS", func(t *testing.T) {
		one.inShell(t, "wget -qO- http://web.web.svc.cluster.local", "web-")
		one.inShell(t, "nslookup -type=a web.web.svc.cluster.local", one.service(t).Spec.ClusterIP)
	})
	t.Run("NodePort", func(t *testing.T) {
		url := fmt.Sprintf("http://%s:%d", one.NodeIP, one.service(t).Spec.Ports[0].NodePort)
		if answer := httpGet(t, one, url); !strings.HasPrefix(answer, "web-") {
			t.Errorf("%q answers", answer)
		}
		two.inShell(t, "wget -qO- "+url, "web-")
	})
	t.Run("API server", func(t *testing.T) {
		for _, c := range clusters {
			c.inShell(t, "testpod get -ca "+serviceAccountFiles+"ca.crt -token "+serviceAccountFiles+"token https://kubernetes.default.svc/apis", "APIGroupList")
		}
	})
	t.Run("API server of another cluster", func(t *testing.T) {
		two.inShell(t, fmt.Sprintf("echo '%s' > /tmp/one.crt; testpod get -ca /tmp/one.crt %s/version", one.Config.CAData, one.URL), `"gitVersion"`)
		output, err := two.Exec(t.Context(), "default", "shell", "", "testpod", "get", "-ca", serviceAccountFiles+"ca.crt", one.URL+"/version")
		if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
			t.Errorf("the cluster's own authority: %q, %v", output, err)
		}
	})
	t.Run("NetworkPolicy", func(t *testing.T) { testNetworkPolicies(t, one, two) })
	t.Run("restarts", func(t *testing.T) { testRestarts(t, two) })
	t.Run("limits", func(t *testing.T) { testMemoryLimit(t, two) })
	t.Run("report", func(t *testing.T) { testReport(t, two) })
	t.Run("inventory", func(t *testing.T) { testInventory(t, two) })
}

// service is that of the Deployment.
func (c *Cluster) service(t *testing.T) *corev1.Service {
	t.Helper()
	var service corev1.Service
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: "web"}, &service); err != nil {
		t.Fatal(err)
	}
	return &service
}

// inShell runs a command in the pod "shell" until its output has a word: rules for services come a moment after the pods.
func (c *Cluster) inShell(t *testing.T, command, word string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		output, err := c.Exec(ctx, "default", "shell", "", "sh", "-c", command)
		if err == nil && !strings.Contains(output, word) {
			err = fmt.Errorf("no %q in %q", word, output)
		}
		return err
	})
}

// httpGet is the answer to a request of this machine.
func httpGet(t *testing.T, c *Cluster, url string) (answer string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		answer = strings.TrimSpace(string(body))
		return err
	})
	return answer
}

// Policies decide who reaches pods: here the shell of the same cluster, once it has a label, but not the other cluster.
func testNetworkPolicies(t *testing.T, one, two *Cluster) {
	get := "testpod get -timeout 1s http://web.web.svc.cluster.local"
	nodePort := fmt.Sprintf("testpod get -timeout 1s http://%s:%d", one.NodeIP, one.service(t).Spec.Ports[0].NodePort)
	one.inShell(t, get, "web-")
	two.inShell(t, nodePort, "web-")
	one.Apply(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: web
  namespace: web
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress:
  - from:
    - namespaceSelector: {}
      podSelector:
        matchLabels: {access: web}
    ports:
    - {port: 8080}
`)
	for _, command := range []string{get, nodePort} {
		cluster := map[string]*Cluster{get: one, nodePort: two}[command]
		cluster.Eventually(t, func(ctx context.Context) error {
			if output, err := cluster.Exec(ctx, "default", "shell", "", "sh", "-c", command); err == nil {
				return fmt.Errorf("%s still answers %q", command, output)
			}
			return nil
		})
	}
	labels := []byte(`{"metadata": {"labels": {"access": "web"}}}`)
	pod := &corev1.Pod{ObjectMeta: apimeta.ObjectMeta{Namespace: "default", Name: "shell"}}
	if err := one.Client.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, labels)); err != nil {
		t.Fatal(err)
	}
	one.inShell(t, get, "web-")
	if output, err := two.Exec(t.Context(), "default", "shell", "", "sh", "-c", nodePort); err == nil {
		t.Errorf("%s answers %q", nodePort, output)
	}
	address := "http://" + one.Pods(t, "web", map[string]string{"app": "web"})[0].Status.PodIP + ":8080"
	if _, err := one.NodeExec(t.Context(), "busybox", "wget", "-qO-", address); err != nil {
		t.Errorf("the kubelet could not probe the pod: %v", err)
	}
}

// Containers run on while the programs of the node restart.
func testRestarts(t *testing.T, c *Cluster) {
	before := c.AwaitPod(t, "default", "shell")
	heartbeat := c.heartbeat(t)
	for _, program := range []string{"kubelet", "containerd", "kube-apiserver"} {
		c.Restart(t, program)
	}
	c.Eventually(t, func(ctx context.Context) error {
		var n corev1.Node
		if err := c.Client.Get(ctx, client.ObjectKey{Name: c.Name}, &n); err != nil {
			return err
		}
		if ready := readyCondition(&n); ready.Status != corev1.ConditionTrue || !ready.LastHeartbeatTime.After(heartbeat.Time) {
			return fmt.Errorf("the node is not ready again: %+v", ready)
		}
		return nil
	})
	c.inShell(t, "echo still here", "still here")
	after := c.AwaitPod(t, "default", "shell")
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if was.ContainerID != is.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container was %s and is %s, with %d restarts", was.ContainerID, is.ContainerID, is.RestartCount)
	}
}

func (c *Cluster) heartbeat(t *testing.T) apimeta.Time {
	t.Helper()
	var n corev1.Node
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: c.Name}, &n); err != nil {
		t.Fatal(err)
	}
	return readyCondition(&n).LastHeartbeatTime
}

func readyCondition(n *corev1.Node) corev1.NodeCondition {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

func testMemoryLimit(t *testing.T, c *Cluster) {
	c.Apply(t, `
apiVersion: v1
kind: Pod
metadata:
  name: hungry
  namespace: default
spec:
  restartPolicy: Never
  containers:
  - name: hungry
    image: localhost/test:latest
    imagePullPolicy: Never
    command: [testpod, allocate, "200"]
    resources:
      limits: {memory: 64Mi}
`)
	pod := c.AwaitPhase(t, "default", "hungry", corev1.PodFailed)
	if ended := pod.Status.ContainerStatuses[0].State.Terminated; ended.Reason != "OOMKilled" {
		t.Errorf("the container ended as %+v", ended)
	}
}

// What a failed test shows has what one looks for first: why a pod does not run, and what it wrote.
func testReport(t *testing.T, c *Cluster) {
	c.Apply(t, `
apiVersion: v1
kind: Pod
metadata:
  name: failing
  namespace: default
spec:
  restartPolicy: Never
  containers:
  - name: failing
    image: localhost/test:latest
    imagePullPolicy: Never
    command: [sh, -c, echo no such luck; exit 5]
---
apiVersion: v1
kind: Pod
metadata:
  name: missing
  namespace: default
spec:
  containers:
  - name: missing
    image: registry.example.com/missing:1
    imagePullPolicy: Never
`)
	c.AwaitPhase(t, "default", "failing", corev1.PodFailed)
	words := []string{"pod default/failing: Failed", "ended with 5", "no such luck", "ErrImageNeverPull", "Pod default/missing: Failed"}
	c.Eventually(t, func(ctx context.Context) error {
		report := c.pods(ctx) + c.events(ctx)
		for _, word := range words {
			if !strings.Contains(report, word) {
				return fmt.Errorf("no %q in\n%s", word, report)
			}
		}
		return nil
	})
	for _, program := range []string{"kubelet", "containerd", "kube-apiserver", "etcd", "node"} {
		if logs := c.logs(); !strings.Contains(logs, "the end of the log of "+program+" on "+c.Name+"\n") {
			t.Errorf("no log of %s in\n%s", program, logs)
		}
	}
}

func testInventory(t *testing.T, c *Cluster) {
	const resources = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: other
  namespace: default
spec:
  selector:
    matchLabels: {app: other}
  template:
    metadata:
      labels: {app: other}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: other, image: "localhost/test:latest", imagePullPolicy: Never, command: [testpod, pause]}
`
	const thing = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: mine}}"
	before := c.Inventory(t)
	if _, found := before["deployments.apps kube-system/coredns"]; !found {
		t.Errorf("no Deployment in %v", before)
	}
	c.Apply(t, resources)
	c.Eventually(t, func(ctx context.Context) error { return c.apply(ctx, []byte(thing)) })
	c.AwaitAvailable(t, "default", "other")
	want := "added: customresourcedefinitions.apiextensions.k8s.io things.example.com\n" +
		"added: deployments.apps default/other\nadded: things.example.com mine\n"
	if got := before.Compare(c.Inventory(t)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	c.Delete(t, thing)
	c.Delete(t, resources)
	c.AwaitInventory(t, before)
}
