package importer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

const (
	kubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
"clusters":[{"name":"a","cluster":{"server":"https://%s:6443"}}],"users":[{"name":"a","user":{"token":"s3cr3t"}}]}`
	clusterInfo = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"","cluster":{"server":"https://hub.example.com:8443",
"certificate-authority-data":"Y2VydGlmaWNhdGVz"}}]}`
)

// now is when a scene begins, and when the hub has imported what is imported before.
var now = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// scene is a hub with ManagedClusters, and clusters of Cluster API unless without is set.
type scene struct {
	*testing.T
	client.Client
	c        *Controller
	recorder *events.FakeRecorder
	clock    *clocktesting.FakePassiveClock
	without  bool
	// refused are the Secrets that may not be read, by their names.
	refused map[string]bool
	// installed are the servers of the clusters to which values were applied, and failure is what applying fails with.
	installed map[string]map[string]any
	failure   error
}

func setUp(t *testing.T, objects ...client.Object) *scene {
	t.Helper()
	s := &scene{T: t, recorder: events.NewFakeRecorder(100), clock: clocktesting.NewFakePassiveClock(now), refused: map[string]bool{},
		installed: map[string]map[string]any{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": clusterInfo}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management", Name: "agent-registration-bootstrap"}})
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&clusterv1.ManagedCluster{}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if s.refused[key.Name] {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("no RBAC policy matched"))
			}
			return c.Get(ctx, key, o, options...)
		}}).Build()
	clusters := func() (client.Reader, *unstructured.Unstructured) {
		if s.without {
			return nil, nil
		}
		return s.Client, capiCluster("", "", "")
	}
	s.c = New(Clients{Client: s.Client, Live: s.Client, Clusters: clusters}, s.recorder, Options{Renderers: []string{"render-auto"}})
	s.c.clock = s.clock
	s.c.install = func(_ context.Context, access *rest.Config, _ string, values map[string]any) error {
		s.installed[access.Host] = values
		return s.failure
	}
	return s
}

func (s *scene) reconcile(name string) (ctrl.Result, error) {
	s.Helper()
	return s.c.Reconcile(s.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
}

func (s *scene) cluster(name string) *clusterv1.ManagedCluster {
	s.Helper()
	cluster := &clusterv1.ManagedCluster{}
	if err := s.Get(s.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
		s.Fatal(err)
	}
	return cluster
}

// condition is the reason and the message of the condition; empty if there is none.
func (s *scene) condition(name string) (reason, message string) {
	s.Helper()
	condition := meta.FindStatusCondition(s.cluster(name).Status.Conditions, "ManagedClusterImportSucceeded")
	if condition == nil {
		return "", ""
	}
	if (condition.Status == metav1.ConditionTrue) != (condition.Reason == "ImportSucceed") {
		s.Errorf("the condition is %s for the reason %s", condition.Status, condition.Reason)
	}
	return condition.Reason, condition.Message
}

func (s *scene) events() (all []string) {
	for {
		select {
		case one := <-s.recorder.Events:
			all = append(all, one)
		default:
			return all
		}
	}
}

func accepted(name string, annotations map[string]string) *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	cluster.Spec.HubAcceptsClient = true
	return cluster
}

func capiCluster(namespace, name, phase string) *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": phase}}}
	cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster"})
	cluster.SetNamespace(namespace)
	cluster.SetName(name)
	return cluster
}

// secret has a kubeconfig that leads to the host of the Secret's name and namespace.
func secret(namespace, name, key string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string][]byte{key: fmt.Appendf(nil, kubeconfig, name+"."+namespace)}}
}

