package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// bySubject is the index of ClusterRoleBindings by subjects, as userKey and groupKey write them.
const bySubject = "subject"

// Authorizer decides as the RBAC authorizer of Kubernetes does, in the same words. That one goes through all ClusterRoleBindings for each
// request, and a hub has some for each cluster; this one reads only those of the user and of the user's groups.
type Authorizer struct {
	roles        rbac.RoleGetter
	roleBindings rbac.RoleBindingLister
	clusterRoles rbac.ClusterRoleGetter
	bindings     cache.Indexer
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// NewAuthorizer returns an Authorizer that reads from informers, which must not have started yet.
func NewAuthorizer(factory informers.SharedInformerFactory) (*Authorizer, error) {
	kinds := factory.Rbac().V1()
	bindings := kinds.ClusterRoleBindings().Informer()
	if err := bindings.AddIndexers(cache.Indexers{bySubject: subjectKeys}); err != nil {
		return nil, err
	}
	return &Authorizer{
		roles:        rbac.RoleGetter{Lister: kinds.Roles().Lister()},
		roleBindings: rbac.RoleBindingLister{Lister: kinds.RoleBindings().Lister()},
		clusterRoles: rbac.ClusterRoleGetter{Lister: kinds.ClusterRoles().Lister()},
		bindings:     bindings.GetIndexer(),
	}, nil
}

// Authorize implements authorizer.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.forUser(attributes.GetUser()).Authorize(ctx, attributes)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer. RBAC has no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return a.forUser(attributes.GetUser()).ConditionsAwareAuthorize(ctx, attributes)
}

// EvaluateConditions implements authorizer.Authorizer. RBAC has no conditions.
func (*Authorizer) EvaluateConditions(ctx context.Context, decision authorizer.ConditionsAwareDecision,
	data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return (*rbac.RBACAuthorizer)(nil).EvaluateConditions(ctx, decision, data)
}

// RulesFor implements authorizer.RuleResolver.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return a.forUser(u).RulesFor(ctx, u, namespace)
}

func (a *Authorizer) forUser(u user.Info) *rbac.RBACAuthorizer {
	return rbac.New(&a.roles, &a.roleBindings, &a.clusterRoles, bindingsOf{a.bindings, u})
}

// bindingsOf are the ClusterRoleBindings that bind a user.
type bindingsOf struct {
	bindings cache.Indexer
	user     user.Info
}

// ListClusterRoleBindings implements validation.ClusterRoleBindingLister. A binding of two groups of the user is listed once.
func (b bindingsOf) ListClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	var list []*rbacv1.ClusterRoleBinding
	listed := map[*rbacv1.ClusterRoleBinding]bool{}
	add := func(key string) error {
		found, err := b.bindings.ByIndex(bySubject, key)
		for _, object := range found {
			if binding, is := object.(*rbacv1.ClusterRoleBinding); is && !listed[binding] {
				listed[binding] = true
				list = append(list, binding)
			}
		}
		return err
	}
	if err := add(userKey(b.user.GetName())); err != nil {
		return nil, err
	}
	for _, group := range b.user.GetGroups() {
		if err := add(groupKey(group)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func userKey(name string) string  { return "user " + name }
func groupKey(name string) string { return "group " + name }

// subjectKeys are those of whom a ClusterRoleBinding binds. A service account is a user, too; without a namespace, it is nobody.
func subjectKeys(object any) ([]string, error) {
	binding, is := object.(*rbacv1.ClusterRoleBinding)
	if !is {
		return nil, nil
	}
	var keys []string
	for _, subject := range binding.Subjects {
		switch {
		case subject.Kind == rbacv1.UserKind:
			keys = append(keys, userKey(subject.Name))
		case subject.Kind == rbacv1.GroupKind:
			keys = append(keys, groupKey(subject.Name))
		case subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace != "":
			keys = append(keys, userKey(serviceaccount.MakeUsername(subject.Namespace, subject.Name)))
		}
	}
	return keys, nil
}
