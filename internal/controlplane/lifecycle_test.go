package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// SC-06, SC-08, SC-09, SC-19: keys, certificates, the admin's kubeconfig and the bootstrap token are made once. What was
// given out before a restart still gets its holder in afterwards.
func TestRestartKeepsIdentities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := newHub(t, dir, nil)
	kubeconfig, err := os.ReadFile(AdminKubeconfig(before.options.Config.DataDirectory))
	must(t, err)
	token := bootstrapToken(t, before)
	issued, err := before.client.CoreV1().ServiceAccounts("open-cluster-management").CreateToken(t.Context(), "agent-registration-bootstrap",
		&authenticationv1.TokenRequest{}, create)
	must(t, err)
	info, err := before.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", get)
	must(t, err)
	must(t, before.stop())

	after := newHub(t, dir, nil)
	again, err := os.ReadFile(AdminKubeconfig(after.options.Config.DataDirectory))
	must(t, err)
	if string(again) != string(kubeconfig) {
		t.Error("the admin's kubeconfig changed")
	}
	if got := bootstrapToken(t, after); got != token {
		t.Error("there is another bootstrap token")
	}
	infoAgain, err := after.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", get)
	must(t, err)
	if infoAgain.Data["kubeconfig"] != info.Data["kubeconfig"] {
		t.Error("cluster-info changed")
	}
	for what, credential := range map[string]func(*rest.Config){
		"service account token": func(c *rest.Config) { c.BearerToken = issued.Status.Token },
		"bootstrap token":       func(c *rest.Config) { c.BearerToken = token },
		"admin certificate":     func(c *rest.Config) { c.TLSClientConfig = before.config.TLSClientConfig },
	} {
		eventually(t, func(ctx context.Context) string {
			if _, err := after.as(t, credential).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
				create); err != nil {
				return fmt.Sprintf("%s: %v", what, err)
			}
			return ""
		})
	}
	info2, err := os.Stat(AdminKubeconfig(after.options.Config.DataDirectory))
	must(t, err)
	if info2.Mode().Perm() != 0o600 {
		t.Errorf("the admin's kubeconfig has mode %o", info2.Mode().Perm())
	}
}

// A kill at any time loses nothing that was acknowledged, and the hub comes back by itself.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const rounds = 3
	var acknowledged []string
	for round := range rounds {
		child, h := startChild(t, dir)
		var mu sync.Mutex
		var writers sync.WaitGroup
		var count atomic.Int64
		enough := make(chan struct{})
		for writer := range 4 {
			writers.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("r%d-w%d-%d", round, writer, i)
					if _, err := h.client.CoreV1().ConfigMaps("default").Create(context.Background(), configMap(name), create); err != nil {
						return
					}
					mu.Lock()
					acknowledged = append(acknowledged, name)
					mu.Unlock()
					if count.Add(1) == 100 {
						close(enough)
					}
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(timeout):
			t.Fatal("the hub does not take writes")
		}
		must(t, child.Process.Kill())
		if err := <-h.done; err == nil {
			t.Error("a killed hub ended well")
		}
		writers.Wait()
	}
	child, h := startChild(t, dir)
	maps, err := h.client.CoreV1().ConfigMaps("default").List(t.Context(), list)
	must(t, err)
	found := map[string]bool{}
	for _, m := range maps.Items {
		found[m.Name] = true
	}
	for _, name := range acknowledged {
		if !found[name] {
			t.Errorf("config map %s was acknowledged and is lost", name)
		}
	}
	// SIGTERM, on the other hand, is answered in order and with 0.
	must(t, child.Process.Signal(syscall.SIGTERM))
	if err := <-h.done; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// A hub that is stopped while it starts does so in order, whatever it is at, and comes back.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	port, err := writeConfig(dir)
	must(t, err)
	exists := func(path ...string) func(context.Context) bool {
		return func(context.Context) bool {
			_, err := os.Stat(filepath.Join(append([]string{data}, path...)...))
			return err == nil
		}
	}
	for _, moment := range []struct {
		name string
		is   func(context.Context) bool
	}{
		{"locked", exists("lock")},
		{"keys", exists("cert", "kube-serviceaccount.key")},
		{"database", exists("etcd", "client.sock")},
		{"kubeconfig", exists("cert", adminKubeconfig)},
		{"serving", func(ctx context.Context) bool { return answers(ctx, port) }},
	} {
		// Each starts as the first start of a hub.
		must(t, os.RemoveAll(data))
		child, h := launchChild(t, dir)
		eventually(t, func(ctx context.Context) string {
			if !moment.is(ctx) {
				return moment.name + " never came"
			}
			return ""
		})
		must(t, child.Process.Signal(syscall.SIGTERM))
		if err := <-h.done; err != nil {
			t.Errorf("%s: %v\n%s", moment.name, err, childLog(t, dir))
		}
	}
	startChild(t, dir)
}

func mustPort(t *testing.T) int {
	t.Helper()
	port, err := ports.Next()
	must(t, err)
	return port
}

