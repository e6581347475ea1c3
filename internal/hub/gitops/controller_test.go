package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
)

// fixture is a hub with an Argo CD in namespace argocd, where set s is bound and Placement web is.
type fixture struct {
	*testing.T
	client.Client
	clock  *clocktesting.FakeClock
	events chan string
	c      *Controller
}

const argo = "argocd"

func setUp(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, appsv1beta1.AddToScheme,
		addonv1beta1.AddToScheme, clusterv1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.ClusterSelector.SelectorType = clusterv1beta2.ExclusiveClusterSetLabel
	server := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "argocd-server",
		Labels: map[string]string{"app.kubernetes.io/component": "server", "app.kubernetes.io/part-of": "argocd"}}}
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.GitOpsCluster{}).
		WithObjects(append(objects, set, bound(argo), server, placement)...).Build()
	address := accessprovider.NewAddress()
	address.Publish("https://hub.example.com", []byte("ca of hub"))
	clock := clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
	recorder := events.NewFakeRecorder(100)
	return &fixture{T: t, Client: api, clock: clock, events: recorder.Events, c: New(
		Clients{Client: api, Live: api, Tokens: cached{api, fleet.LabelManagedServiceAccount}, Secrets: cached{api, fleet.LabelArgoSecretType},
			Applications: func() client.Reader { return nil }},
		recorder, Options{Clock: clock, Access: accessprovider.Options{
			Address: address, Server: func(url, cluster string) string { return url + "/" + cluster }}})}
}

// cached is a client whose cache has the Secrets with a label.
type cached struct {
	client.Client
	label string
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, opts...); err != nil || o.GetLabels()[c.label] != "" {
		return err
	}
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

func (c cached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Client.List(ctx, list, append(opts, client.HasLabels{c.label})...)
}

// bound binds set s in a namespace.
func bound(namespace string) *clusterv1beta2.ManagedClusterSetBinding {
	b := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}}
	b.Spec.ClusterSet = "s"
	return b
}

// decision has the decisions of Placement web in a namespace.
func decision(namespace string, clusters ...string) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-decision-1",
		Labels: map[string]string{fleet.LabelPlacement: "web"}}}
	d.Status.Decisions = []clusterv1beta1.ClusterDecision{}
	for _, cluster := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	return d
}

// decide changes the decisions in the namespace of the Argo CD.
func (f *fixture) decide(clusters ...string) error {
	d := &clusterv1beta1.PlacementDecision{}
	if err := f.Get(f.Context(), client.ObjectKeyFromObject(decision(argo)), d); err != nil {
		return err
	}
	d.Status = decision(argo, clusters...).Status
	return f.Update(f.Context(), d)
}

// gitOps refers to Placement web.
func gitOps(namespace string, change ...func(*appsv1beta1.GitOpsCluster)) *appsv1beta1.GitOpsCluster {
	g := &appsv1beta1.GitOpsCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "clusters"}}
	g.Spec.ArgoServer.ArgoNamespace = argo
	g.Spec.PlacementRef = &corev1.ObjectReference{Kind: "Placement", Name: "web"}
	g.Spec.ManagedServiceAccountRef = "argo"
	for _, c := range change {
		c(g)
	}
	return g
}

// member is a cluster of set s that is accepted, with a tunnel.
func member(name string, labels map[string]string) []client.Object {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterSet: "s"}}}
	maps.Copy(cluster.Labels, labels)
	cluster.Spec.HubAcceptsClient = true
	cluster.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue}}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fleet.AddOnClusterProxy,
		Annotations: map[string]string{fleet.AnnotationBuiltIn: fleet.LabelTrue}}}
	return []client.Object{cluster, addOn}
}

// token is that of an account on a cluster.
func token(cluster, account string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: account,
		Labels: map[string]string{fleet.LabelManagedServiceAccount: fleet.LabelTrue}},
		Data: map[string][]byte{"token": []byte("token of " + cluster), "ca.crt": []byte("ca of " + cluster)}}
}

// clusterSecret is one that a user made for an Argo CD.
func clusterSecret(name, cluster, server string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: name,
		Labels: map[string]string{fleet.LabelArgoSecretType: fleet.ArgoSecretTypeCluster}},
		Data: map[string][]byte{"name": []byte(cluster), "server": []byte(server), "config": []byte("own")}}
}

// reconcile reconciles a GitOpsCluster twice, with time for clusters to leave, and returns it.
func (f *fixture) reconcile(namespace string) *appsv1beta1.GitOpsCluster {
	f.Helper()
	g := &appsv1beta1.GitOpsCluster{}
	key := client.ObjectKey{Namespace: namespace, Name: "clusters"}
	for range 2 {
		if _, err := f.c.Reconcile(f.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			f.Fatal(err)
		}
		f.clock.Step(debounce.Delay)
	}
	if err := f.Get(f.Context(), key, g); client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	return g
}

// secrets are the names of those in the namespace of the Argo CD.
func (f *fixture) secrets() (names []string) {
	f.Helper()
	list := &corev1.SecretList{}
	if err := f.List(f.Context(), list, client.InNamespace(argo)); err != nil {
		f.Fatal(err)
	}
	for _, secret := range list.Items {
		names = append(names, secret.Name)
	}
	slices.Sort(names)
	return names
}

func (f *fixture) expectSecrets(want ...string) {
	f.Helper()
	if got := f.secrets(); !slices.Equal(got, want) {
		f.Errorf("there are the Secrets %q, want %q", got, want)
	}
}

func (f *fixture) secret(name string) *corev1.Secret {
	f.Helper()
	secret := &corev1.Secret{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: argo, Name: name}, secret); err != nil {
		f.Fatal(err)
	}
	return secret
}

// sourceOf is the Secret that is copied for a cluster.
func (f *fixture) sourceOf(cluster string) *corev1.Secret {
	f.Helper()
	source := &corev1.Secret{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: cluster, Name: sourceOf(cluster)}, source); err != nil {
		f.Fatal(err)
	}
	return source
}

