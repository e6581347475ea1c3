package sandbox_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/sandbox"
)

// timeout is how long a test waits for what should take a second.
const timeout = time.Minute

// shared is a cluster of two nodes that all tests use, each in a namespace of its own.
var shared *sandbox.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var logging flag.FlagSet
	klog.InitFlags(&logging)
	if err := logging.Set("stderrthreshold", "FATAL"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	dir, err := os.MkdirTemp("", "sandbox")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	shared, err = sandbox.Start(context.Background(), sandbox.Options{DataDir: filepath.Join(dir, "data"), Name: "shared", Nodes: 2})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = shared.Stop() }()
	return m.Run()
}

func startCluster(t *testing.T, o sandbox.Options) *sandbox.Cluster {
	t.Helper()
	c, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func configOf(t *testing.T, c *sandbox.Cluster) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func clientOf(t *testing.T, c *sandbox.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(configOf(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually waits until check returns "". What it returns last is in the failure.
func eventually(t *testing.T, check func(ctx context.Context) string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("after %s: %s", timeout, last)
	}
}

// namespace makes a namespace for one test, ready for pods.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		if _, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return ns.Name
}

func systemUID(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(ns.UID)
}

// Start returns with the API ready, every node Ready and pods admitted to namespace default.
func TestStartReturnsReady(t *testing.T) {
	t.Parallel()
	c := startCluster(t, sandbox.Options{DataDir: t.TempDir(), Nodes: 3})
	client := clientOf(t, c)

	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
		t.Errorf("/readyz: %v", err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 3 {
		t.Errorf("got %d nodes, want 3", len(nodes.Items))
	}
	for _, node := range nodes.Items {
		if !nodeReady(&node) {
			t.Errorf("node %s is not Ready: %+v", node.Name, node.Status.Conditions)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: podSpec()}
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("create a pod at once: %v", err)
	}
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// /version says which Kubernetes is linked, and Service kubernetes is there.
func TestLooksLikeKubernetes(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version.GitVersion, "v1.") {
		t.Errorf("/version says %q", version.GitVersion)
	}
	eventually(t, func(ctx context.Context) string {
		if _, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// The kubeconfig is for its owner alone and names its context after the cluster.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(shared.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o, want 600", mode)
	}
	config, err := clientcmd.LoadFromFile(shared.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "shared" || config.Contexts["shared"] == nil {
		t.Errorf("contexts %v, current %q; want shared", config.Contexts, config.CurrentContext)
	}
	if got := config.Clusters["shared"].Server; got != shared.URL() {
		t.Errorf("server %q, want %q", got, shared.URL())
	}
}

// A stopped sandbox comes back on its directory as the same cluster at the same port, also with fewer nodes.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startCluster(t, sandbox.Options{DataDir: dir, Nodes: 2})
	client := clientOf(t, first)
	uid, ca, url := systemUID(t, client), configOf(t, first).CAData, first.URL()
	deployWeb(t, client, metav1.NamespaceDefault, 4)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.Ended():
	default:
		t.Error("Ended is not closed after Stop")
	}

	second := startCluster(t, sandbox.Options{DataDir: dir, Nodes: 1})
	client = clientOf(t, second)
	if got := systemUID(t, client); got != uid {
		t.Errorf("UID of kube-system: got %s, want %s", got, uid)
	}
	if string(configOf(t, second).CAData) != string(ca) {
		t.Error("the CA is another one")
	}
	if second.URL() != url {
		t.Errorf("URL: got %s, want %s", second.URL(), url)
	}
	// The pods of the node that is gone are replaced on the one that is left.
	eventually(t, func(ctx context.Context) string {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 {
			return fmt.Sprintf("nodes: %d, error %v; want 1", len(nodes.Items), err)
		}
		return runningApart(ctx, client, metav1.NamespaceDefault, "app=web", 4)
	})
}

// A start that is interrupted ends in order, and the directory is free for the next.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		defer interrupt()
		// By the first answer of any kind the API server runs its start hooks.
		_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
			config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
			if err != nil {
				return false, nil //nolint:nilerr // there is no kubeconfig yet
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return false, err
			}
			var status int
			client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
			return status != 0, nil
		})
	}()
	if c, err := sandbox.Start(ctx, sandbox.Options{DataDir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
		if err == nil {
			t.Error(c.Stop())
		}
	}
	startCluster(t, sandbox.Options{DataDir: dir})
}

// A second sandbox on a directory in use, and one on a port in use, are refused with what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	busy := listener.Addr().(*net.TCPAddr).Port
	brokenPort := t.TempDir()
	if err := os.WriteFile(filepath.Join(brokenPort, "port"), []byte("many"), 0o600); err != nil {
		t.Fatal(err)
	}
	rememberedBusy := t.TempDir()
	if err := os.WriteFile(filepath.Join(rememberedBusy, "port"), fmt.Append(nil, busy), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		options sandbox.Options
		want    []string
	}{
		"directory in use": {sandbox.Options{DataDir: filepath.Dir(shared.Kubeconfig())},
			[]string{"in use", filepath.Dir(shared.Kubeconfig())}},
		"port in use": {sandbox.Options{DataDir: t.TempDir(), Port: busy}, []string{fmt.Sprint(busy), "in use", "--port"}},
		"remembered port": {sandbox.Options{DataDir: rememberedBusy},
			[]string{fmt.Sprint(busy), "in use", "remove " + filepath.Join(rememberedBusy, "port")}},
		"broken port file":     {sandbox.Options{DataDir: brokenPort}, []string{`"many" is not a port number`}},
		"no directory":         {sandbox.Options{}, []string{"data-dir"}},
		"impossible port":      {sandbox.Options{DataDir: t.TempDir(), Port: 70000}, []string{"port: 70000"}},
		"too many nodes":       {sandbox.Options{DataDir: t.TempDir(), Nodes: 65}, []string{"nodes: 65", "between 1 and 64"}},
		"name is not a name":   {sandbox.Options{DataDir: t.TempDir(), Name: "My_Cluster"}, []string{`name: "My_Cluster"`}},
		"everything it can be": {sandbox.Options{Port: -1, Nodes: -1, Name: "-"}, []string{"data-dir", "port", "nodes", "name"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := sandbox.Start(t.Context(), test.options)
			if err == nil {
				t.Error(c.Stop())
				t.Fatal("started")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// Requests without credentials are refused, and /readyz needs none.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	config := rest.AnonymousClientConfig(configOf(t, shared))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list namespaces: got %v, want forbidden", err)
	}
	var status int
	client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).StatusCode(&status)
	if status != http.StatusOK {
		t.Errorf("/readyz: got %d, want 200", status)
	}
}
