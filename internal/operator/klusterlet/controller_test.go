package klusterlet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repair"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// clusterWith is the API of a cluster with objects.
func clusterWith(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()
}

// labelledNamespace has labels, given as keys and values.
func labelledNamespace(name string, labels ...string) client.Object {
	namespace := newNamespace(name, map[string]string{})
	for i := 0; i < len(labels); i += 2 {
		namespace.Labels[labels[i]] = labels[i+1]
	}
	return namespace
}

// kubeconfigOfHub is what a user has stored for a hosted ClusterManager of the name of a namespace.
func kubeconfigOfHub(namespace string) client.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.SecretExternalHubKubeconfig}}
}

// KL-01, KL-04: two Klusterlets do not share a namespace on the managed cluster, wherever the other one is, nor does one take the namespace
// of a cluster or of a hub.
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	l := layoutOf(k)
	namespaceOf := func(name string) client.Object { return labelledNamespace(l.accounts, fleet.LabelKlusterlet, name) }
	other := func() client.Object { return &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "other"}} }
	const there = "the namespace open-cluster-management-agent on the managed cluster "
	const refused = there + "is that of Klusterlet other: choose another spec.namespace"
	for name, test := range map[string]struct {
		management, managed client.Client
		want                string
	}{
		"new":                {clusterWith(), clusterWith(), ""},
		"its own":            {clusterWith(), clusterWith(namespaceOf(k.Name)), ""},
		"of one gone":        {clusterWith(), clusterWith(namespaceOf("other")), ""},
		"of one hosted here": {clusterWith(other()), clusterWith(namespaceOf("other")), refused},
		"of one there":       {clusterWith(), clusterWith(namespaceOf("other"), other()), refused},
		"of a cluster": {clusterWith(), clusterWith(labelledNamespace(l.accounts, fleet.LabelClusterName, "c1")),
			there + "is that of ManagedCluster c1"},
		"of a hosted hub": {clusterWith(), clusterWith(labelledNamespace(l.accounts), kubeconfigOfHub(l.accounts)),
			there + "has Secret external-hub-kubeconfig"},
	} {
		err := (&Controller{Operator: &frame.Operator{Client: test.management}}).checkNamespaceOwner(t.Context(), l, test.managed)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// KL-04, KL-32: hosted agents do not run in a namespace that has another use, because it would be deleted with their Klusterlet. One in
// which they run already is left in the end. Without the right to read the Secret of a hub, it counts as none.
func TestNamespaceOfHostedAgents(t *testing.T) {
	t.Parallel()
	own := klusterletWith(operatorv1.InstallModeHosted).Name
	const refused = `metadata.name is "klusterlet": agents of a hosted Klusterlet run in the namespace of its name, ` +
		"which has another use: it "
	for name, test := range map[string]struct {
		objects []client.Object
		denied  bool
		want    string // empty if it may be installed
	}{
		"new":            {},
		"made by a user": {objects: []client.Object{labelledNamespace(own, "team", "a")}},
		"its own":        {objects: []client.Object{labelledNamespace(own, fleet.LabelKlusterlet, own)}},
		"its own, of Open Cluster Management": {objects: []client.Object{
			labelledNamespace(own, fleet.LabelCreatedByKlusterlet, own, fleet.LabelClusterName, "c1")}},
		"of a cluster, made by another": {objects: []client.Object{
			labelledNamespace(own, fleet.LabelCreatedByKlusterlet, "other", fleet.LabelClusterName, "c1")},
			want: "is that of ManagedCluster c1;"},
		"of one gone": {objects: []client.Object{labelledNamespace(own, fleet.LabelKlusterlet, "other")}},
		"of a cluster": {objects: []client.Object{labelledNamespace(own, fleet.LabelClusterName, "c1")},
			want: "is that of ManagedCluster c1;"},
		"of a hosted hub": {objects: []client.Object{labelledNamespace(own), kubeconfigOfHub(own)},
			want: "has Secret external-hub-kubeconfig, of"},
		"of such a hub, on the hub": {objects: []client.Object{labelledNamespace(own, fleet.LabelCreatedByClusterManager, "hub")},
			want: "is that of ClusterManager hub;"},
		"of another": {objects: []client.Object{labelledNamespace(own, fleet.LabelKlusterlet, "other"),
			&operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}, want: "is that of Klusterlet other;"},
		"its own, and of a cluster": {objects: []client.Object{
			labelledNamespace(own, fleet.LabelKlusterlet, own, fleet.LabelClusterName, "c1")}},
		"its Secrets may not be read": {objects: []client.Object{labelledNamespace(own), kubeconfigOfHub(own)}, denied: true},
	} {
		api := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(test.objects...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
				if test.denied && key.Name == fleet.SecretExternalHubKubeconfig {
					return denied("secrets")
				}
				return api.Get(ctx, key, into, options...)
			}}).Build()
		c := &Controller{Operator: &frame.Operator{Client: api, Management: &apply.Cluster{Client: api},
			Options: frame.Options{Namespace: fleet.NamespaceOperators, Version: "v1.4.0"}}}
		for _, mode := range modes {
			l, want := layoutOf(klusterletWith(mode)), test.want
			if !l.hosted {
				want = ""
			}
			reason, err, failure := c.refusal(t.Context(), l)
			if failure != nil || (err == nil) != (want == "") || err != nil && (reason != fleet.ReasonKlusterletApplyFailed ||
				!strings.Contains(err.Error(), refused+want) || !strings.HasSuffix(err.Error(), "; choose another name")) {
				t.Errorf("%s, %s: %s, %v", name, mode, reason, err)
			}
		}
	}
}