func (f *fixture) apply(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// recordedEvents are the events until now.
func (f *fixture) recordedEvents() (all string) {
	for {
		select {
		case event := <-f.events:
			all += event + "\n"
		default:
			return all
		}
	}
}

// AR-02 AR-03: a cluster that is selected has a Secret as Argo CD knows it, which leads through the tunnel.
func TestSecretOfCluster(t *testing.T) {
	t.Parallel()
	f := setUp(t, slices.Concat(member("c1", map[string]string{"region": "eu", "app.kubernetes.io/instance": "fleet",
		"argocd.argoproj.io/instance": "fleet", fleet.LabelArgoClusterName: "forged"}),
		[]client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo")})...)
	g := f.reconcile(argo)
	secret := f.secret("c1-argo-cluster-secret")
	wantLabels := map[string]string{fleet.LabelClusterSet: "s", "region": "eu", "argocd.argoproj.io/secret-type": "cluster",
		"apps.open-cluster-management.io/acm-cluster": "true", "apps.open-cluster-management.io/cluster-name": "c1",
		"apps.open-cluster-management.io/cluster-server": "hub.example.com", "cluster.open-cluster-management.io/backup": ""}
	if !maps.Equal(secret.Labels, wantLabels) || secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("the labels are %v, want %v", secret.Labels, wantLabels)
	}
	config := map[string]any{}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		t.Fatal(err)
	}
	wantConfig := map[string]any{"bearerToken": "token of c1", "tlsClientConfig": map[string]any{"insecure": false, "caData": "Y2Egb2YgaHVi"}}
	if string(secret.Data["name"]) != "c1" || string(secret.Data["server"]) != "https://hub.example.com/c1" ||
		fmt.Sprint(config) != fmt.Sprint(wantConfig) {
		t.Errorf("the Secret says %s", secret.Data)
	}
	if g.Status.Phase != "successful" || !strings.Contains(g.Status.Message, "c1") || g.Status.LastUpdateTime.IsZero() {
		t.Errorf("the status is %+v", g.Status)
	}
	for _, kind := range []string{"Ready", "PlacementResolved", "ClustersRegistered"} {
		if !meta.IsStatusConditionTrue(g.Status.Conditions, kind) {
			t.Errorf("%s is not True in %+v", kind, g.Status.Conditions)
		}
	}
	if recorded := f.recordedEvents(); strings.Count(recorded, "ClusterRegistered") != 1 || strings.Contains(recorded, "token of") {
		t.Errorf("the events are %s", recorded)
	}
	// Nothing is written again, and what others keep there stays.
	before := g.ResourceVersion
	secret.Data["shard"] = []byte("1")
	secret.Data["server"] = []byte("https://changed")
	f.apply(f.Update(t.Context(), secret))
	if g = f.reconcile(argo); g.ResourceVersion != before {
		t.Errorf("the status is written again: %+v", g.Status)
	}
	if secret = f.secret("c1-argo-cluster-secret"); string(secret.Data["server"]) != "https://hub.example.com/c1" ||
		string(secret.Data["shard"]) != "1" {
		t.Errorf("the Secret says %s", secret.Data)
	}
}

// AR-03: where Secrets come from and lead to.
func TestSources(t *testing.T) {
	t.Parallel()
	noAccount := func(g *appsv1beta1.GitOpsCluster) { g.Spec.ManagedServiceAccountRef = "" }
	direct := func(urls ...string) []client.Object {
		cluster, ok := member("c1", nil)[0].(*clusterv1.ManagedCluster)
		if !ok {
			t.Fatal("no cluster")
		}
		for _, url := range urls {
			cluster.Spec.ManagedClusterClientConfigs = append(cluster.Spec.ManagedClusterClientConfigs, clusterv1.ClientConfig{URL: url})
		}
		return []client.Object{cluster}
	}
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "c1-cluster-secret"},
		Data: map[string][]byte{"name": []byte("other"), "server": []byte("https://copied"), "config": []byte("{}")}}
	for name, test := range map[string]struct {
		g        *appsv1beta1.GitOpsCluster
		objects  []client.Object
		secret   string
		server   string
		failures []string
	}{
		"no token": {gitOps(argo), member("c1", nil), "", "", []string{"CredentialNotFound", "ManagedServiceAccount c1/argo"}},
		"a Secret without the label": {gitOps(argo), append(member("c1", nil), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1",
			Name: "argo"}, Data: token("c1", "argo").Data}), "", "", []string{"CredentialNotFound"}},
		"an empty token": {gitOps(argo), append(member("c1", nil), &corev1.Secret{ObjectMeta: token("c1", "argo").ObjectMeta}), "", "",
			[]string{"CredentialNotFound"}},
		"the usual account": {gitOps(argo, noAccount), append(member("c1", nil), token("c1", "application-manager"), source),
			"c1-application-manager-cluster-secret", "https://hub.example.com/c1", nil},
		"a copy":  {gitOps(argo, noAccount), append(member("c1", nil), source), "c1-cluster-secret", "https://copied", nil},
		"neither": {gitOps(argo, noAccount), member("c1", nil), "", "", []string{"c1/application-manager", "c1/c1-cluster-secret"}},
		"an incomplete one": {gitOps(argo, noAccount), append(member("c1", nil), &corev1.Secret{ObjectMeta: source.ObjectMeta}), "", "",
			[]string{"has no server"}},
		"no copy with an account": {gitOps(argo), append(member("c1", nil), source), "", "", []string{"CredentialNotFound"}},
		"without a tunnel": {gitOps(argo), append(direct("http://plain", "https://kubernetes.default.svc", "https://c1.example.com:6443"),
			token("c1", "argo")), "c1-argo-cluster-secret", "https://c1.example.com:6443", nil},
		"without a way": {gitOps(argo), append(direct("http://plain"), token("c1", "argo")), "", "",
			[]string{"ClusterNotReached", "cluster-proxy", "managedClusterClientConfigs"}},
		"blank": {gitOps(argo, noAccount, func(g *appsv1beta1.GitOpsCluster) { g.Spec.CreateBlankClusterSecrets = ptr.To(true) }), direct(),
			"c1-application-manager-cluster-secret", "https://c1-control-plane", nil}, // AR-05
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, append(test.objects, decision(argo, "c1"), test.g)...)
			g := f.reconcile(argo)
			if test.secret == "" {
				f.expectSecrets()
				expectFailure(t, g, test.failures...)
				return
			}
			f.expectSecrets(test.secret)
			secret := f.secret(test.secret)
			if string(secret.Data["server"]) != test.server || string(secret.Data["name"]) != "c1" || g.Status.Phase != "successful" {
				t.Errorf("the Secret says %s, the status %+v", secret.Data, g.Status)
			}
		})
	}
}