// RG-47: a ManagedCluster is imported by the kubeconfig of the Cluster of its name, or of the one that its annotation names, once that is
// provisioned; or by that in a Secret that another annotation names.
func TestWhichKubeconfig(t *testing.T) {
	t.Parallel()
	named := func(value string) map[string]string { return map[string]string{"cluster.x-k8s.io/cluster": value} }
	bySecret := func(name string) map[string]string {
		return map[string]string{"capstan.io/import-kubeconfig-secret": name}
	}
	joined := accepted("rome", nil)
	joined.Status.Conditions = []metav1.Condition{{Type: "ManagedClusterJoined", Status: metav1.ConditionTrue, Reason: "x"}}
	imported := accepted("rome", nil)
	imported.Status.Conditions = []metav1.Condition{{Type: "ManagedClusterImportSucceeded", Status: metav1.ConditionTrue, Reason: "ImportSucceed",
		LastTransitionTime: metav1.NewTime(now)}}
	pending := accepted("rome", nil)
	pending.Spec.HubAcceptsClient = false
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		objects []client.Object
		without bool
		host    string // of the kubeconfig that is used
		reason  string
		message string
	}{
		"the same name": {cluster: accepted("rome", nil), objects: []client.Object{capiCluster("rome", "rome", "Provisioned"),
			secret("rome", "rome-kubeconfig", "value")}, host: "rome-kubeconfig.rome", reason: "ImportSucceed"},
		"another name": {cluster: accepted("rome", named("italy/roma")), objects: []client.Object{capiCluster("italy", "roma", "Provisioned"),
			secret("italy", "roma-kubeconfig", "value"), capiCluster("rome", "rome", "Provisioned"), secret("rome", "rome-kubeconfig", "value")},
			host: "roma-kubeconfig.italy", reason: "ImportSucceed"},
		"no Cluster":                        {cluster: accepted("rome", nil), objects: []client.Object{secret("rome", "rome-kubeconfig", "value")}},
		"no Cluster of that name":           {cluster: accepted("rome", named("italy/roma")), reason: "KubeConfigNotFound", message: "no Cluster italy/roma"},
		"no Cluster API":                    {cluster: accepted("rome", nil), without: true},
		"no Cluster API, but an annotation": {cluster: accepted("rome", named("italy/roma")), without: true, reason: "KubeConfigNotFound"},
		"no name":                           {cluster: accepted("rome", named("roma")), reason: "KubeConfigNotFound", message: `"roma" is not NAMESPACE/NAME`},
		"too much of a name":                {cluster: accepted("rome", named("a/b/c")), reason: "KubeConfigNotFound", message: "is not NAMESPACE/NAME"},
		"not provisioned": {cluster: accepted("rome", nil), objects: []client.Object{capiCluster("rome", "rome", "Provisioning"),
			secret("rome", "rome-kubeconfig", "value")}, reason: "KubeConfigNotFound", message: `is "Provisioning"`},
		"no Secret": {cluster: accepted("rome", nil), objects: []client.Object{capiCluster("rome", "rome", "Provisioned")},
			reason: "KubeConfigNotFound", message: "no Secret rome/rome-kubeconfig"},
		"another key": {cluster: accepted("rome", nil), objects: []client.Object{capiCluster("rome", "rome", "Provisioned"),
			secret("rome", "rome-kubeconfig", "kubeconfig")}, reason: "KubeConfigGetFailed", message: "has no key value"},
		"a Secret": {cluster: accepted("rome", bySecret("access")), objects: []client.Object{secret("rome", "access", "kubeconfig")}, without: true,
			host: "access.rome", reason: "ImportSucceed"},
		"a Secret as of Cluster API": {cluster: accepted("rome", bySecret("access")), objects: []client.Object{secret("rome", "access", "value")},
			host: "access.rome", reason: "ImportSucceed"},
		"a Secret before Cluster API": {cluster: accepted("rome", bySecret("access")), objects: []client.Object{secret("rome", "access", "kubeconfig"),
			capiCluster("rome", "rome", "Provisioned"), secret("rome", "rome-kubeconfig", "value")}, host: "access.rome", reason: "ImportSucceed"},
		"a Secret of another namespace": {cluster: accepted("rome", bySecret("access")), objects: []client.Object{secret("italy", "access", "kubeconfig")},
			reason: "KubeConfigNotFound", message: "no Secret rome/access"},
		"not accepted": {cluster: pending, objects: []client.Object{capiCluster("rome", "rome", "Provisioned"),
			secret("rome", "rome-kubeconfig", "value")}},
		"joined already": {cluster: joined, objects: []client.Object{capiCluster("rome", "rome", "Provisioned"),
			secret("rome", "rome-kubeconfig", "value")}},
		"imported already": {cluster: imported, objects: []client.Object{capiCluster("rome", "rome", "Provisioned"),
			secret("rome", "rome-kubeconfig", "value")}, reason: "ImportSucceed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t, append(test.objects, test.cluster)...)
			s.without = test.without
			result, err := s.reconcile("rome")
			reason, message := s.condition("rome")
			if reason != test.reason || !strings.Contains(message, test.message) {
				t.Errorf("%s: %s, want %s: %s", reason, message, test.reason, test.message)
			}
			if waits := result.RequeueAfter == time.Minute; waits != (test.reason == "KubeConfigNotFound") {
				t.Errorf("again after %s", result.RequeueAfter)
			}
			if fails := err != nil; fails != (test.reason == "KubeConfigGetFailed") {
				t.Errorf("the reconcile returns %v", err)
			}
			if _, found := s.installed["https://"+test.host+":6443"]; found != (test.host != "") || len(s.installed) > 1 {
				t.Errorf("installed in %v, want %q", s.installed, test.host)
			}
		})
	}
}

