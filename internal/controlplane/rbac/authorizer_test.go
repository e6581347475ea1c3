package rbac

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	stock "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// newAuthorizers returns ours and that of Kubernetes, which know the same objects.
func newAuthorizers(t testing.TB, objects ...runtime.Object) (*Authorizer, *stock.RBACAuthorizer) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
	ours, err := NewAuthorizer(factory)
	if err != nil {
		t.Fatal(err)
	}
	kinds := factory.Rbac().V1()
	theirs := stock.New(&stock.RoleGetter{Lister: kinds.Roles().Lister()}, &stock.RoleBindingLister{Lister: kinds.RoleBindings().Lister()},
		&stock.ClusterRoleGetter{Lister: kinds.ClusterRoles().Lister()},
		&stock.ClusterRoleBindingLister{Lister: kinds.ClusterRoleBindings().Lister()})
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSyncWithContext(t.Context())
	return ours, theirs
}

func clusterRole(name, verb string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
}

func clusterRoleBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
}

// The decisions, their reasons and the rules are those of the authorizer of Kubernetes.
func TestAuthorizerEqualsThatOfKubernetes(t *testing.T) {
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "apps", Name: "builder"}
	ours, theirs := newAuthorizers(t,
		clusterRole("getter", "get"), clusterRole("lister", "list"), clusterRole("deleter", "delete"), clusterRole("everything", "*"),
		clusterRoleBinding("ann", "getter", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ann"}),
		clusterRoleBinding("two-groups", "lister",
			rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "devs"}, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "ops"}),
		clusterRoleBinding("account", "deleter", account),
		clusterRoleBinding("account-by-its-name", "getter",
			rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:apps:builder"}),
		clusterRoleBinding("account-of-no-namespace", "everything", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "builder"}),
		clusterRoleBinding("another-kind", "everything", rbacv1.Subject{Kind: "Robot", Name: "ann"}),
		clusterRoleBinding("missing-role", "missing", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "bob"}),
		clusterRoleBinding("nobody", "everything"),
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "ann"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "ann"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "deleter"}},
	)
	allowed := 0
	for _, u := range []user.Info{
		&user.DefaultInfo{Name: "ann"},
		&user.DefaultInfo{Name: "ann", Groups: []string{"ops"}},
		&user.DefaultInfo{Name: "cid", Groups: []string{"devs", "ops"}},
		&user.DefaultInfo{Name: "devs"},
		&user.DefaultInfo{Name: "bob"},
		&user.DefaultInfo{Name: "system:serviceaccount:apps:builder"},
		&user.DefaultInfo{Name: "system:serviceaccount::builder"},
		&user.DefaultInfo{},
	} {
		for _, namespace := range []string{"", "apps", "other"} {
			for _, verb := range []string{"get", "list", "delete"} {
				attributes := authorizer.AttributesRecord{User: u, Verb: verb, Namespace: namespace, Resource: "pods", ResourceRequest: true}
				got, gotReason, gotErr := ours.Authorize(t.Context(), attributes)
				want, wantReason, wantErr := theirs.Authorize(t.Context(), attributes)
				if got != want || gotReason != wantReason || !reflect.DeepEqual(gotErr, wantErr) {
					t.Errorf("%v may %s in %q: %v, %q, %v; want %v, %q, %v", u, verb, namespace, got, gotReason, gotErr, want, wantReason, wantErr)
				}
				if conditional := ours.ConditionsAwareAuthorize(t.Context(), attributes); conditional.IsAllow() != (want == authorizer.DecisionAllow) {
					t.Errorf("%v may %s in %q: %v with conditions, want %v", u, verb, namespace, conditional, want)
				}
				if got == authorizer.DecisionAllow {
					allowed++
				}
			}
			if got, want := rules(t, ours, u, namespace), rules(t, theirs, u, namespace); !slices.Equal(got, want) {
				t.Errorf("the rules of %v in %q are %q, want %q", u, namespace, got, want)
			}
		}
	}
	if allowed == 0 {
		t.Error("nothing was allowed")
	}
}

// rules of a user, in no order of the authorizer's.
func rules(t *testing.T, resolver authorizer.RuleResolver, u user.Info, namespace string) []string {
	t.Helper()
	resources, others, incomplete, err := resolver.RulesFor(t.Context(), u, namespace)
	list := []string{fmt.Sprint(len(others), incomplete, err)}
	for _, rule := range resources {
		list = append(list, fmt.Sprint(rule.GetVerbs(), rule.GetResources()))
	}
	slices.Sort(list)
	return list
}

// A binding that changes binds whom it names now.
func TestAuthorizerFollowsBindings(t *testing.T) {
	client := fake.NewClientset(clusterRole("getter", "get"),
		clusterRoleBinding("moving", "getter", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ann"}))
	factory := informers.NewSharedInformerFactory(client, 0)
	a, err := NewAuthorizer(factory)
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSyncWithContext(t.Context())
	changed := clusterRoleBinding("moving", "getter", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "ops"})
	if err := factory.Rbac().V1().ClusterRoleBindings().Informer().GetIndexer().Update(changed); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		user user.DefaultInfo
		want authorizer.Decision
	}{
		{user.DefaultInfo{Name: "ann"}, authorizer.DecisionNoOpinion},
		{user.DefaultInfo{Name: "bob", Groups: []string{"ops"}}, authorizer.DecisionAllow},
	} {
		attributes := authorizer.AttributesRecord{User: &test.user, Verb: "get", Resource: "pods", ResourceRequest: true}
		if got, _, err := a.Authorize(t.Context(), attributes); got != test.want || err != nil {
			t.Errorf("%v: %v, %v; want %v", test.user, got, err, test.want)
		}
	}
}

// A cluster's request on a hub of 10,000 clusters, each of which has a ClusterRoleBinding of its own.
func BenchmarkAuthorize(b *testing.B) {
	const clusters = 10_000
	var objects []runtime.Object
	for i := range clusters {
		name := fmt.Sprintf("cluster-%d", i)
		objects = append(objects, clusterRole(name, "get"),
			clusterRoleBinding(name, name, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "clusters:" + name}))
	}
	ours, theirs := newAuthorizers(b, objects...)
	attributes := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "agent", Groups: []string{"clusters", "clusters:cluster-17"}},
		Verb: "get", Resource: "pods", ResourceRequest: true}
	for name, authorize := range map[string]authorizer.Authorizer{"ours": ours, "stock": theirs} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if decision, reason, err := authorize.Authorize(b.Context(), attributes); decision != authorizer.DecisionAllow {
					b.Fatal(decision, reason, err)
				}
			}
		})
	}
}