// AR-03: who writes Secrets in the namespace of a cluster gives Argo CD a way to that cluster and nothing else.
func TestCopies(t *testing.T) {
	t.Parallel()
	const good = `{"username":"u","password":"p","bearerToken":"t","tlsClientConfig":{"insecure":false,"serverName":"s","certData":"Yw==",` +
		`"keyData":"aw==","caData":"Y2E="},"disableCompression":true,"proxyUrl":"http://proxy"}`
	for name, test := range map[string]struct {
		server, config string
		refused        []string
	}{
		"all that connects":          {"https://c1", good, nil},
		"the server with a slash":    {"https://c1/", good, nil},
		"what Argo CD does not know": {"https://c1", strings.Replace(good, "{", `{"more":1,"execProviderConfig":null,`, 1), nil},
		"a program":                  {"https://c1", `{"execProviderConfig":{"command":"sh"}}`, []string{"execProviderConfig"}},
		"a program in another case":  {"https://c1", `{"EXECproviderconfig":{"command":"sh"}}`, []string{"execProviderConfig"}},
		"the identity of Argo CD":    {"https://c1", `{"awsAuthConfig":{"clusterName":"c2"}}`, []string{"awsAuthConfig"}},
		"no JSON":                    {"https://c1", `bearerToken: hidden`, []string{"config", "bearerToken and tlsClientConfig"}},
		"other JSON":                 {"https://c1", `{"bearerToken":["hidden"]}`, []string{"config", "bearerToken and tlsClientConfig"}},
		"the cluster of Argo CD":     {"https://kubernetes.default.svc", good, []string{"server", "https://cluster.example.com:6443"}},
		"that, with a slash":         {"https://kubernetes.default.svc/", good, []string{"server"}},
		"no URL":                     {"c1", good, []string{"server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := copied("https://c1")
			f := setUp(t, append(member("c1", nil), source, decision(argo, "c1"), gitOps(argo, func(g *appsv1beta1.GitOpsCluster) {
				g.Spec.ManagedServiceAccountRef = ""
			}))...)
			f.reconcile(argo)
			f.expectSecrets(source.Name)
			source = f.sourceOf("c1")
			source.Data["server"], source.Data["config"] = []byte(test.server), []byte(test.config)
			f.apply(f.Update(t.Context(), source))
			g := f.reconcile(argo)
			if test.refused == nil {
				if made := f.secret(source.Name); string(made.Data["server"]) != "https://c1" || string(made.Data["config"]) != good {
					t.Errorf("the Secret says %s", made.Data)
				}
				return
			}
			f.expectSecrets() // not even that of before
			expectFailure(t, g, append(test.refused, "CredentialRefused", "c1/c1-cluster-secret")...)
			if written := f.recordedEvents() + fmt.Sprint(g.Status); strings.Contains(written, "hidden") {
				t.Errorf("a credential is told: %s", written)
			}
		})
	}
}

// withCopy is a hub with one cluster, which is registered by a copy.
func withCopy(t *testing.T) *fixture {
	t.Helper()
	g := gitOps(argo, func(g *appsv1beta1.GitOpsCluster) { g.Spec.ManagedServiceAccountRef = "" })
	f := setUp(t, append(member("c1", nil), copied("https://copied"), decision(argo, "c1"), g)...)
	result, err := f.c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)})
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("it is due again after %s: %v", result.RequeueAfter, err)
	}
	return f
}

// copied is what is copied for the cluster.
func copied(server string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "c1-cluster-secret"},
		Data: map[string][]byte{"server": []byte(server), "config": []byte("{}")}}
}

// AR-03: a copy follows its source, which is not watched, and does not outlast it for long.
func TestCopiesFollowTheirSource(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fixture, *corev1.Secret) error
		left   []string // at once
		server string
		later  []string // after ten minutes
	}{
		"nothing": {func(*fixture, *corev1.Secret) error { return nil }, []string{"c1-cluster-secret"}, "https://copied",
			[]string{"c1-cluster-secret"}},
		"the content": {func(f *fixture, source *corev1.Secret) error {
			source.Data["server"] = []byte("https://moved")
			return f.Update(f.Context(), source)
		}, []string{"c1-cluster-secret"}, "https://moved", []string{"c1-cluster-secret"}},
		"no content": {func(f *fixture, source *corev1.Secret) error {
			source.Data = nil
			return f.Update(f.Context(), source)
		}, []string{"c1-cluster-secret"}, "https://copied", nil},
		"a content that is refused": {func(f *fixture, source *corev1.Secret) error {
			source.Data["server"] = []byte("https://kubernetes.default.svc")
			return f.Update(f.Context(), source)
		}, nil, "", nil},
		"no source": {func(f *fixture, source *corev1.Secret) error { return f.Delete(f.Context(), source) },
			[]string{"c1-cluster-secret"}, "https://copied", nil},
		"no source, and another account": {func(f *fixture, source *corev1.Secret) error {
			return errors.Join(f.Delete(f.Context(), source), f.Patch(f.Context(), gitOps(argo), client.RawPatch("application/merge-patch+json",
				[]byte(`{"spec":{"managedServiceAccountRef":"other"}}`))))
		}, nil, "", nil},
		"no source, but an account": {func(f *fixture, source *corev1.Secret) error {
			return errors.Join(f.Create(f.Context(), token("c1", "application-manager")), f.Delete(f.Context(), source))
		}, []string{"c1-application-manager-cluster-secret"}, "https://hub.example.com/c1",
			[]string{"c1-application-manager-cluster-secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := withCopy(t)
			f.apply(test.change(f, f.sourceOf("c1")))
			f.reconcile(argo)
			f.expectSecrets(test.left...)
			for _, left := range test.left {
				if server := string(f.secret(left).Data["server"]); server != test.server {
					t.Errorf("the server is %s, want %s", server, test.server)
				}
			}
			f.clock.Step(retentionLimit - 4*debounce.Delay)
			f.reconcile(argo)
			f.expectSecrets(test.left...)
			f.reconcile(argo)
			f.expectSecrets(test.later...)
		})
	}
}