// RG-47: each way to fail is a reason, is said once, and tried again until it succeeds; and nothing of a kubeconfig is said.
func TestFailures(t *testing.T) {
	t.Parallel()
	ready := func() []client.Object {
		return []client.Object{accepted("rome", nil), capiCluster("rome", "rome", "Provisioned"), secret("rome", "rome-kubeconfig", "value")}
	}
	content := func(s *scene, value string) {
		kubeconfig := &corev1.Secret{}
		if err := s.Get(s.Context(), client.ObjectKey{Namespace: "rome", Name: "rome-kubeconfig"}, kubeconfig); err != nil {
			s.Fatal(err)
		}
		kubeconfig.Data["value"] = []byte(value)
		if err := s.Update(s.Context(), kubeconfig); err != nil {
			s.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		spoil, mend     func(*scene)
		reason, message string
	}{
		"no kubeconfig": {func(s *scene) { content(s, "users: [{user: {token: s3cr3t}]") }, func(s *scene) { content(s, fmt.Sprintf(kubeconfig, "a")) },
			"KubeConfigGetFailed", "is no kubeconfig"},
		"a program": {func(s *scene) {
			content(s, strings.Replace(fmt.Sprintf(kubeconfig, "a"), `"token":"s3cr3t"`, `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh"}`, 1))
		}, func(s *scene) { content(s, fmt.Sprintf(kubeconfig, "a")) }, "KubeConfigGetFailed", "runs a program"},
		"a file": {func(s *scene) {
			content(s, strings.Replace(fmt.Sprintf(kubeconfig, "a"), `"token":"s3cr3t"`, `"tokenFile":"/etc/passwd"`, 1))
		}, func(s *scene) { content(s, fmt.Sprintf(kubeconfig, "a")) }, "KubeConfigGetFailed", "is no key of the Secret"},
		"a proxy": {func(s *scene) {
			content(s, strings.Replace(fmt.Sprintf(kubeconfig, "a"), `"server"`, `"proxy-url":"http://ann:s3cr3t%ss@proxy:3128","server"`, 1))
		}, func(s *scene) { content(s, fmt.Sprintf(kubeconfig, "a")) }, "KubeConfigGetFailed", "no URL of a proxy"},
		"no right": {func(s *scene) { s.refused["rome-kubeconfig"] = true }, func(s *scene) { s.refused = nil }, "KubeConfigGetFailed", "forbidden"},
		"no address": {func(s *scene) { s.refused["cluster-info"] = true }, func(s *scene) { s.refused = nil }, "ConfigRendererFailed",
			"render-auto: find out where agents reach the hub"},
		"no values": {func(s *scene) {
			s.failure = failed("ConfigRendererFailed", errors.New("values of chart klusterlet: x"))
		},
			func(s *scene) { s.failure = nil }, "ConfigRendererFailed", "values of chart klusterlet"},
		"no answer": {func(s *scene) { s.failure = errors.New("nothing answers\nstart it") }, func(s *scene) { s.failure = nil }, "ImportFailed",
			"nothing answers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t, ready()...)
			test.spoil(s)
			for range 2 {
				_, err := s.reconcile("rome")
				reason, message := s.condition("rome")
				if err == nil || reason != test.reason || !strings.Contains(message, test.message) || strings.Contains(message, "\n") {
					t.Errorf("%s: %s, want %s: %s; the reconcile returns %v", reason, message, test.reason, test.message, err)
				}
				if strings.Contains(message+fmt.Sprint(err), "s3cr3t") {
					t.Errorf("a secret is in %s, or %v", message, err)
				}
			}
			if got := s.events(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning ManagedClusterImportFailed "+test.reason+": ") {
				t.Errorf("events %q", got)
			}
			test.mend(s)
			if _, err := s.reconcile("rome"); err != nil {
				t.Error(err)
			}
			if reason, message := s.condition("rome"); reason != "ImportSucceed" {
				t.Errorf("in the end: %s: %s", reason, message)
			}
			if got := s.events(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal ManagedClusterImported ") {
				t.Errorf("events %q", got)
			}
		})
	}
}