// KL-31, KL-36: agents of two Klusterlets do not share a namespace, whatever their specs say by now: one that is that of a Klusterlet stays
// so, and one that is nobody's goes to the oldest that wants it.
func TestNamespaceOfTwoKlusterlets(t *testing.T) {
	t.Parallel()
	const wanted = "open-cluster-management-wanted"
	created := func(second int64, name string, mode operatorv1.InstallMode) *operatorv1.Klusterlet {
		k := klusterletWith(mode)
		k.Name, k.CreationTimestamp = name, metav1.Unix(second, 0)
		if name != wanted {
			k.Spec.Namespace = wanted
		}
		return k
	}
	first, second := created(1, "first", ""), created(2, "second", "")
	hosted := created(2, wanted, operatorv1.InstallModeHosted)
	const isTo, is = "the namespace " + wanted + " is to be that of Klusterlet ", "the namespace " + wanted + " is that of Klusterlet "
	const ofHosted = `metadata.name is "open-cluster-management-wanted": agents of a hosted Klusterlet run in the namespace of its name, ` +
		"which has another use: it is "
	for name, test := range map[string]struct {
		owner          string
		older, younger *operatorv1.Klusterlet
		// refused says why each of them is; empty if it is not.
		refused [2]string
	}{
		"of nobody": {"", first, second,
			[2]string{"", isTo + "first, which is older: choose another spec.namespace"}},
		"of the older":   {"first", first, second, [2]string{"", is + "first: choose another spec.namespace"}},
		"of the younger": {"second", first, second, [2]string{is + "second: choose another spec.namespace", ""}},
		"of one gone": {"third", first, second,
			[2]string{"", isTo + "first, which is older: choose another spec.namespace"}},
		"of nobody, and the younger is hosted": {"", first, hosted,
			[2]string{"", ofHosted + "to be that of Klusterlet first, which is older; choose another name"}},
		"of the younger, which is hosted": {wanted, first, hosted,
			[2]string{is + wanted + ": choose another spec.namespace", ""}},
	} {
		namespace := labelledNamespace(wanted)
		if test.owner != "" {
			namespace = labelledNamespace(wanted, fleet.LabelKlusterlet, test.owner)
		}
		api := clusterWith(namespace, test.older.DeepCopy(), test.younger.DeepCopy())
		c := &Controller{Operator: &frame.Operator{Client: api, Management: &apply.Cluster{Client: api},
			Options: frame.Options{Namespace: fleet.NamespaceOperators, Version: "v1.4.0"}}}
		for i, k := range []*operatorv1.Klusterlet{test.older, test.younger} {
			_, refused, err := c.refusal(t.Context(), layoutOf(k))
			got := ""
			if refused != nil {
				got = refused.Error()
			}
			if got != test.refused[i] || err != nil {
				t.Errorf("%s: %s is refused: %q, want %q (%v)", name, k.Name, got, test.refused[i], err)
			}
		}
	}
}