// AR-03: an Argo CD does not lose a cluster when what is copied is deleted and made again, as rotations do, however often.
func TestSourceThatComesBack(t *testing.T) {
	t.Parallel()
	f := withCopy(t)
	for _, server := range []string{"https://first", "https://second"} {
		f.apply(f.Delete(f.Context(), f.sourceOf("c1")))
		f.reconcile(argo)
		f.clock.Step(retentionLimit - time.Minute)
		f.reconcile(argo)
		f.expectSecrets("c1-cluster-secret")
		f.apply(f.Create(f.Context(), copied(server)))
		f.reconcile(argo)
		f.expectSecrets("c1-cluster-secret")
		if got := string(f.secret("c1-cluster-secret").Data["server"]); got != server {
			t.Errorf("the server is %s, want %s", got, server)
		}
	}
}

// AR-03: the name by which Argo CD knows its own cluster is not given to another one.
func TestNameOfHub(t *testing.T) {
	t.Parallel()
	f := setUp(t, append(member("in-cluster", nil), decision(argo, "in-cluster"), gitOps(argo), token("in-cluster", "argo"))...)
	expectFailure(t, f.reconcile(argo), "SecretOfAnother", "in-cluster")
	f.expectSecrets()
}

// expectFailure looks for texts in the conditions of a GitOpsCluster that is not ready.
func expectFailure(t *testing.T, g *appsv1beta1.GitOpsCluster, texts ...string) {
	t.Helper()
	status := fmt.Sprintf("%+v", g.Status)
	if g.Status.Phase != "failed" || !meta.IsStatusConditionFalse(g.Status.Conditions, "Ready") {
		t.Errorf("the status is %s", status)
	}
	for _, text := range texts {
		if !strings.Contains(status, text) {
			t.Errorf("%q is missing in %s", text, status)
		}
	}
}

// AR-03: Secrets that somebody else made stay as they are, and the status says so.
func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	plain := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "c1-argo-cluster-secret"}}
	forOther := clusterSecret("c1-argo-cluster-secret", "c2", "https://c2")
	forOther.Labels[fleet.LabelArgoImported], forOther.Labels[fleet.LabelArgoClusterName] = fleet.LabelTrue, "c2"
	for name, secret := range map[string]*corev1.Secret{
		"the name of the Secret":            plain,
		"that, for a cluster":               clusterSecret("c1-argo-cluster-secret", "x", "https://x"),
		"that, for another managed cluster": forOther,
		"the name of the cluster":           clusterSecret("mine", "c1", "https://x"),
		"the server":                        clusterSecret("mine", "x", "https://hub.example.com/c1"),
		"the server, as Argo CD compares":   clusterSecret("mine", "x", "https://hub.example.com/c1/"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo"),
				secret.DeepCopy()})...)
			g := f.reconcile(argo)
			f.expectSecrets(secret.Name)
			if got := f.secret(secret.Name); fmt.Sprint(got.Data, got.Labels) != fmt.Sprint(secret.Data, secret.Labels) {
				t.Errorf("the Secret is now %+v", got)
			}
			expectFailure(t, g, "SecretOfAnother", argo+"/"+secret.Name)
			if recorded := f.recordedEvents(); strings.Count(recorded, "ClusterNotRegistered") != 1 {
				t.Errorf("the events are %s", recorded)
			}
			f.apply(f.Delete(t.Context(), f.secret(secret.Name)))
			if g = f.reconcile(argo); g.Status.Phase != "successful" {
				t.Errorf("without the Secret, the status is %+v", g.Status)
			}
		})
	}
	// One that comes later has the cluster, too.
	f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo")})...)
	f.reconcile(argo)
	f.apply(f.Create(t.Context(), clusterSecret("mine", "c1", "https://x")))
	f.reconcile(argo)
	f.expectSecrets("mine")
	// One of another cluster is in nobody's way.
	f = setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo"),
		clusterSecret("mine", "c2", "https://c2")})...)
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret", "mine")
	// One that Open Cluster Management has made for the cluster is taken over.
	left := clusterSecret("c1-argo-cluster-secret", "c1", "https://old")
	left.Labels[fleet.LabelArgoImported], left.Labels[fleet.LabelArgoClusterName] = fleet.LabelTrue, "c1"
	f = setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo"), left})...)
	if g := f.reconcile(argo); g.Status.Phase != "successful" || string(f.secret(left.Name).Data["server"]) != "https://hub.example.com/c1" {
		t.Errorf("the status is %+v", g.Status)
	}
}