// A condition that says what is missing goes when nothing is any more: nobody requests an import, or the agent was installed otherwise.
func TestConditionIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*scene, *clusterv1.ManagedCluster) error{
		"nobody asks": func(s *scene, cluster *clusterv1.ManagedCluster) error {
			cluster.Annotations = nil
			return s.Update(s.Context(), cluster)
		},
		"it has joined": func(s *scene, cluster *clusterv1.ManagedCluster) error {
			joined := metav1.Condition{Type: "ManagedClusterJoined", Status: metav1.ConditionTrue, Reason: "x"}
			meta.SetStatusCondition(&cluster.Status.Conditions, joined)
			return s.Status().Update(s.Context(), cluster)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t, accepted("rome", map[string]string{"capstan.io/import-kubeconfig-secret": "access"}))
			if _, err := s.reconcile("rome"); err != nil {
				t.Fatal(err)
			}
			if reason, _ := s.condition("rome"); reason != "KubeConfigNotFound" {
				t.Fatalf("the reason is %q", reason)
			}
			if err := end(s, s.cluster("rome")); err != nil {
				t.Fatal(err)
			}
			if result, err := s.reconcile("rome"); err != nil || result.RequeueAfter != 0 {
				t.Errorf("%v, %v", result, err)
			}
			if reason, message := s.condition("rome"); reason != "" {
				t.Errorf("the condition is %s: %s", reason, message)
			}
		})
	}
}

// A Cluster wakes the ManagedClusters that stand for it and wait; other changes of it than that of its phase wake nobody.
func TestWakes(t *testing.T) {
	t.Parallel()
	imported := accepted("milan", map[string]string{"cluster.x-k8s.io/cluster": "rome/rome"})
	imported.Status.Conditions = []metav1.Condition{{Type: "ManagedClusterImportSucceeded", Status: metav1.ConditionTrue, Reason: "ImportSucceed"}}
	s := setUp(t, accepted("rome", nil), accepted("roma", map[string]string{"cluster.x-k8s.io/cluster": "rome/rome"}), imported,
		accepted("paris", nil), accepted("berlin", map[string]string{"cluster.x-k8s.io/cluster": "x"}))
	var names []string
	for _, request := range s.c.ofCAPI(t.Context(), capiCluster("rome", "rome", "Provisioned")) {
		names = append(names, request.Name)
	}
	if fmt.Sprint(names) != "[roma rome]" {
		t.Errorf("wakes %v", names)
	}
	before, other, after := capiCluster("rome", "rome", "Pending"), capiCluster("rome", "rome", "Pending"), capiCluster("rome", "rome", "Provisioned")
	other.SetLabels(map[string]string{"a": "b"})
	if phaseChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: other}) ||
		!phaseChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("the wrong changes matter")
	}
}

// RG-47: another import is requested by the removal of the conditions that the hub has imported the cluster and that it has joined, in
// any order.
func TestImportedAgain(t *testing.T) {
	t.Parallel()
	with := func(conditions ...string) *clusterv1.ManagedCluster {
		cluster := accepted("rome", nil)
		for _, condition := range conditions {
			meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "x",
				LastTransitionTime: metav1.NewTime(now)})
		}
		return cluster
	}
	const imported, joined = "ManagedClusterImportSucceeded", "ManagedClusterJoined"
	for name, test := range map[string]struct {
		before, after *clusterv1.ManagedCluster
		want          bool
	}{
		"before it has joined":           {with(imported), with(), true},
		"both":                           {with(imported, joined), with(), true},
		"the other was removed before":   {with(joined), with(), true},
		"it has joined":                  {with(imported, joined), with(joined), false},
		"the hub has imported it":        {with(imported, joined), with(imported), false},
		"the hub imports it":             {with(), with(imported), false},
		"it joins":                       {with(), with(joined), false},
		"nothing of that has been or is": {with(), with(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := importRequested().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
				t.Errorf("another import is requested: %t, want %t", got, test.want)
			}
			s := setUp(t, test.after, capiCluster("rome", "rome", "Provisioned"), secret("rome", "rome-kubeconfig", "value"))
			if _, err := s.reconcile("rome"); err != nil {
				t.Fatal(err)
			}
			if installed := len(s.installed) == 1; test.want && !installed {
				t.Errorf("installed in %v", s.installed)
			}
		})
	}
}