// KL-04, KL-36: a Klusterlet of the same name on the managed cluster is that of another agent, whose objects have the same names. In the
// operator's own cluster, which some API servers do not tell, it is the Klusterlet itself.
func TestNamesakeOnManagedCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		api     client.Client
		refused bool
		fails   bool
	}{
		"none":          {api: clusterWith()},
		"another":       {api: clusterWith(&operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "b"}})},
		"one":           {api: clusterWith(namesake("b")), refused: true},
		"itself":        {api: clusterWith(namesake(klusterletWith("").UID))},
		"no such kind":  {api: failingGet(&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Klusterlet"}})},
		"not any more":  {api: failingGet(apierrors.NewNotFound(schema.GroupResource{Resource: "klusterlets"}, ""))},
		"not permitted": {api: failingGet(denied("klusterlets"))},
		"no answer":     {api: failingGet(apierrors.NewServiceUnavailable("starting")), fails: true},
	} {
		c := &Controller{Operator: &frame.Operator{Management: &apply.Cluster{Client: clusterWith()}}}
		err := c.checkNamesake(t.Context(), layoutOf(klusterletWith(operatorv1.InstallModeHosted)), &apply.Cluster{Client: test.api})
		refused := err != nil && strings.HasPrefix(err.Error(), `metadata.name is "klusterlet": the managed cluster has a Klusterlet`)
		if refused != test.refused || (err != nil) != (test.refused || test.fails) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := &Controller{Operator: &frame.Operator{Management: &apply.Cluster{Client: clusterWith(namesake("b"))}}}
	if err := c.checkNamesake(t.Context(), layoutOf(klusterletWith(operatorv1.InstallModeHosted)), c.Management); err != nil {
		t.Errorf("in the operator's own cluster: %v", err)
	}
}

// KL-04, KL-36: a hosted agent that runs already when its Klusterlet is refused keeps its access to the managed cluster: its tokens are
// renewed, but only those of accounts that are still the same.
func TestRefusedAgentIsRenewed(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	l := layoutOf(k)
	account := func(name string) client.Object {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.accounts, Name: name, UID: "now"}}
	}
	const registration, work = fleet.SecretExternalManagedKubeconfigRegistration, fleet.SecretExternalManagedKubeconfigWork
	management, applied := recordingManagement(t)
	c := &Controller{Operator: &frame.Operator{Management: management, Client: management.Client,
		Options: frame.Options{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))},
		Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset(tokenSecret(l, registration, l.registrationAccount, "now"),
			tokenSecret(l, work, l.workAccount, "before")).CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)}}
	managed := managedCluster{
		Cluster: &apply.Cluster{Client: clusterWith(namesake("b"), account(l.registrationAccount), account(l.workAccount))},
		access:  &rest.Config{Host: "https://managed.example.com"}}
	err := c.checkManaged(t.Context(), l, managed)
	const advice = "if no operator runs there, take its finalizers off and delete it"
	if err == nil || !strings.Contains(err.Error(), advice) || !slices.Equal(*applied, []string{registration}) {
		t.Errorf("renewed: %v (%v)", *applied, err)
	}
}