// AR-03: Secrets go with the reason for them, and no others do.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fixture) error
		left   []string
	}{
		"nothing": {func(*fixture) error { return nil }, []string{"c1-argo-cluster-secret", "c2-argo-cluster-secret"}},
		"the token": {func(f *fixture) error { return f.Delete(f.Context(), token("c1", "argo")) },
			[]string{"c1-argo-cluster-secret", "c2-argo-cluster-secret"}},
		"the decision":      {func(f *fixture) error { return f.decide("c2") }, []string{"c2-argo-cluster-secret"}},
		"the GitOpsCluster": {func(f *fixture) error { return f.Delete(f.Context(), gitOps(argo)) }, nil},
		"the binding":       {func(f *fixture) error { return f.Delete(f.Context(), bound(argo)) }, nil},
		"the Placement": {func(f *fixture) error {
			return f.Delete(f.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}})
		}, nil},
		"the acceptance": {func(f *fixture) error {
			return f.Patch(f.Context(), member("c1", nil)[0], client.RawPatch("application/merge-patch+json",
				[]byte(`{"spec":{"hubAcceptsClient":false}}`)))
		}, []string{"c2-argo-cluster-secret"}},
		"the account": {func(f *fixture) error {
			return f.Patch(f.Context(), gitOps(argo), client.RawPatch("application/merge-patch+json",
				[]byte(`{"spec":{"managedServiceAccountRef":"other"}}`)))
		}, nil},
		"the namespace of Argo CD": {func(f *fixture) error {
			return errors.Join(f.Create(f.Context(), bound("x")), f.Patch(f.Context(), gitOps(argo), client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"skipArgoNamespaceVerify":"true"}},"spec":{"argoServer":{"argoNamespace":"x"}}}`))))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, slices.Concat(member("c1", nil), member("c2", nil), []client.Object{decision(argo, "c1", "c2"), gitOps(argo),
				token("c1", "argo"), token("c2", "argo"), clusterSecret("mine", "x", "https://x")})...)
			f.reconcile(argo)
			f.expectSecrets("c1-argo-cluster-secret", "c2-argo-cluster-secret", "mine")
			f.apply(test.change(f))
			f.reconcile(argo)
			f.expectSecrets(append(test.left, "mine")...)
		})
	}
}

// AR-03: a copy goes when an account is named, even if that has no token yet.
func TestCopyGoes(t *testing.T) {
	t.Parallel()
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "c1-cluster-secret"},
		Data: map[string][]byte{"server": []byte("https://copied"), "config": []byte("{}")}}
	unnamed := gitOps(argo, func(g *appsv1beta1.GitOpsCluster) { g.Spec.ManagedServiceAccountRef = "" })
	f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), unnamed, source})...)
	f.reconcile(argo)
	f.expectSecrets("c1-cluster-secret")
	f.apply(f.Patch(t.Context(), gitOps(argo), client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"managedServiceAccountRef":"argo"}}`))))
	f.reconcile(argo)
	f.expectSecrets()
}

// AR-03: a cluster that is in no decision for a moment keeps its Secret.
func TestDecisionThatMoves(t *testing.T) {
	t.Parallel()
	f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo")})...)
	f.reconcile(argo)
	f.apply(f.decide())
	result, err := f.c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(gitOps(argo))})
	if err != nil || result.RequeueAfter != debounce.Delay {
		t.Errorf("it is due again after %s: %v", result.RequeueAfter, err)
	}
	f.expectSecrets("c1-argo-cluster-secret")
}

// AR-03: a cluster from a backup without status keeps its Secret until the hub has accepted it again, whether the Placement is decided or
// not.
func TestRestoredClusterKeepsItsSecret(t *testing.T) {
	t.Parallel()
	f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo")})...)
	f.reconcile(argo)
	cluster := &clusterv1.ManagedCluster{}
	f.apply(f.Get(t.Context(), client.ObjectKey{Name: "c1"}, cluster))
	cluster.Status.Conditions = nil
	f.apply(f.Update(t.Context(), cluster))
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret")
	f.apply(f.Delete(t.Context(), decision(argo)))
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret")
}

// AR-02 AR-03: until the Placement has decided, the status says so, and what is registered stays. An empty choice is one.
func TestPlacementHasNotDecided(t *testing.T) {
	t.Parallel()
	f := setUp(t, slices.Concat(member("c1", nil), []client.Object{gitOps(argo), token("c1", "argo")})...)
	expectFailure(t, f.reconcile(argo), "PlacementNotDecided", "Placement argocd/web")
	f.apply(f.Create(t.Context(), decision(argo, "c1")))
	f.reconcile(argo)
	f.expectSecrets("c1-argo-cluster-secret")
	f.apply(f.Delete(t.Context(), decision(argo)))
	expectFailure(t, f.reconcile(argo), "PlacementNotDecided")
	f.expectSecrets("c1-argo-cluster-secret")
	unwritten := decision(argo)
	unwritten.Status = clusterv1beta1.PlacementDecisionStatus{}
	f.apply(f.Create(t.Context(), unwritten))
	expectFailure(t, f.reconcile(argo), "PlacementNotDecided")
	f.expectSecrets("c1-argo-cluster-secret")
	f.apply(f.Delete(t.Context(), decision(argo)))
	f.apply(f.Delete(t.Context(), bound(argo)))
	f.reconcile(argo)
	f.expectSecrets() // what is taken away is not kept
	f.apply(f.Create(t.Context(), decision(argo)))
	if g := f.reconcile(argo); g.Status.Phase != "successful" {
		t.Errorf("when the Placement selects no cluster, the status is %+v", g.Status)
	}
}

