package argocd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	log "github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1alpha1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	logutils "github.com/argoproj/argo-cd/v3/util/log"
)

// member is the cluster that is joined to the hub which tests share.
const member = "cluster1"

// server is an API server and its administrator.
type server struct {
	client.Client
	kubeconfig string
	config     *rest.Config
}

// cluster is a cluster that only its agent reaches.
type cluster struct {
	*server
	name  string
	agent *program
}

// fleet is a hub, and clusters that are joined to it.
type fleet struct {
	dir      string
	hub      *server
	cluster  *cluster   // the one of the fleet that tests share
	clusters []*cluster // those of a fleet of a single test
	programs []*program
}

// shared starts, when the first test asks for it, the fleet of all tests that need none of their own. Each has a namespace there.
var shared = sync.OnceValues(func() (*fleet, error) {
	dir, err := os.MkdirTemp("", "argocd")
	if err != nil {
		return nil, err
	}
	cleanUp = append(cleanUp, func() { _ = os.RemoveAll(dir) })
	f := &fleet{dir: dir}
	cleanUp = append(cleanUp, f.stop)
	if err := f.start(context.Background()); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, f.tails())
	}
	return f, nil
})

// start starts the hub, and the cluster with the add-ons by which the hub reaches it.
func (f *fleet) start(ctx context.Context) (err error) {
	if err := f.startHub(ctx); err != nil {
		return err
	}
	if f.cluster, err = f.join(ctx, member); err != nil {
		return err
	}
	return f.enableAddOns(ctx, member, "cluster-proxy", "managed-serviceaccount")
}

// cleanUp is what is left to do when all tests have run, last things first.
var cleanUp []func()

func TestMain(m *testing.M) {
	log.SetLevel(log.ErrorLevel)
	ctrl.SetLogger(logutils.NewLogrusLogger(logutils.NewWithCurrentConfig()))
	flag.Parse()
	if timeout, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); ok && timeout > 0 {
		time.AfterFunc(timeout-min(5*time.Second, timeout/10), printTails)
	}
	code := m.Run()
	for i := len(cleanUp) - 1; i >= 0; i-- {
		cleanUp[i]()
	}
	os.Exit(code)
}

// started are the programs of all fleets.
var started struct {
	sync.Mutex
	programs []*program
}

// printTails prints what the programs have written last, shortly before the deadline of the test binary (-timeout), at which Go ends it.
func printTails() {
	started.Lock()
	defer started.Unlock()
	fmt.Fprintln(os.Stderr, "The time of the test binary is nearly over (-timeout).")
	for _, p := range started.programs {
		fmt.Fprintln(os.Stderr, p.tail())
	}
}

// newFleet is the fleet that tests share, for a test.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.tails())
		}
	})
	return f
}

func (f *fleet) stop() {
	for i := len(f.programs) - 1; i >= 0; i-- {
		f.programs[i].stop()
	}
}

func (f *fleet) tails() string {
	var all strings.Builder
	for _, p := range f.programs {
		fmt.Fprintln(&all, p.tail())
	}
	return all.String()
}

// run starts a program, which is stopped at the end. Its log and its data are in a folder, which is made if need be.
func (f *fleet) run(dir, name string, args ...string) (*program, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p, err := start(dir, name, args...)
	if err == nil {
		f.programs = append(f.programs, p)
		started.Lock()
		defer started.Unlock()
		started.programs = append(started.programs, p)
	}
	return p, err
}

func (f *fleet) startHub(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	dir := filepath.Join(f.dir, "hub")
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf("dataDirectory: %s\napiserver:\n  externalHostname: 127.0.0.1\n  port: %d\n", data, port)
	if err := os.WriteFile(filepath.Join(dir, "ocmconfig.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	if _, err := f.run(dir, "capstan-hub", "server", "--controlplane-config-dir", dir, "--bind-address", "127.0.0.1",
		"--feature-gates", "GitOpsCluster=true"); err != nil {
		return err
	}
	f.hub, err = newArgoServer(ctx, filepath.Join(data, "cert", "kube-aggregator.kubeconfig"))
	return err
}

// newArgoServer waits until an API server is ready, and has it serve the kinds that an Argo CD brings.
func newArgoServer(ctx context.Context, kubeconfig string) (*server, error) {
	s, err := newServer(ctx, kubeconfig)
	if err != nil {
		return nil, err
	}
	kinds, err := argoFiles(ctx, "manifests/crds/*-crd.yaml")
	if err != nil {
		return nil, err
	}
	return s, s.applyAll(ctx, "", kinds)
}

// newServer waits until the API server of a kubeconfig is ready.
func newServer(ctx context.Context, kubeconfig string) (*server, error) {
	s := &server{kubeconfig: kubeconfig}
	err := await(ctx, func(ctx context.Context) (err error) {
		if s.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return err
		}
		s.config.QPS = -1
		return isReady(ctx, s.config)
	})
	if err != nil {
		return nil, err
	}
	s.Client, err = newClient(s.config)
	return s, err
}