// SC-10, SC-11: two hubs share one external etcd, which demands certificates, under prefixes of their own and see
// nothing of each other.
func TestExternalEtcdWithPrefix(t *testing.T) {
	t.Parallel()
	// The certificates are those that a hub makes for its own etcd.
	keys := certDir(shared.options.Config.DataDirectory)
	port := mustPort(t)
	external, err := etcd.Start(t.Context(), etcd.Options{
		Dir: t.TempDir(), NoFsync: true, ClientPort: port, Logger: logr.Discard(),
		TLS: etcd.TLS{CAFile: keys + "/ca-bundle/etcd-ca-bundle.crt", CertFile: keys + "/etcd-server.crt", KeyFile: keys + "/etcd-server.key"},
	})
	must(t, err)
	t.Cleanup(external.Close)
	hubs := map[string]*testHub{}
	for _, plane := range []string{"one", "two"} {
		dir := t.TempDir()
		config := fmt.Sprintf(`dataDirectory: %s/data
apiserver: {externalHostname: 127.0.0.1, port: %d}
etcd:
  mode: external
  servers: ["https://127.0.0.1:%d"]
  caFile: %s/ca-bundle/etcd-ca-bundle.crt
  certFile: %s/etcd-client.crt
  keyFile: %s/etcd-client.key
  prefix: /%s
`, dir, mustPort(t), port, keys, keys, keys, plane)
		must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
		hubs[plane] = newHub(t, dir, nil)
		_, err := hubs[plane].client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("only-in-"+plane), create)
		must(t, err)
	}
	if _, err := hubs["two"].client.CoreV1().ConfigMaps("default").Get(t.Context(), "only-in-one", get); !apierrors.IsNotFound(err) {
		t.Errorf("hub two sees an object of hub one: %v", err)
	}
	// The Kubernetes controllers of a hub on an external etcd run under a lease.
	eventually(t, func(ctx context.Context) string {
		if _, err := hubs["one"].client.CoreV1().ServiceAccounts("default").Get(ctx, "default", get); err != nil {
			return err.Error()
		}
		return ""
	})
	if _, err := hubs["one"].client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), kubernetesControllersLease,
		get); err != nil {
		t.Error(err)
	}
}

// SC-03, SC-06: a CA of the user's own is what clients trust.
func TestOwnCA(t *testing.T) {
	t.Parallel()
	// Any root CA will do: that of the shared hub.
	root := certDir(shared.options.Config.DataDirectory) + "/root-ca"
	dir := t.TempDir()
	config := fmt.Sprintf("dataDirectory: %s/data\napiserver: {externalHostname: 127.0.0.1, port: %d, caFile: %s.crt, caKeyFile: %s.key}\n",
		dir, mustPort(t), root, root)
	must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
	h := newHub(t, dir, nil)
	trusting := h.as(t, func(c *rest.Config) {
		c.TLSClientConfig = h.config.TLSClientConfig
		c.CAData, c.CAFile = nil, root+".crt"
	})
	if _, err := trusting.CoreV1().Namespaces().List(t.Context(), list); err != nil {
		t.Error(err)
	}
}

// SC-06, SC-09: certificates are renewed while the hub runs: it serves with the new one, the kubeconfig on disk has the
// new credential, and clients that came before notice nothing.
func TestRotationWhileRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The hub starts in what it takes for the past, so that what it makes is valid now, and nearly due.
	clock := testclock.NewFakeClock(time.Now().Add(-180 * 24 * time.Hour))
	h := newHub(t, dir, func(o *Options) { o.Clock = clock })
	before, err := os.ReadFile(AdminKubeconfig(h.options.Config.DataDirectory))
	must(t, err)
	served := servingSerial(t, h.port)
	eventually(t, func(context.Context) string {
		if !clock.HasWaiters() { // a hub that is ready may not have come to it
			return "nothing waits until certificates are due"
		}
		return ""
	})
	eventually(t, func(context.Context) string {
		clock.SetTime(time.Now())
		after, err := os.ReadFile(AdminKubeconfig(h.options.Config.DataDirectory))
		if err != nil || string(after) == string(before) {
			return fmt.Sprintf("the kubeconfig is not renewed: %v", err)
		}
		if servingSerial(t, h.port) == served {
			return "the hub serves with the old certificate"
		}
		return ""
	})
	if _, err := h.client.CoreV1().Namespaces().List(t.Context(), list); err != nil {
		t.Errorf("who connected before: %v", err)
	}
}

func servingSerial(t *testing.T, port int) string {
	t.Helper()
	return served(t, port).SerialNumber.String()
}

