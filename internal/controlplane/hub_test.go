package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/admission/conversion"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/freeport"
)

// envChild makes the test binary a hub with the configuration folder it names, to be killed.
const envChild = "CAPSTAN_TEST_HUB"

// logFile is where in its folder a hub logs to.
const logFile = "log"

const (
	// timeout is how long tests wait for one thing that must happen; they see it earlier.
	timeout = 4 * time.Minute
	// readyTimeout is how long a hub may take to be ready: it takes some seconds of CPU, and several tests start theirs at the same time.
	readyTimeout = 2 * time.Minute
)

var ports = freeport.Between(15000, 19999)

// shared is a hub for the tests that do not stop it. Each uses a namespace of its own.
var shared *testHub

func TestMain(m *testing.M) {
	if dir := os.Getenv(envChild); dir != "" {
		os.Exit(runChild(dir))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hub-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	logTo(openLog(dir))
	shared, err = startHub(dir, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared hub:", err)
		return 1
	}
	return code
}

// logTo keeps the log of the hubs in this process off the output of the tests.
func logTo(file *os.File) {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(file)
}

func openLog(dir string) *os.File {
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		panic(err)
	}
	return log
}

// testOptions is a complete hub with the configuration file of a folder.
func testOptions(dir string) (*Options, error) {
	o := NewOptions()
	config, err := ocmconfig.Load(ocmconfig.Options{Dir: dir, Explicit: true})
	if err != nil {
		return nil, err
	}
	o.Config = config
	o.CRDs = crds.Hub()
	o.Webhooks = map[types.NamespacedName]http.Handler{
		{Namespace: "open-cluster-management-hub", Name: "cluster-manager-addon-webhook"}: conversion.Handler(),
	}
	return o, nil
}

// testHub is a hub in this process.
type testHub struct {
	dir     string
	port    int
	options *Options
	cancel  context.CancelFunc
	done    chan error
	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	stopped sync.Once
	err     error
}

// startHub writes a configuration into dir, if there is none, and runs the hub until it is ready.
func startHub(dir string, change func(*Options)) (*testHub, error) {
	h, err := launchHub(dir, change)
	if err != nil {
		return nil, err
	}
	if err := h.waitReady(); err != nil {
		h.cancel()
		return nil, errors.Join(err, <-h.done)
	}
	return h, nil
}

// launchHub does not wait.
func launchHub(dir string, change func(*Options)) (*testHub, error) {
	port, err := writeConfig(dir)
	if err != nil {
		return nil, err
	}
	options, err := testOptions(dir)
	if err != nil {
		return nil, err
	}
	options.Etcd.NoFsync = true
	if change != nil {
		change(options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &testHub{dir: dir, port: port, options: options, cancel: cancel, done: make(chan error, 1)}
	go func() { h.done <- Run(ctx, options) }()
	return h, nil
}

func newHub(t *testing.T, dir string, change func(*Options)) *testHub {
	t.Helper()
	h, err := startHub(dir, change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// writeConfig is for a hub at a port of 127.0.0.1 that is free. A second call for the same folder finds the first.
func writeConfig(dir string) (port int, err error) {
	file := filepath.Join(dir, ocmconfig.FileName)
	if _, err := os.Stat(file); err == nil {
		config, err := ocmconfig.Load(ocmconfig.Options{Dir: dir, Explicit: true})
		if err != nil {
			return 0, err
		}
		return config.APIServer.Port, nil
	}
	if port, err = ports.Next(); err != nil {
		return 0, err
	}
	content := fmt.Sprintf("dataDirectory: %s\napiserver:\n  externalHostname: 127.0.0.1\n  port: %d\n", filepath.Join(dir, "data"), port)
	return port, os.WriteFile(file, []byte(content), 0o600)
}

// waitReady waits for /readyz and then connects as the admin.
func (h *testHub) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-h.done:
			h.done <- err
			return false, fmt.Errorf("the hub ended: %w", err)
		default:
			return ready(ctx, h.port), nil
		}
	})
	if err != nil {
		return err
	}
	return h.connect(filepath.Join(h.dir, "data"))
}

// ready sends no credential, as a load balancer does.
func ready(ctx context.Context, port int) bool { return statusOf(ctx, port) == http.StatusOK }

// answers says whether there is an API server, ready or not.
func answers(ctx context.Context, port int) bool { return statusOf(ctx, port) != 0 }

func statusOf(ctx context.Context, port int) (status int) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/readyz", port), nil)
	if err != nil {
		return 0
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func dialInsecure(port int) (*tls.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	conn, err := tls.DialWithDialer(dialer, "tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(timeout))
}

func (h *testHub) connect(data string) (err error) {
	if h.config, err = clientcmd.BuildConfigFromFlags("", AdminKubeconfig(data)); err != nil {
		return err
	}
	h.config.QPS = -1
	if h.client, err = kubernetes.NewForConfig(h.config); err != nil {
		return err
	}
	h.dynamic, err = dynamic.NewForConfig(h.config)
	return err
}

func (h *testHub) stop() error {
	h.stopped.Do(func() {
		h.cancel()
		h.err = <-h.done
	})
	return h.err
}

// as is a client with the admin's address and trust but another identity.
func (h *testHub) as(t *testing.T, change func(*rest.Config)) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(h.config)
	config.QPS = -1
	change(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (h *testHub) withToken(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	return h.as(t, func(c *rest.Config) { c.BearerToken = token })
}

// eventually waits until the condition has nothing to complain about.
func eventually(t *testing.T, complaint func(ctx context.Context) string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = complaint(ctx)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("after %s: %s", timeout, last)
	}
}

// runChild is a hub of its own process, as the program runs it.
func runChild(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options, err := testOptions(dir)
	if err == nil {
		err = Run(ctx, options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}

// startChild runs a hub of dir in a process of its own until it is ready.
func startChild(t *testing.T, dir string) (*exec.Cmd, *testHub) {
	t.Helper()
	child, h := launchChild(t, dir)
	if err := h.waitReady(); err != nil {
		t.Fatalf("%v\n%s", err, childLog(t, dir))
	}
	return child, h
}

// launchChild does not wait.
func launchChild(t *testing.T, dir string) (*exec.Cmd, *testHub) {
	t.Helper()
	port, err := writeConfig(dir)
	must(t, err)
	log := openLog(dir)
	t.Cleanup(func() { _ = log.Close() })
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envChild+"="+dir)
	// A child must not outlive a test binary that was killed.
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	child.Stdout, child.Stderr = log, log
	must(t, child.Start())
	h := &testHub{dir: dir, port: port, done: make(chan error, 1)}
	go func() { h.done <- child.Wait() }()
	t.Cleanup(func() { _ = child.Process.Kill() })
	return child, h
}

func childLog(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, logFile))
	must(t, err)
	return string(content)
}
