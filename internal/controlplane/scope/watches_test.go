package scope

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// allowing allows everything, or nothing, and counts the questions.
type allowing struct {
	refuse  atomic.Bool
	reviews atomic.Int32
}

func (a *allowing) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	a.reviews.Add(1)
	if a.refuse.Load() {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// open starts a watch, and returns what is closed when it ends.
func open(t *testing.T, w *Watches, who user.Info) (ended <-chan struct{}) {
	t.Helper()
	return openAt(t, w, who, "/api/v1/namespaces/c1/configmaps", url.Values{"watch": {"1"}})
}

func openAt(t *testing.T, w *Watches, who user.Info, path string, query url.Values) (ended <-chan struct{}) {
	t.Helper()
	return serve(w, authorized(t, who, http.MethodGet, path, query))
}

// serve has a request answered when its context ends, and returns what is closed then.
func serve(w *Watches, r *http.Request) (ended <-chan struct{}) {
	done, begun := make(chan struct{}), make(chan struct{})
	handler := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(done)
	}))
	go handler.ServeHTTP(httptest.NewRecorder(), r)
	<-begun
	return done
}

func isOver(ended <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

var (
	addOn   = &user.DefaultInfo{Name: fleet.AddOnUser("c1", "a", "a-agent"), Groups: fleet.AddOnGroups("c1", "a")}
	account = &user.DefaultInfo{Name: "system:serviceaccount:c1:a-agent",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:c1"}}
)

// "Watches of add-on identities outlive their rights: end them as those of agents are ended", whichever user bound them to what, without
// any label.
func TestWatchesEndWithTheirRights(t *testing.T) {
	t.Parallel()
	inC1 := metav1.ObjectMeta{Namespace: "c1", Name: "x"}
	global := metav1.ObjectMeta{Name: "x"}
	to := func(kind, name string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: kind, Name: name}} }
	role, clusterRole := rbacv1.RoleRef{Kind: "Role", Name: "x"}, rbacv1.RoleRef{Kind: "ClusterRole", Name: "x"}
	group := to("Group", "system:open-cluster-management:cluster:c1:addon:a")
	for name, test := range map[string]struct {
		who     user.Info
		objects []runtime.Object
	}{
		"an agent, by a RoleBinding": {agent,
			[]runtime.Object{&rbacv1.RoleBinding{ObjectMeta: inC1, Subjects: to("Group", "system:open-cluster-management:c1"),
				RoleRef: clusterRole}}},
		"an add-on, by a RoleBinding": {addOn, []runtime.Object{&rbacv1.RoleBinding{ObjectMeta: inC1, Subjects: group, RoleRef: role}}},
		"an add-on on all clusters": {addOn,
			[]runtime.Object{&rbacv1.ClusterRoleBinding{ObjectMeta: global, Subjects: to("Group", "system:open-cluster-management:addon:a"),
				RoleRef: clusterRole}}},
		"an add-on, by its user": {addOn,
			[]runtime.Object{&rbacv1.ClusterRoleBinding{ObjectMeta: global, Subjects: to("User", addOn.Name), RoleRef: clusterRole}}},
		"an add-on with a token": {account,
			[]runtime.Object{&rbacv1.RoleBinding{ObjectMeta: inC1, Subjects: to("ServiceAccount", "a-agent"), RoleRef: role}}},
		"an add-on with a token, by its groups": {account,
			[]runtime.Object{&rbacv1.RoleBinding{ObjectMeta: inC1, Subjects: to("Group", "system:serviceaccounts:c1"), RoleRef: role}}},
		"an add-on, by its Role": {addOn, []runtime.Object{&rbacv1.Role{ObjectMeta: inC1},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "y"}, Subjects: group, RoleRef: role}}},
		"an add-on, by a ClusterRole": {addOn, []runtime.Object{&rbacv1.ClusterRole{ObjectMeta: global},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "y"}, Subjects: group, RoleRef: clusterRole}}},
		"an add-on, by a ClusterRole in its namespace": {addOn, []runtime.Object{&rbacv1.ClusterRole{ObjectMeta: global},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "y"}, Subjects: group, RoleRef: clusterRole}}},
	} {
		for _, how := range []string{"deleted", "changed"} {
			t.Run(name+" is "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					rights, api := &allowing{}, fake.NewClientset(test.objects...)
					w, shared := NewWatches(rights, NewCutOff(), NewCredentials()), informers.NewSharedInformerFactory(api, 0)
					if err := w.Follow(shared); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					shared.Start(ctx.Done())
					shared.WaitForCacheSync(ctx.Done())
					ended := open(t, w, test.who)
					stranger := open(t, w, &user.DefaultInfo{Name: "system:open-cluster-management:c2:x",
						Groups: []string{"system:open-cluster-management:c2"}})
					if isOver(ended) {
						t.Fatal("it ends before its right does")
					}
					reviews := rights.reviews.Load()
					rights.refuse.Store(true)
					if err := revoke(t, api, test.objects[0], how); err != nil {
						t.Fatal(err)
					}
					if !isOver(ended) {
						t.Error("the watch goes on")
					}
					if isOver(stranger) || rights.reviews.Load() != reviews+1 {
						t.Errorf("%d watches were looked at, want that of the one concerned alone", rights.reviews.Load()-reviews)
					}
					w.checkAll(subjectsOf(&user.DefaultInfo{Name: "system:open-cluster-management:c2:x"}))
					cancel()
					shared.Shutdown()
					if synctest.Wait(); len(w.open) > 0 {
						t.Errorf("watches that are over are kept: %v", w.open)
					}
				})
			})
		}
	}
}