// KL-04, CA-41: a hosted agent that runs keeps its access to the managed cluster whatever its Klusterlet is refused for: its token is
// renewed, also if the spec has another mode or namespace by now. What is said of the refusal stays. Without an agent, nothing is renewed.
func TestRefusedKlusterletIsRenewed(t *testing.T) {
	t.Parallel()
	const registration = fleet.SecretExternalManagedKubeconfigRegistration
	for name, test := range map[string]struct {
		edit   func(*operatorv1.Klusterlet)
		reason string
		want   []string
	}{
		"a version that is refused": {edit: func(k *operatorv1.Klusterlet) {
			k.Annotations = map[string]string{upgrade.AnnotationVersion: "v1.4.0"}
		}, reason: frame.ReasonVersionRefused, want: []string{registration}},
		"an unknown mode": {edit: func(k *operatorv1.Klusterlet) { k.Spec.DeployOption.Mode = "Detached" },
			reason: fleet.ReasonKlusterletApplyFailed, want: []string{registration}},
		"another namespace, which is reserved": {edit: func(k *operatorv1.Klusterlet) { k.Spec.Namespace = metav1.NamespaceSystem },
			reason: fleet.ReasonKlusterletApplyFailed, want: []string{registration}},
		"not installed": {edit: func(k *operatorv1.Klusterlet) {
			k.Finalizers, k.Spec.DeployOption.Mode = nil, "Detached"
		}, reason: fleet.ReasonKlusterletApplyFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := klusterletWith(operatorv1.InstallModeHosted)
			l := layoutOf(k)
			k.Finalizers = []string{fleet.FinalizerKlusterletHostedCleanup}
			test.edit(k)
			access := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: fleet.SecretExternalManagedKubeconfig},
				Data: map[string][]byte{fleet.KeyKubeconfig: kubeconfigOf(t, serveAccount(t, l.accounts, l.registrationAccount))}}
			management, applied := recordingManagement(t)
			c := &Controller{Operator: &frame.Operator{Management: management, Client: management.Client,
				Options: frame.Options{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), Version: "v1.6.0", Namespace: fleet.NamespaceOperators},
				Elsewhere: remote.New(t.Context(), apply.Options{Label: fleet.LabelCreatedByKlusterlet, Scheme: Scheme(),
					Changed: func(string) {}}),
				Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset(access,
					tokenSecret(l, registration, l.registrationAccount, "now")).CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)}}
			_, err := c.install(t.Context(), k) // the Deployments that run are not known
			condition := meta.FindStatusCondition(k.Status.Conditions, fleet.ConditionApplied)
			if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != test.reason {
				t.Errorf("applied: %v", condition)
			}
			if !slices.Equal(*applied, test.want) {
				t.Errorf("renewed: %v (%v)", *applied, err)
			}
		})
	}
}

// KL-32: that a managed cluster was unreachable, when the Klusterlet was to leave it, is over once it is reached.
func TestReachedManagedClusterIsNotGivenUp(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	k.Annotations = map[string]string{fleet.AnnotationEvictionTimestamp: "2026-01-01T00:00:00Z"}
	l := layoutOf(k)
	access := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: fleet.SecretExternalManagedKubeconfig},
		Data: map[string][]byte{fleet.KeyKubeconfig: kubeconfigOf(t, serveAccount(t, l.accounts, l.registrationAccount))}}
	management, _ := recordingManagement(t)
	c := &Controller{Operator: &frame.Operator{
		Management: management, Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k).Build(),
		Elsewhere: remote.New(t.Context(), apply.Options{Label: fleet.LabelCreatedByKlusterlet, Scheme: Scheme(), Changed: func(string) {}}),
		Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset(access).CoreV1(),
			rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)}}
	if _, err := c.managedCluster(t.Context(), newReport(k), l); err != nil {
		t.Fatal(err)
	}
	stored := &operatorv1.Klusterlet{}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(k), stored); err != nil {
		t.Fatal(err)
	}
	if since := stored.Annotations[fleet.AnnotationEvictionTimestamp]; since != "" {
		t.Errorf("it counts as unreachable since %s", since)
	}
}

// tokenSecret has a token of a service account on the managed cluster.
func tokenSecret(l layout, name, account, uid string) runtime.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: name}, Data: map[string][]byte{
		"serviceaccount_namespace": []byte(l.accounts), "serviceaccount_name": []byte(account), "serviceaccount_uid": []byte(uid)}}
}