// AR-02 AR-03: what stands in the way of all clusters.
func TestNothingIsRegistered(t *testing.T) {
	t.Parallel()
	placement := func(change func(*corev1.ObjectReference)) *appsv1beta1.GitOpsCluster {
		return gitOps(argo, func(g *appsv1beta1.GitOpsCluster) { change(g.Spec.PlacementRef) })
	}
	for name, test := range map[string]struct {
		g    *appsv1beta1.GitOpsCluster
		want []string
	}{
		"no name":           {placement(func(r *corev1.ObjectReference) { r.Name = "" }), []string{"InvalidPlacementRef", "placementRef.name"}},
		"another kind":      {placement(func(r *corev1.ObjectReference) { r.Kind = "ConfigMap" }), []string{"InvalidPlacementRef", "ConfigMap"}},
		"another group":     {placement(func(r *corev1.ObjectReference) { r.APIVersion = "v1" }), []string{"InvalidPlacementRef", "apiVersion"}},
		"another namespace": {placement(func(r *corev1.ObjectReference) { r.Namespace = "x" }), []string{"InvalidPlacementRef", `"x"`}},
		"no such Placement": {placement(func(r *corev1.ObjectReference) { r.Name = "x" }), []string{"PlacementNotFound", "no Placement x"}},
		"no Argo CD": {gitOps(argo, func(g *appsv1beta1.GitOpsCluster) { g.Spec.ArgoServer.ArgoNamespace = "x" }),
			[]string{"ArgoServerNotFound", "namespace x", "skipArgoNamespaceVerify"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), bound("x"), test.g, token("c1", "argo")})...)
			g := f.reconcile(argo)
			f.expectSecrets()
			expectFailure(t, g, test.want...)
		})
	}
	f := setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), gitOps(argo), token("c1", "argo")})...)
	f.c.c.Live = withoutServices{f.c.c.Live}
	if g := f.reconcile(argo); g.Status.Phase != "successful" {
		t.Errorf("where there are no Services, the status is %+v", g.Status)
	}
	skipped := gitOps(argo, func(g *appsv1beta1.GitOpsCluster) {
		g.Annotations = map[string]string{"skipArgoNamespaceVerify": "true"}
		g.Spec.ArgoServer.ArgoNamespace = "x"
	})
	f = setUp(t, slices.Concat(member("c1", nil), []client.Object{decision(argo, "c1"), bound("x"), skipped, token("c1", "argo")})...)
	if g := f.reconcile(argo); g.Status.Phase != "successful" {
		t.Errorf("without a look for Argo CD, the status is %+v", g.Status)
	}
}

// withoutServices is an API that does not serve them.
type withoutServices struct{ client.Client }

func (r withoutServices) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if _, ok := list.(*corev1.ServiceList); ok {
		return &meta.NoKindMatchError{GroupKind: corev1.SchemeGroupVersion.WithKind("Service").GroupKind()}
	}
	return r.Client.List(ctx, list, o...)
}

// AR-03: clusters get into no namespace in which no set of theirs is bound, whoever writes decisions.
func TestBoundSets(t *testing.T) {
	t.Parallel()
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "web"}}
	for name, test := range map[string]struct {
		namespaces []string // besides that of the Argo CD
		unbind     bool
		registered bool
	}{
		"both":            {[]string{"dev"}, false, true},
		"only that of it": {[]string{"dev"}, true, false},
		"only the Argo's": {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := slices.Concat(member("c1", nil), []client.Object{decision("dev", "c1"), gitOps("dev"), placement.DeepCopy(),
				token("c1", "argo")})
			for _, namespace := range test.namespaces {
				objects = append(objects, bound(namespace))
			}
			f := setUp(t, objects...)
			if test.unbind {
				f.apply(f.Delete(t.Context(), bound(argo)))
			}
			g := f.reconcile("dev")
			if test.registered {
				f.expectSecrets("c1-argo-cluster-secret")
				return
			}
			f.expectSecrets()
			if status := fmt.Sprintf("%+v", g.Status); !strings.Contains(status, "passed over: c1") {
				t.Errorf("the status is %s", status)
			}
		})
	}
}

// AR-03: two GitOpsClusters of an Argo CD share a cluster with the same credential; with another one, the first has it.
func TestTwoForOneArgo(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{"the same account": "argo", "another account": "other"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := gitOps("dev", func(g *appsv1beta1.GitOpsCluster) { g.Spec.ManagedServiceAccountRef = second })
			placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "web"}}
			objects := []client.Object{decision(argo, "c1"), decision("dev", "c1"), gitOps(argo), other, placement, bound("dev"), token("c1", "argo")}
			if second != "argo" {
				objects = append(objects, token("c1", second))
			}
			f := setUp(t, append(member("c1", nil), objects...)...)
			first := f.reconcile(argo)
			g := f.reconcile("dev")
			f.expectSecrets("c1-argo-cluster-secret")
			if same := second == "argo"; (g.Status.Phase == "successful") != same || f.reconcile(argo).Status.Phase != "successful" {
				t.Errorf("the status is %+v, and %+v", first.Status, g.Status)
			}
			made := f.secret("c1-argo-cluster-secret")
			made.UID = "made"
			f.apply(f.Update(t.Context(), made))
			f.apply(f.Delete(t.Context(), gitOps(argo)))
			f.reconcile(argo)
			if second == "argo" {
				expectOwner(f, "dev/clusters")
			} else {
				f.expectSecrets()
			}
			if g = f.reconcile("dev"); g.Status.Phase != "successful" {
				t.Errorf("alone, the status is %+v", g.Status)
			}
			f.expectSecrets("c1-" + second + "-cluster-secret")
		})
	}
}

// expectOwner looks for whose the Secret of cluster c1 is, which has to be the one that was there before.
func expectOwner(f *fixture, owner string) {
	f.Helper()
	secret := f.secret("c1-argo-cluster-secret")
	if got := secret.Annotations[fleet.AnnotationGitOpsCluster]; got != owner || secret.UID != "made" {
		f.Errorf("the Secret is that of %s, with the UID %q; want that of %s, as it was", got, secret.UID, owner)
	}
}