// RG-48: an agent that has not joined with the hub's token while that is valid gets another one, as often as it takes.
func TestImportedForAnotherToken(t *testing.T) {
	t.Parallel()
	const day, twice = 24 * time.Hour, "ManagedClusterImported ManagedClusterImported"
	none := func(*scene) error { return nil }
	for name, test := range map[string]struct {
		change    func(*scene) error
		renderers string
		again     bool
		reason    string
		delay     time.Duration
		events    string
	}{
		"it has not joined":  {none, "render-auto", true, "ImportSucceed", day, twice},
		"with more values":   {none, "render-auto render-from-config-secret", true, "ImportSucceed", day, twice},
		"with another token": {none, "render-from-config-secret", false, "ImportSucceed", 0, ""},
		"it has joined": {func(s *scene) error {
			cluster := s.cluster("rome")
			joined := metav1.Condition{Type: "ManagedClusterJoined", Status: metav1.ConditionTrue, Reason: "x"}
			meta.SetStatusCondition(&cluster.Status.Conditions, joined)
			return s.Status().Update(s.Context(), cluster)
		}, "render-auto", false, "ImportSucceed", 0, ""},
		"it is denied": {func(s *scene) error {
			cluster := s.cluster("rome")
			cluster.Spec.HubAcceptsClient = false
			return s.Update(s.Context(), cluster)
		}, "render-auto", false, "ImportSucceed", 0, ""},
		"nobody asks": {func(s *scene) error { return s.Delete(s.Context(), capiCluster("rome", "rome", "")) },
			"render-auto", false, "ImportSucceed", 0, ""},
		"the kubeconfig is gone": {func(s *scene) error { return s.Delete(s.Context(), secret("rome", "rome-kubeconfig", "value")) },
			"render-auto", false, "ImportSucceed", day, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t, accepted("rome", nil), capiCluster("rome", "rome", "Provisioned"), secret("rome", "rome-kubeconfig", "value"),
				configSecret("klusterlet: {mode: Singleton}"))
			s.c.Renderers = strings.Fields(test.renderers)
			reconcile := func(after, delay time.Duration, installs bool) {
				t.Helper()
				s.clock.SetTime(now.Add(after))
				clear(s.installed)
				result, err := s.reconcile("rome")
				if err != nil || result.RequeueAfter != delay || (len(s.installed) == 1) != installs {
					t.Errorf("after %s: again in %s, %v; installed in %v", after, result.RequeueAfter, err, s.installed)
				}
			}
			repeats := strings.Contains(test.renderers, "render-auto")
			whenRepeated := func(delay time.Duration) time.Duration {
				if repeats {
					return delay
				}
				return 0
			}
			reconcile(0, whenRepeated(day), true)
			reconcile(time.Hour, whenRepeated(day-time.Hour), false)
			s.events()
			if err := test.change(s); err != nil {
				t.Fatal(err)
			}
			for days := range 2 {
				reconcile(time.Duration(days+1)*day, test.delay, test.again)
				if test.again {
					reconcile(time.Duration(days+1)*day+time.Hour, day-time.Hour, false)
				}
			}
			if reason, message := s.condition("rome"); reason != test.reason {
				t.Errorf("the condition is %s: %s", reason, message)
			}
			var said []string
			for _, event := range s.events() {
				said = append(said, strings.Fields(event)[1])
			}
			if got := strings.Join(said, " "); got != test.events {
				t.Errorf("events %s", got)
			}
		})
	}
}

// The cache has no more of Clusters than the importer reads.
func TestOnlyPhase(t *testing.T) {
	t.Parallel()
	cluster := capiCluster("rome", "rome", "Provisioned")
	cluster.Object["spec"] = map[string]any{"large": "text"}
	kept, err := onlyPhase(cluster)
	if err != nil {
		t.Fatal(err)
	}
	object, ok := kept.(*unstructured.Unstructured)
	if !ok || phaseOf(object) != "Provisioned" || object.Object["spec"] != nil || client.ObjectKeyFromObject(object).String() != "rome/rome" {
		t.Errorf("kept %v", kept)
	}
}
