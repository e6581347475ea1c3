package apply

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capstan-io/capstan/internal/rights"
)

// applyRole applies a role, and records which of its rules are left out because they may not be granted.
func (c *Cluster) applyRole(ctx context.Context, installation string, role client.Object) error {
	kind, err := apiutil.GVKForObject(role, c.Scheme)
	if err != nil {
		return err
	}
	missing, err := c.applyGrantable(ctx, installation, role)
	if err != nil {
		return err
	}
	name := reference{kind, client.ObjectKeyFromObject(role)}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ungranted, name)
	for _, rule := range missing {
		c.ungranted[name] = append(c.ungranted[name], rights.Text(rule, role.GetNamespace()))
	}
	return nil
}

// applyGrantable applies a role, or, as RBAC lets nobody grant what they do not have, those of its rules that may be granted, and returns
// the others. The whole role is tried each time, so that they come once they may be granted.
func (c *Cluster) applyGrantable(ctx context.Context, installation string, role client.Object) (missing []rbacv1.PolicyRule, err error) {
	refused := c.apply(ctx, installation, role)
	if !apierrors.IsForbidden(refused) {
		return nil, refused
	}
	held, err := rights.Held(ctx, c.rulesReviewer, role.GetNamespace())
	if err != nil {
		return nil, errors.Join(refused, err)
	}
	part, isObject := role.DeepCopyObject().(client.Object)
	if !isObject {
		return nil, refused
	}
	rules := rulesOf(part)
	if *rules, missing = rights.Grantable(held, *rules); len(missing) == 0 {
		return nil, refused // for another reason
	}
	if err := c.apply(ctx, installation, part); err != nil {
		return nil, err
	}
	copyServerFields(role, part)
	return missing, nil
}

// rulesOf are the rules of a role; nil if the object is none.
func rulesOf(object client.Object) *[]rbacv1.PolicyRule {
	switch role := object.(type) {
	case *rbacv1.ClusterRole:
		return &role.Rules
	case *rbacv1.Role:
		return &role.Rules
	default:
		return nil
	}
}