// AR-03: a GitOpsCluster that gives a cluster up leaves the Secret to another one with the same credential, and takes it from one that may
// not have the cluster any more, or cannot use it.
func TestChangeOfOwner(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fixture) error
		owner  string // empty if the Secret goes
	}{
		"it is no longer selected": {func(f *fixture) error { return f.decide() }, "dev/clusters"},
		"with another account": {func(f *fixture) error {
			return f.Patch(f.Context(), gitOps(argo), client.RawPatch("application/merge-patch+json",
				[]byte(`{"spec":{"managedServiceAccountRef":"other"}}`)))
		}, ""},
		"it is taken away everywhere": {func(f *fixture) error { return f.Delete(f.Context(), bound(argo)) }, ""},
		"it is taken away from the other one": {func(f *fixture) error {
			return errors.Join(f.Delete(f.Context(), bound("dev")), f.decide())
		}, ""},
		"a user has made another Secret": {func(f *fixture) error {
			return f.Create(f.Context(), clusterSecret("mine", "c1", "https://x"))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "web"}}
			f := setUp(t, append(member("c1", nil), decision(argo, "c1"), decision("dev", "c1"), gitOps(argo), gitOps("dev"), placement,
				bound("dev"), token("c1", "argo"))...)
			f.reconcile(argo)
			f.reconcile("dev")
			made := f.secret("c1-argo-cluster-secret")
			made.UID = "made"
			f.apply(f.Update(t.Context(), made))
			f.recordedEvents()
			f.apply(test.change(f))
			f.reconcile(argo)
			if test.owner == "" {
				if slices.Contains(f.secrets(), made.Name) {
					t.Errorf("there are the Secrets %q", f.secrets())
				}
				return
			}
			expectOwner(f, test.owner)
			if g := f.reconcile("dev"); g.Status.Phase != "successful" {
				t.Errorf("the status of the other one is %+v", g.Status)
			}
			expectOwner(f, test.owner)
			if said := f.recordedEvents(); strings.Contains(said, "ClusterDeregistered") {
				t.Errorf("the events are %s", said)
			}
		})
	}
}

// AR-03: where two GitOpsClusters have made Secrets for a cluster at the same time, the first of them stays.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	made := func(name, owner string, at time.Time) *corev1.Secret {
		secret := clusterSecret(name, "c1", "https://hub.example.com/c1")
		secret.Labels[fleet.LabelArgoImported], secret.Labels[fleet.LabelArgoClusterName] = fleet.LabelTrue, "c1"
		secret.Annotations = map[string]string{fleet.AnnotationGitOpsCluster: owner}
		secret.CreationTimestamp = metav1.NewTime(at)
		return secret
	}
	now := time.Now().Truncate(time.Second)
	for name, test := range map[string]struct {
		ofArgo, ofDev time.Time
		left          string
	}{
		"first that of the Argo's namespace": {now.Add(-time.Second), now, "c1-argo-cluster-secret"},
		"first the other":                    {now, now.Add(-time.Second), "c1-other-cluster-secret"},
		"at the same time":                   {now, now, "c1-argo-cluster-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := gitOps("dev", func(g *appsv1beta1.GitOpsCluster) { g.Spec.ManagedServiceAccountRef = "other" })
			placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "web"}}
			f := setUp(t, append(member("c1", nil), decision(argo, "c1"), decision("dev", "c1"), gitOps(argo), other, placement, bound("dev"),
				token("c1", "argo"), token("c1", "other"), made("c1-argo-cluster-secret", argo+"/clusters", test.ofArgo),
				made("c1-other-cluster-secret", "dev/clusters", test.ofDev))...)
			for range 2 {
				f.reconcile(argo)
				f.reconcile("dev")
				f.expectSecrets(test.left)
			}
		})
	}
}

// AR-03: of two clusters with the same server, the one whose Secret was made first stays registered, and none gets the server of another
// one by naming it.
func TestSameServer(t *testing.T) {
	t.Parallel()
	made := func(cluster, server string, at time.Time) client.Object {
		secret := clusterSecret(cluster+"-argo-cluster-secret", cluster, server)
		secret.Labels[fleet.LabelArgoImported], secret.Labels[fleet.LabelArgoClusterName] = fleet.LabelTrue, cluster
		secret.Annotations = map[string]string{fleet.AnnotationGitOpsCluster: argo + "/clusters"}
		secret.CreationTimestamp = metav1.NewTime(at)
		return secret
	}
	now := time.Now().Truncate(time.Second)
	earlier := now.Add(-time.Second)
	for name, test := range map[string]struct {
		secrets []client.Object
		left    string
	}{
		"both are new":       {nil, "c1-argo-cluster-secret"},
		"one is new":         {[]client.Object{made("c2", "https://same", now)}, "c2-argo-cluster-secret"},
		"made one by one":    {[]client.Object{made("c1", "https://same", now), made("c2", "https://same/", earlier)}, "c2-argo-cluster-secret"},
		"made at once":       {[]client.Object{made("c1", "https://same", now), made("c2", "https://same", now)}, "c1-argo-cluster-secret"},
		"the first moves in": {[]client.Object{made("c1", "https://c1", earlier), made("c2", "https://same", now)}, "c2-argo-cluster-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := slices.Concat(test.secrets, []client.Object{decision(argo, "c1", "c2"), gitOps(argo)})
			for _, name := range []string{"c1", "c2"} {
				cluster, ok := member(name, nil)[0].(*clusterv1.ManagedCluster) // without a tunnel
				if !ok {
					t.Fatal("no cluster")
				}
				cluster.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://same"}}
				objects = append(objects, cluster, token(name, "argo"))
			}
			f := setUp(t, objects...)
			for range 3 {
				g := f.reconcile(argo)
				f.expectSecrets(test.left)
				expectFailure(t, g, "SecretOfAnother", argo+"/"+test.left)
			}
			if recorded := f.recordedEvents(); strings.Count(recorded, "ClusterRegistered") > 1 {
				t.Errorf("the events are %s", recorded)
			}
		})
	}
}