// recordingManagement is a cluster without an API server, and the names of what is applied to it.
func recordingManagement(t *testing.T) (management *apply.Cluster, applied *[]string) {
	t.Helper()
	management, err := apply.NewCluster(&rest.Config{Host: "http://127.0.0.1:1"},
		apply.Options{Label: fleet.LabelCreatedByKlusterlet, Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	applied = &[]string{}
	management.Client = fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			if o, isNamed := o.(interface{ GetName() string }); isNamed {
				*applied = append(*applied, o.GetName())
			}
			return nil
		}}).Build()
	return management, applied
}

// serveAccount serves the API of a cluster that has a service account and no other object, and returns its address.
func serveAccount(t *testing.T, namespace, name string) string {
	t.Helper()
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + name
	answers := map[string]string{
		"/version": `{"major":"1","minor":"34","gitVersion":"v1.34.0"}`,
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[` +
			`{"name":"namespaces","kind":"Namespace","namespaced":false,"verbs":["get"]},` +
			`{"name":"serviceaccounts","kind":"ServiceAccount","namespaced":true,"verbs":["get"]}]}`,
		path: `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"namespace":"` + namespace + `","name":"` + name + `","uid":"now"}}`,
		path + "/token": `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"audiences":null},` +
			`"status":{"token":"new","expirationTimestamp":"2030-01-01T00:00:00Z"}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// kubeconfigOf leads to a server.
func kubeconfigOf(t *testing.T, server string) []byte {
	t.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"managed": {Server: server}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"operator": {Token: "a"}},
		Contexts:  map[string]*clientcmdapi.Context{"managed": {Cluster: "managed", AuthInfo: "operator"}}, CurrentContext: "managed"})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// KL-04: a hosted cluster that says that it is the cluster of the operator gets what any other gets: rights and tokens of its own.
func TestHostedClusterIsNotBelieved(t *testing.T) {
	t.Parallel()
	l := layoutOf(klusterletWith(operatorv1.InstallModeHosted))
	cluster := func() *apply.Cluster {
		made, err := apply.NewCluster(&rest.Config{Host: "http://127.0.0.1:1"},
			apply.Options{Label: fleet.LabelCreatedByKlusterlet, FieldManager: fleet.KlusterletOperatorUserAgent, Scheme: Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		made.Client = clusterWith(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "a"}})
		return made
	}
	management, hosted := cluster(), cluster()
	c := &Controller{Operator: &frame.Operator{Management: management, Access: &rest.Config{Host: "https://management.example.com"},
		Options: frame.Options{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))},
		Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset().CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)}}
	managed, err := c.reached(t.Context(), hosted, &rest.Config{Host: "https://hosted.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	p := planFor(l, plainInputs)
	if err := managed.Apply(t.Context(), l.klusterlet.Name, p.managed...); err != nil {
		t.Fatal(err)
	}
	for where, test := range map[string]struct {
		api  client.Client
		want bool
	}{"the operator": {management.Client, false}, "the agent": {hosted.Client, true}} {
		roles, accounts := &rbacv1.ClusterRoleList{}, &corev1.ServiceAccountList{}
		if err := errors.Join(test.api.List(t.Context(), roles), test.api.List(t.Context(), accounts)); err != nil {
			t.Fatal(err)
		}
		if len(roles.Items) > 0 != test.want || len(accounts.Items) > 0 != test.want {
			t.Errorf("the cluster of %s has %d roles and %d accounts", where, len(roles.Items), len(accounts.Items))
		}
	}
	secrets, _, err := c.Kubeconfigs(t.Context(), managed.Cluster, managed.access, p.kubeconfigs)
	if err != nil || len(secrets) == 0 {
		t.Fatalf("%d Secrets, %v", len(secrets), err)
	}
	for _, object := range secrets {
		secret, isSecret := object.(*corev1.Secret)
		if !isSecret || !strings.Contains(string(secret.Data[fleet.KeyKubeconfig]), "https://hosted.example.com") {
			t.Errorf("%s is not for the cluster whose token it has: %v", object.GetName(), object)
		}
	}
}

// namesake is a Klusterlet with the name of that of the tests.
func namesake(uid types.UID) client.Object {
	k := klusterletWith(operatorv1.InstallModeDefault)
	k.UID = uid
	return k
}

// denied is what an API server says of a rule that is missing.
func denied(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "",
		errors.New(`User "operator" cannot get resource "`+resource+`"`))
}

