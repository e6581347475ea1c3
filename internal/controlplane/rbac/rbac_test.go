package rbac

import (
	"errors"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// SC-19: of two hubs on the same etcd that start at once, the second completes what the first has made since it looked.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	named := metav1.ObjectMeta{Name: "test"}
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"test"}, Resources: []string{resource}, Verbs: []string{"get"}}
	}
	subject := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	role := func(resource string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{rule(resource)}}
	}
	binding := func(name string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: named, Subjects: []rbacv1.Subject{subject(name)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "test"}}
	}
	for name, listed := range map[string][]runtime.Object{"nothing was there": nil, "older ones were there": {role("old"), binding("old")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(listed...)
			for resource, theirs := range map[string]runtime.Object{"clusterroles": role("theirs"), "clusterrolebindings": binding("theirs")} {
				raced := false
				client.PrependReactor("*", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
					if raced || action.GetVerb() != "create" && action.GetVerb() != "update" {
						return false, nil, nil
					}
					raced = true
					if action.GetVerb() == "create" {
						return true, nil, errors.Join(client.Tracker().Create(action.GetResource(), theirs, ""),
							apierrors.NewAlreadyExists(action.GetResource().GroupResource(), "test"))
					}
					return true, nil, errors.Join(client.Tracker().Update(action.GetResource(), theirs, ""),
						apierrors.NewConflict(action.GetResource().GroupResource(), "test", errors.New("changed")))
				})
			}
			if err := Ensure(t.Context(), client,
				Policy{ClusterRoles: []rbacv1.ClusterRole{*role("ours")},
					ClusterRoleBindings: []rbacv1.ClusterRoleBinding{*binding("ours")}}); err != nil {
				t.Fatal(err)
			}
			gotRole, err := client.RbacV1().ClusterRoles().Get(t.Context(), "test", metav1.GetOptions{})
			if err != nil || len(gotRole.Rules) != 2 {
				t.Errorf("rules %+v, %v", gotRole.Rules, err)
			}
			gotBinding, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), "test", metav1.GetOptions{})
			if err != nil || !slices.Contains(gotBinding.Subjects, subject("ours")) || !slices.Contains(gotBinding.Subjects, subject("theirs")) {
				t.Errorf("subjects %+v, %v", gotBinding.Subjects, err)
			}
		})
	}
}