func isReady(ctx context.Context, config *rest.Config) error {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// scheme has the types of Kubernetes and of Argo CD. Objects of Capstan are written as a user writes them.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, argov1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

func newClient(config *rest.Config) (client.Client, error) {
	return client.New(config, client.Options{Scheme: scheme})
}

// join starts a cluster, has its agent join it to the hub, and accepts it.
func (f *fleet) join(ctx context.Context, name string) (*cluster, error) {
	c, dir := &cluster{name: name}, filepath.Join(f.dir, name)
	if _, err := f.run(dir, "capstan-sandbox", "run", "--data-dir", dir); err != nil {
		return nil, err
	}
	var err error
	if c.server, err = newArgoServer(ctx, filepath.Join(dir, "kubeconfig")); err != nil {
		return nil, err
	}
	if err := os.Mkdir(f.agentDir(c), 0o700); err != nil {
		return nil, err
	}
	if err := f.writeBootstrap(ctx, f.bootstrapOf(c)); err != nil {
		return nil, err
	}
	if err := f.startAgent(c); err != nil {
		return nil, err
	}
	_, err = capstan(ctx, f.hub.kubeconfig, "accept", "--clusters", name, "--wait")
	return c, err
}

func (f *fleet) agentDir(c *cluster) string { return filepath.Join(f.dir, c.name+"-agent") }

func (f *fleet) bootstrapOf(c *cluster) string {
	return filepath.Join(f.agentDir(c), "bootstrap.kubeconfig")
}

// startAgent starts the agent of a cluster, also once more.
func (f *fleet) startAgent(c *cluster) (err error) {
	dir := f.agentDir(c)
	c.agent, err = f.run(dir, "capstan-agent", "run", "--cluster-name", c.name, "--bootstrap-kubeconfig", f.bootstrapOf(c),
		"--hub-kubeconfig-dir", filepath.Join(dir, "hub"), "--spoke-kubeconfig", c.kubeconfig)
	return err
}

// enableAddOns enables add-ons on a cluster, and waits until they are available.
func (f *fleet) enableAddOns(ctx context.Context, cluster string, names ...string) error {
	if _, err := capstan(ctx, f.hub.kubeconfig, "addon", "enable", "--clusters", cluster, "--names", strings.Join(names, ",")); err != nil {
		return err
	}
	for _, name := range names {
		addOn := object("addon.open-cluster-management.io/v1alpha1", "ManagedClusterAddOn", cluster, name)
		if err := f.hub.awaitCondition(ctx, addOn, "Available"); err != nil {
			return err
		}
	}
	return nil
}

// writeBootstrap writes the kubeconfig with which an agent asks to join.
func (f *fleet) writeBootstrap(ctx context.Context, path string) error {
	printed, err := capstan(ctx, f.hub.kubeconfig, "get", "token", "-o", "json")
	if err != nil {
		return err
	}
	var invitation struct {
		Token string `json:"hub-token"`
	}
	if err := json.Unmarshal(printed, &invitation); err != nil {
		return fmt.Errorf("%w: %s", err, printed)
	}
	return f.writeKubeconfig(path, invitation.Token)
}

// writeKubeconfig writes a kubeconfig with a token for the hub.
func (f *fleet) writeKubeconfig(path, token string) error {
	config := rest.CopyConfig(f.hub.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"user": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "user"}},
		CurrentContext: "hub",
	}, path)
}

// object is an object of which only the key is known.
func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// awaitCondition waits until a condition of an object is True.
func (s *server) awaitCondition(ctx context.Context, o *unstructured.Unstructured, kind string) error {
	return await(ctx, func(ctx context.Context) error {
		if err := s.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, condition := range conditions {
			if fields, ok := condition.(map[string]any); ok && fields["type"] == kind && fields["status"] == "True" {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%s %s is not %s: %v", o.GetKind(), o.GetName(), kind, o.Object["status"]))
	})
}

// namespace makes a namespace for a test, and returns its name.
func (s *server) namespace(t *testing.T, prefix string) string {
	t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	if err := s.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// apply applies objects that are written in YAML, in a namespace if they have none. TEST in them is the namespace.
func (s *server) apply(t *testing.T, namespace, objects string) {
	t.Helper()
	if err := s.applyAll(t.Context(), namespace, strings.ReplaceAll(objects, "TEST", namespace)); err != nil {
		t.Fatal(err)
	}
}

func (s *server) applyAll(ctx context.Context, namespace, objects string) error {
	all, err := decode(objects)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		// The API server serves a new kind a moment before it tells clients of it.
		var err error
		unknown := await(ctx, func(ctx context.Context) error {
			err = s.Patch(ctx, o, client.Apply, client.FieldOwner("test"), client.ForceOwnership)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})
		if err := errors.Join(unknown, err); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// patch changes an object by a merge patch.
func (s *server) patch(t *testing.T, o client.Object, change string) {
	t.Helper()
	if err := s.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(change))); err != nil {
		t.Fatal(err)
	}
}

func decode(objects string) (all []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(objects), len(objects))
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// argoFiles are files that Argo CD is installed with, from its module.
func argoFiles(ctx context.Context, patterns ...string) (string, error) {
	var dir, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3")
	cmd.Stdout, cmd.Stderr = &dir, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("find the module of Argo CD: %w: %s", err, errOut.String())
	}
	var content strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(dir.String()), pattern))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("the module of Argo CD has no %s: %w", pattern, err)
		}
		for _, file := range files {
			one, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			content.Write(one)
			content.WriteString("\n---\n")
		}
	}
	return content.String(), nil
}