// SC-19: the bootstrap token is replaced ahead of its end, created again when it is deleted, and removed when it is over.
func TestBootstrapTokenStaysCurrent(t *testing.T) {
	t.Parallel()
	h := newHub(t, t.TempDir(), nil)
	clock := testclock.NewFakeClock(time.Now())
	keeper := &tokenKeeper{client: h.client, clock: clock}
	secrets := h.client.CoreV1().Secrets(metav1.NamespaceSystem)
	first := bootstrapToken(t, h)

	next, err := keeper.ensure(t.Context())
	must(t, err)
	if got := bootstrapToken(t, h); got != first {
		t.Fatal("a token that is current was replaced")
	}
	// The hub's own keeper, whose clock is right, sees two tokens at most for a moment: it retires the older one too.
	clock.SetTime(next)
	_, err = keeper.ensure(t.Context())
	must(t, err)
	second := bootstrapToken(t, h)
	if second == first {
		t.Fatal("the token was not replaced ahead of its end")
	}
	for _, token := range []string{first, second} {
		// Authentication knows tokens from a watch.
		eventually(t, func(ctx context.Context) string {
			if _, err := h.withToken(t, token).CertificatesV1().CertificateSigningRequests().List(ctx, ofOneCluster); err != nil {
				return fmt.Sprintf("a token that has not ended yet: %v", err)
			}
			return ""
		})
	}

	must(t, secrets.Delete(t.Context(), "bootstrap-token-"+second[:6], remove))
	eventually(t, func(ctx context.Context) string {
		current, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: "app=cluster-manager"})
		if err != nil || len(current.Items) != 1 || current.Items[0].Name == "bootstrap-token-"+second[:6] {
			return fmt.Sprintf("the deleted token was not replaced: %v", err)
		}
		return ""
	})

	over := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-aaaaaa"}, Type: bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "aaaaaa", "token-secret": "bbbbbbbbbbbbbbbb",
			"expiration": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "usage-bootstrap-authentication": "true"},
	}
	_, err = secrets.Create(t.Context(), over, create)
	must(t, err)
	eventually(t, func(ctx context.Context) string {
		if _, err := secrets.Get(ctx, over.Name, get); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("an expired token is still there: %v", err)
		}
		return ""
	})
}

// SC-26: aggregated APIs are proxied to; one that is down says so in its condition, and its return is noticed.
func TestAggregatedAPI(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/apis/things.test/v1" {
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"things.test/v1","resources":[]}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"kind":"Thing","apiVersion":"things.test/v1","user":%q}`, r.Header.Get("X-Remote-User"))
	}))
	t.Cleanup(backend.Close)
	h := newHub(t, t.TempDir(), func(o *Options) {
		o.Config.Aggregator.ServiceAddresses = map[string]string{"default/things": backend.Listener.Addr().String()}
	})
	apis, err := apiregistrationclient.NewForConfig(h.config)
	must(t, err)
	_, err = apis.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.things.test"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "things.test", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "things"},
		},
	}, create)
	must(t, err)
	eventually(t, func(ctx context.Context) string {
		body, err := h.client.Discovery().RESTClient().Get().AbsPath("/apis/things.test/v1/anything").DoRaw(ctx)
		if err != nil || !strings.Contains(string(body), `"user":"system:admin"`) {
			return fmt.Sprintf("the aggregated API answers %s, %v", body, err)
		}
		return availableIs(ctx, apis, "True", "passed")
	})
	down.Store(true)
	// A change of the APIService is looked at at once, not at the next probe.
	touch(t, apis, 11)
	eventually(t, func(ctx context.Context) string { return availableIs(ctx, apis, "False", "503") })
	down.Store(false)
	touch(t, apis, 12)
	eventually(t, func(ctx context.Context) string { return availableIs(ctx, apis, "True", "passed") })
}

func touch(t *testing.T, apis apiregistrationclient.Interface, priority int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"versionPriority":%d}}`, priority)
	_, err := apis.ApiregistrationV1().APIServices().Patch(t.Context(), "v1.things.test", "application/merge-patch+json", patch,
		metav1.PatchOptions{})
	must(t, err)
}

func availableIs(ctx context.Context, apis apiregistrationclient.Interface, status, message string) string {
	api, err := apis.ApiregistrationV1().APIServices().Get(ctx, "v1.things.test", get)
	if err != nil {
		return err.Error()
	}
	for _, c := range api.Status.Conditions {
		if c.Type == apiregistrationv1.Available && string(c.Status) == status && strings.Contains(c.Message, message) {
			return ""
		}
	}
	return fmt.Sprintf("conditions %v, want Available=%s with %q", api.Status.Conditions, status, message)
}

// A hub whose controllers fail ends, and says why.
func TestFailingControllersEndTheHub(t *testing.T) {
	t.Parallel()
	err := refusal(t, t.TempDir(), func(o *Options) {
		o.Controllers = func(context.Context, *rest.Config, bool, func()) error { return fmt.Errorf("no such thing") }
	})
	says(t, err, "hub controllers", "no such thing")
}

// SC-01: the hub is not ready before its controllers run, and hands them a client that may do everything.
func TestReadyAfterControllers(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	goOn := make(chan struct{})
	dir := t.TempDir()
	port, err := writeConfig(dir)
	must(t, err)
	go func() {
		<-began
		if ready(context.Background(), port) {
			t.Error("ready before the controllers started")
		}
		close(goOn)
	}()
	newHub(t, dir, func(o *Options) {
		o.Controllers = func(ctx context.Context, _ *rest.Config, elect bool, started func()) error {
			if elect {
				t.Error("a hub with an etcd of its own elects")
			}
			close(began)
			<-goOn
			started()
			<-ctx.Done()
			return nil
		}
	})
}