// Whoever writes a GitOpsCluster has nothing made in a namespace that no cluster is registered in: that takes a set that is bound there.
// What cannot be made, the status says.
func TestNoGenerator(t *testing.T) {
	t.Parallel()
	const reason = "ClustersRegistered GeneratorNotMade"
	for name, test := range map[string]struct {
		objects []client.Object
		change  func(*appsv1beta1.GitOpsCluster)
		// refuse is the kind that cannot be made.
		refuse string
		made   int
		want   string
	}{
		"no cluster is selected":       {objects: []client.Object{decision(argo)}},
		"no cluster can be registered": {objects: append(member("c1", nil), decision(argo, "c1")), want: "ClustersRegistered CredentialNotFound"},
		"no set is bound there": {objects: append(member("c1", nil), decision(argo, "c1"), token("c1", "argo")),
			change: func(g *appsv1beta1.GitOpsCluster) {
				g.Spec.ArgoServer.ArgoNamespace = "kube-system"
				g.Annotations = map[string]string{fleet.AnnotationSkipArgoVerify: fleet.LabelTrue}
			}},
		"a cluster is registered": {objects: append(member("c1", nil), decision(argo, "c1"), token("c1", "argo")), made: 3},
		"the Role is refused": {objects: append(member("c1", nil), decision(argo, "c1"), token("c1", "argo")), refuse: "Role", made: 2,
			want: reason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, append(test.objects, gitOps(argo, func(g *appsv1beta1.GitOpsCluster) {
				if test.change != nil {
					test.change(g)
				}
			}))...)
			f.c.c.Live = refusing{f.Client, test.refuse}
			key := client.ObjectKey{Namespace: argo, Name: "clusters"}
			if _, err := f.c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); (err != nil) != (test.refuse != "") {
				t.Errorf("reconciling ends with %v", err)
			}
			g, made := &appsv1beta1.GitOpsCluster{}, 0
			f.apply(f.Get(t.Context(), key, g))
			for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
				f.apply(f.List(t.Context(), list))
				made += meta.LenList(list)
			}
			if made != test.made {
				t.Errorf("%d objects are made, want %d", made, test.made)
			}
			condition := meta.FindStatusCondition(g.Status.Conditions, appsv1beta1.GitOpsClusterClustersRegistered)
			if got := condition.Type + " " + condition.Reason; test.want != "" && (got != test.want || condition.Status != metav1.ConditionFalse) {
				t.Errorf("the condition is %+v, want %s", condition, test.want)
			} else if test.want == reason && !strings.Contains(condition.Message, "Role argocd/argocd-applicationset-controller-placement") {
				t.Errorf("the condition says %q", condition.Message)
			}
		})
	}
}

// refusing is a client that cannot make objects of a kind.
type refusing struct {
	client.Client
	kind string
}

func (r refusing) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if kind := fmt.Sprintf("%T", o); r.kind != "" && kind == "*v1."+r.kind {
		return apierrors.NewForbidden(rbacv1.Resource(strings.ToLower(r.kind)+"s"), o.GetName(), errors.New("not here"))
	}
	return r.Client.Create(ctx, o, opts...)
}

// conflicting is a client that another one is ahead of.
type conflicting struct{ client.Client }

func (c conflicting) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return apierrors.NewConflict(corev1.Resource("secrets"), o.GetName(), errors.New("the object has been modified"))
}

// AR-02: a write that meets that of another process is tried again, and no failure that somebody has to mend.
func TestConflictsAreNoFailures(t *testing.T) {
	t.Parallel()
	f := setUp(t, append(member("c1", nil), decision(argo, "c1"), gitOps(argo), token("c1", "argo"))...)
	before := f.reconcile(argo)
	if before.Status.Phase != "successful" {
		t.Fatalf("%+v", before.Status)
	}
	f.recordedEvents()
	f.expectSecrets("c1-argo-cluster-secret")
	made := f.secret("c1-argo-cluster-secret")
	made.ResourceVersion = ""
	if err := f.c.create(t.Context(), made, newRegistration(before)); !apierrors.IsConflict(err) {
		t.Errorf("made by another process: %v", err)
	}

	renewed := &corev1.Secret{}
	f.apply(f.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "argo"}, renewed))
	renewed.Data["token"] = []byte("renewed")
	f.apply(f.Update(t.Context(), renewed))
	f.c.c.Secrets = conflicting{f.c.c.Secrets}
	key := client.ObjectKeyFromObject(before)
	if _, err := f.c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !retry.IsConflict(err) {
		t.Errorf("written by another process: %v", err)
	}
	after := &appsv1beta1.GitOpsCluster{}
	f.apply(f.Get(t.Context(), key, after))
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		t.Error(diff)
	}
	if events := f.recordedEvents(); events != "" {
		t.Errorf("events:\n%s", events)
	}
}

// AR-04: what ApplicationSets need is made where it is absent, and stays as somebody changes it.
func TestGenerator(t *testing.T) {
	t.Parallel()
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "acm-placement"}, Data: map[string]string{"kind": "own"}}
	f := setUp(t, append(member("c1", nil), token("c1", "argo"), decision(argo, "c1"), gitOps(argo), own)...)
	f.reconcile(argo)
	config := &corev1.ConfigMap{}
	f.apply(f.Get(t.Context(), client.ObjectKey{Namespace: argo, Name: "acm-placement"}, config))
	want := map[string]string{"apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "placementdecisions",
		"statusListKey": "decisions", "matchKey": "clusterName"}
	if !maps.Equal(config.Data, want) {
		t.Errorf("the ConfigMap has %v", config.Data)
	}
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: argo, Name: "argocd-applicationset-controller-placement"}
	f.apply(f.Get(t.Context(), key, role))
	f.apply(f.Get(t.Context(), key, binding))
	if got := fmt.Sprint(role.Rules); got != "[{[get list watch] [cluster.open-cluster-management.io] [placementdecisions] [] []}]" {
		t.Errorf("the Role allows %s", got)
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "argocd-applicationset-controller" || binding.RoleRef.Name != role.Name {
		t.Errorf("the RoleBinding is %+v", binding)
	}
	config.Data["kind"] = "changed"
	f.apply(f.Update(t.Context(), config))
	f.reconcile(argo)
	f.apply(f.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	if config.Data["kind"] != "changed" {
		t.Error("a change of the ConfigMap does not stay")
	}
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: "own", Name: key.Name}, role); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Role where no Argo CD is: %v", err)
	}
}
