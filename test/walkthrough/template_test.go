package walkthrough

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// templated is the example of an add-on without code, and its namespace on hub and cluster.
const templated = "helloworld-template"

// helloAgent is the folder hello of the document.
const helloAgent = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello, namespace: default}
spec:
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: hello, image: "` + realcluster.TestImage + `", imagePullPolicy: IfNotPresent, command: [sh, -c, sleep 3600]}
`

// placementAll is the placement of the document.
const placementAll = `
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: global, namespace: default}
spec: {clusterSet: global}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: all, namespace: default}
spec: {}
`

// deploysTemplates does what docs/add-ons-templates.md says, its commands word by word, with kubectl itself: it deploys the example by
// hand, upgrades it and takes it off the cluster, and makes an add-on of a folder. Nothing of both is left on hub and cluster.
func (c cluster) deploysTemplates(t *testing.T, managed cluster, name string) {
	t.Helper()
	managed.ImportTestImage(t, "docker.io/library/busybox:1.37")
	before, beforeHub := managed.Inventory(t), c.Inventory(t)
	create, next := commandsOfTemplates(t)
	u := user{kubeconfig: c.Kubeconfig, dir: t.TempDir(), path: programs(t)}
	u.hasTemplates(t)

	u.does(t, "kubectl apply -f helloworld-template/hub.yaml\nkubectl apply -f helloworld-template/\n"+
		"kubectl label managedcluster "+name+" helloworld-template=yes")
	managed.AwaitAvailable(t, templated, "helloworld-agent")
	c.awaitAddOn(t, name, templated)
	managed.awaitGreeting(t, "Hello from "+name)
	managed.awaitAgentLog(t, "Hello from "+name+"/managed/hub-kubeconfig/kubeconfig")
	u.does(t, "kubectl apply -f v2.yaml\n"+next)
	managed.awaitGreeting(t, "Hello again from "+name)
	u.does(t, "kubectl label managedcluster "+name+" helloworld-template-")

	// Meanwhile the pod of the example ends, which takes half a minute.
	c.Apply(t, placementAll)
	c.awaitDecision(t, "all", name)
	u.explainsPlacement(t, c)
	u.does(t, create)
	managed.AwaitAvailable(t, "default", "hello")
	c.awaitAddOn(t, name, "hello")
	u.does(t, "kubectl delete clustermanagementaddon hello")
	for _, addOn := range []string{"hello", templated} {
		c.AwaitGone(t, &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: addOn}})
	}
	managed.AwaitInventory(t, before)

	u.does(t, "kubectl delete --ignore-not-found -f helloworld-template/ -f v2.yaml\nkubectl delete addontemplate hello-0.0.1")
	c.Delete(t, placementAll)
	c.deleteRequests(t, client.MatchingLabels{fleet.LabelAddOnName: templated})
	c.AwaitInventory(t, beforeHub)
}

// explainsPlacement has a hub in a cluster explain the placement all, as the refusal advises, but with whatever port is free.
func (u user) explainsPlacement(t *testing.T, hub cluster) {
	t.Helper()
	var forward, certificates, flags string
	refused := hub.refused(t, "explain", "placement", "all")
	for line := range strings.Lines(refused) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "port-forward") {
			forward = strings.Replace(line, " 9443 &", " :9443 >forwarding &", 1)
		}
		if strings.Contains(line, "get configmap") {
			certificates = line
		}
		if rest, found := strings.CutPrefix(line, "and add "); found {
			flags = strings.Replace(rest, "https://localhost:9443", `"https://$address"`, 1)
		}
	}
	says(t, forward, "kubectl ", " >forwarding &")
	says(t, certificates, "kubectl ", " > ca.crt")
	says(t, flags, "$address")
	// The address is in the first line: Forwarding from ADDRESS -> 9443.
	says(t, u.does(t, `mkfifo forwarding
`+forward+`
trap 'kill $! 2>/dev/null || :' EXIT
exec 3<forwarding
read -r forwarding from address to <&3
`+certificates+`
capstan explain placement all `+flags), "Placement default/all selects 1 cluster")
}

// commandsOfTemplates are commands of the document: those that make an add-on of a folder, and those that go to the next template.
func commandsOfTemplates(t *testing.T) (create, next string) {
	t.Helper()
	page := readText(t, filepath.Join("..", "..", "docs", "add-ons-templates.md"))
	var blocks []string
	for _, rest := range strings.Split(page, "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(rest, "\n```\n")
		blocks = append(blocks, block)
	}
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of commands, not 3", len(blocks))
	}
	return blocks[0], blocks[2]
}

// hasTemplates gives the user the example, a second version of its template with another greeting, and the folder hello.
func (u user) hasTemplates(t *testing.T) {
	t.Helper()
	example := filepath.Join(u.dir, templated)
	if err := os.CopyFS(example, os.DirFS(filepath.Join("..", "..", "deploy", "examples", templated))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(u.dir, "hello"), 0o700); err != nil {
		t.Fatal(err)
	}
	next := strings.NewReplacer(templated+"-v1", templated+"-v2", "{{GREETING}} from", "{{GREETING}} again from")
	for file, content := range map[string]string{
		"hello/deployment.yaml": helloAgent,
		"v2.yaml":               next.Replace(readText(t, filepath.Join(example, "addontemplate.yaml"))),
	} {
		if err := os.WriteFile(filepath.Join(u.dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitGreeting waits until the agent of the example has a greeting.
func (c cluster) awaitGreeting(t *testing.T, want string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		greeting := &corev1.ConfigMap{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: templated, Name: "greeting"}, greeting); err != nil {
			return err
		}
		if found := greeting.Data["greeting"]; found != want {
			return fmt.Errorf("the greeting is %q, not %q", found, want)
		}
		return nil
	})
}

// awaitAgentLog waits until the log of the agent of the example has a text.
func (c cluster) awaitAgentLog(t *testing.T, text string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		var logs []string
		for _, pod := range c.Pods(t, templated, nil) {
			log, err := c.Logs(ctx, templated, pod.Name, corev1.PodLogOptions{})
			if err != nil {
				return err
			}
			if strings.Contains(log, text) {
				return nil
			}
			logs = append(logs, log)
		}
		return fmt.Errorf("%q is missing in the logs %q", text, logs)
	})
}