// What may last as long as a watch ends with the right to it, too.
func TestWhatLastsEndsWithItsRight(t *testing.T) {
	t.Parallel()
	const cluster = "/apis/proxy.capstan.io/v1alpha1/managedclusters/c1/"
	for _, path := range []string{cluster + "proxy/api/v1/pods", cluster + "portforward", cluster + "tunnel"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rights := &allowing{}
				w := NewWatches(rights, NewCutOff(), NewCredentials())
				ended := openAt(t, w, agent, path, nil)
				if isOver(ended) {
					t.Fatal("it ends before its right does")
				}
				rights.refuse.Store(true)
				w.checkAll(subjectsOf(agent))
				if !isOver(ended) {
					t.Error("it goes on")
				}
			})
		})
	}
}

// What has its connection upgraded through a proxy ends with either right that it needs; a watch needs one.
func TestUpgradesEndWithEitherRight(t *testing.T) {
	t.Parallel()
	const cluster, configMaps = "/apis/proxy.capstan.io/v1alpha1/managedclusters/c1/proxy/api/v1/pods", "/api/v1/configmaps"
	for _, test := range []struct {
		path, loses string
		ends        bool
	}{
		{cluster, "get", true}, {cluster, "create", true}, {cluster, "update", false},
		{configMaps, "watch", true}, {configMaps, "create", false},
	} {
		t.Run(test.path+" without "+test.loses, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lost atomic.Bool
				rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					if lost.Load() && a.GetVerb() == test.loses {
						return authorizer.DecisionNoOpinion, "", nil
					}
					return authorizer.DecisionAllow, "", nil
				})
				w := NewWatches(rights, NewCutOff(), NewCredentials())
				r := authorized(t, admin, http.MethodGet, test.path, url.Values{"watch": {"1"}})
				r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
				ended := serve(w, r)
				if isOver(ended) {
					t.Fatal("it ends before its right does")
				}
				lost.Store(true)
				w.checkAll(subjectsOf(admin))
				if isOver(ended) != test.ends {
					t.Errorf("it is over: %t", !test.ends)
				}
				w.endAll(subject{rbacv1.UserKind, admin.GetName()}, nil)
			})
		})
	}
}

// What lasts ends with a right, too, that who answers it knows to be needed, even if that has gone before.
func TestWatchesEndWithFurtherRights(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var lost atomic.Bool
			lost.Store(before)
			rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if lost.Load() && a.GetResource() == "pods" {
					return authorizer.DecisionNoOpinion, "", nil
				}
				return authorizer.DecisionAllow, "", nil
			})
			w, done := NewWatches(rights, NewCutOff(), NewCredentials()), make(chan struct{})
			handler := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				lasting.Follow(r.Context(), authorizer.AttributesRecord{User: admin, Verb: "get", Resource: "pods", ResourceRequest: true})
				<-r.Context().Done()
				close(done)
			}))
			path := "/apis/cluster.core.oam.dev/v1alpha1/clustergateways/c1/proxy/api/v1/pods"
			go handler.ServeHTTP(httptest.NewRecorder(), authorized(t, admin, http.MethodGet, path, nil))
			if isOver(done) != before {
				t.Fatalf("it is over: %t, and the right is lost: %t", !before, before)
			}
			lost.Store(true)
			w.checkAll(subjectsOf(admin))
			if !isOver(done) {
				t.Error("it goes on")
			}
		})
	}
}