// failingGet is an API whose objects cannot be read.
func failingGet(err error) client.Client {
	return fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
	}).Build()
}

// KL-32: a dispute about what the operator writes on the Klusterlet itself is reported, because it is not an error of the reconcile.
func TestDisputedFinalizer(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeDefault)
	disputed := &repair.BackoffError{Until: time.Unix(1000, 0)}
	api := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return disputed
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return disputed },
	}).Build()
	c := &Controller{Operator: &frame.Operator{Client: api, Management: &apply.Cluster{Client: api},
		Options: frame.Options{Namespace: fleet.NamespaceOperators, Version: "v1.4.0"}}}
	_, err := c.install(t.Context(), k)
	applied := meta.FindStatusCondition(k.Status.Conditions, fleet.ConditionApplied)
	if !errors.Is(err, disputed) || applied == nil || applied.Status != metav1.ConditionFalse || applied.Message != err.Error() {
		t.Errorf("%v: %v", err, applied)
	}
}

// KL-31: that it cannot be found out whether a Klusterlet may be installed refuses nothing: it is an error, which is tried again soon. What
// was found out is said all the same.
func TestRefusalIsNotKnown(t *testing.T) {
	t.Parallel()
	starting := apierrors.NewServiceUnavailable("starting")
	for _, mode := range modes {
		for _, failing := range []string{"List", "Get"} {
			api := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if failing == "List" {
						return starting
					}
					return api.List(ctx, list, options...)
				},
				Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if failing == "Get" {
						return starting
					}
					return api.Get(ctx, key, o, options...)
				}}).Build()
			c := &Controller{Operator: &frame.Operator{Client: api, Management: &apply.Cluster{Client: api},
				Options: frame.Options{Namespace: fleet.NamespaceOperators, Version: "v1.4.0"}}}
			k := klusterletWith(mode)
			if _, refused, err := c.refusal(t.Context(), layoutOf(k)); refused != nil || !errors.Is(err, starting) {
				t.Errorf("%s, %s: %v, %v", mode, failing, refused, err)
			}
			_, err := c.install(t.Context(), k)
			applied := meta.FindStatusCondition(k.Status.Conditions, fleet.ConditionApplied)
			if !errors.Is(err, starting) || applied == nil || !strings.Contains(applied.Message, "starting") {
				t.Errorf("%s, %s: %v, %v", mode, failing, applied, err)
			}
			k.Spec.DeployOption.Mode = "Detached"
			if _, refused, err := c.refusal(t.Context(), layoutOf(k)); refused == nil || err != nil {
				t.Errorf("%s, %s, invalid: %v, %v", mode, failing, refused, err)
			}
		}
	}
}

// CA-41: an operator that may not take over what is installed says so in the same way as that of ClusterManagers.
func TestVersionRefused(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeDefault)
	k.Annotations = map[string]string{upgrade.AnnotationVersion: "v1.4.0"}
	for version, want := range map[string]string{"v1.6.0": frame.ReasonVersionRefused, "v1.5.0": ""} {
		api := clusterWith(k.DeepCopy())
		c := &Controller{Operator: &frame.Operator{Client: api, Management: &apply.Cluster{Client: api},
			Options: frame.Options{Namespace: "operators", Version: version}}}
		reason, refused, err := c.refusal(t.Context(), layoutOf(k))
		if err != nil || (refused == nil) != (want == "") || refused != nil && reason != want {
			t.Errorf("%s: %s, %v, %v", version, reason, refused, err)
		}
	}
}