// revoke deletes a role or binding, or writes it.
func revoke(t *testing.T, api *fake.Clientset, o runtime.Object, how string) error {
	t.Helper()
	rbac, ctx := api.RbacV1(), t.Context()
	var err error
	switch o := o.(type) {
	case *rbacv1.Role:
		if how == "deleted" {
			return rbac.Roles(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
		}
		o = o.DeepCopy()
		o.ResourceVersion = "2"
		_, err = rbac.Roles(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	case *rbacv1.RoleBinding:
		if how == "deleted" {
			return rbac.RoleBindings(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
		}
		o = o.DeepCopy()
		o.ResourceVersion, o.Subjects = "2", nil
		_, err = rbac.RoleBindings(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	case *rbacv1.ClusterRole:
		if how == "deleted" {
			return rbac.ClusterRoles().Delete(ctx, o.Name, metav1.DeleteOptions{})
		}
		o = o.DeepCopy()
		o.ResourceVersion = "2"
		_, err = rbac.ClusterRoles().Update(ctx, o, metav1.UpdateOptions{})
	case *rbacv1.ClusterRoleBinding:
		if how == "deleted" {
			return rbac.ClusterRoleBindings().Delete(ctx, o.Name, metav1.DeleteOptions{})
		}
		o = o.DeepCopy()
		o.ResourceVersion, o.Subjects = "2", nil
		_, err = rbac.ClusterRoleBindings().Update(ctx, o, metav1.UpdateOptions{})
	}
	return err
}

// "The identity refused from then on": whatever roles say, an identity of a cluster that is cut off may nothing, and its watches end.
func TestCutOff(t *testing.T) {
	t.Parallel()
	mc := func(accepted bool) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "c1"},
			"spec": map[string]any{"hubAcceptsClient": accepted}}}
	}
	for name, who := range map[string]user.Info{"the agent": agent, "the agent through AWS": aws, "an add-on": addOn,
		"an add-on with a token": account} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cutOff := NewCutOff()
				close(cutOff.known)
				refused := func(who user.Info) bool {
					decision, _, _ := cutOff.Authorize(t.Context(), authorizer.AttributesRecord{User: who})
					return decision == authorizer.DecisionDeny
				}
				w := NewWatches(denying{cutOff}, cutOff, NewCredentials())
				ended, others := open(t, w, who), open(t, w, admin)
				cutOff.observe(mc(true), true)
				if refused(who) || isOver(ended) {
					t.Error("refused though its cluster is accepted")
				}
				cutOff.observe(mc(false), true)
				if !refused(who) || !isOver(ended) {
					t.Error("not refused, or its watch goes on")
				}
				if refused(admin) || refused(joiner) || isOver(others) {
					t.Error("another user is refused")
				}
				cutOff.observe(mc(true), true)
				if refused(who) {
					t.Error("refused though its cluster is accepted again")
				}
				cutOff.observe(mc(false), true)
				cutOff.observe(mc(false), false)
				if refused(who) {
					t.Error("refused forever")
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				for s := range w.open {
					for one := range w.open[s] {
						one.end(nil)
					}
				}
			})
		})
	}
}

// denying allows what the other does not deny.
type denying struct{ *CutOff }

func (d denying) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if decision, reason, err := d.CutOff.Authorize(ctx, a); decision == authorizer.DecisionDeny {
		return decision, reason, err
	}
	return authorizer.DecisionAllow, "", nil
}

// Each cluster that joins has the watches of clients looked at that act for it. Those of the rest of the fleet cost nothing then.
func TestWatchesOfOtherClusters(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	rights := &allowing{}
	w := NewWatches(rights, NewCutOff(), NewCredentials())
	close(w.credentials.known)
	add := func(cluster string) {
		who := &user.DefaultInfo{Name: fleet.ClusterUser(cluster, "a"), Groups: fleet.ClusterGroups(cluster)}
		w.add(subjectsOf(who), &watch{ctx: t.Context(), rights: []authorizer.Attributes{authorizer.AttributesRecord{User: who}},
			end: func(error) {}})
	}
	for i := range 1000 {
		add(fmt.Sprintf("c%d", i))
	}
	rights.reviews.Store(0)
	const few = 10
	if allocated := testing.AllocsPerRun(few, func() { w.checkFor("joining") }); allocated > few {
		t.Errorf("to look for watches of one cluster takes %.0f allocations", allocated)
	}
	if w.checkFor("c17"); rights.reviews.Load() != 1 {
		t.Errorf("%d watches are looked at, want that of the cluster", rights.reviews.Load())
	}
}

// unlisted fails if all objects are listed.
type unlisted struct {
	cache.Indexer
	*testing.T
}

func (u unlisted) List() []any {
	u.Error("all bindings are listed")
	return u.Indexer.List()
}

// Who has a role is looked up: a hub has bindings for each cluster.
func TestSubjectsOfRoles(t *testing.T) {
	t.Parallel()
	indexer := func(objects ...any) unlisted {
		made := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byRole: rolesOf})
		for _, object := range objects {
			if err := made.Add(object); err != nil {
				t.Fatal(err)
			}
		}
		return unlisted{made, t}
	}
	local := func(namespace, kind, role, who string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: who},
			RoleRef: rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: []rbacv1.Subject{{Kind: "User", Name: who}}}
	}
	global := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "x"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "everywhere"}}}
	b := bindings{global: indexer(global), local: indexer(local("c1", "Role", "x", "ann"), local("c2", "Role", "x", "bob"),
		local("c1", "ClusterRole", "x", "cid"), local("c2", "ClusterRole", "x", "dan"), local("c1", "Role", "y", "eve"))}
	for name, test := range map[string]struct {
		role runtime.Object
		want []string
	}{
		"a Role":        {&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "x"}}, []string{"ann"}},
		"a ClusterRole": {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, []string{"cid", "dan", "everywhere"}},
		"one of nobody": {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "y"}}, nil},
	} {
		subjects, err := b.subjectsOf(test.role)
		var got []string
		for _, s := range subjects {
			got = append(got, s.name)
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}
