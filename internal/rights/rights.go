// Package rights finds out what a process may watch and grant, and has it do without the rest: a cache that may not list what it is to have
// never becomes ready, and nothing would be done.
package rights

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// watchVerbs are those that a cache needs.
var watchVerbs = []string{"list", "watch"}

// Watch is what a cache has: all objects of a kind, those of one namespace, or those with one name.
type Watch struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// Reviewer returns what the requester may do.
type Reviewer = authorizationv1client.SelfSubjectAccessReviewInterface

// Missing returns those of the watches that are not permitted. Where nobody may create reviews, all of them count as permitted.
func Missing(ctx context.Context, reviewer Reviewer, watches ...Watch) (missing []Watch, err error) {
	for _, watch := range watches {
		permitted, err := watch.permitted(ctx, reviewer)
		if err != nil {
			return nil, fmt.Errorf("find out whether the process may %s: %w", watch, err)
		}
		if !permitted {
			missing = append(missing, watch)
		}
	}
	return missing, nil
}

func (w Watch) permitted(ctx context.Context, reviewer Reviewer) (bool, error) {
	return w.Permits(ctx, reviewer, watchVerbs...)
}

// Permits reports whether the requester may do all of the verbs with what the watch has. Where nobody may create reviews, it may.
func (w Watch) Permits(ctx context.Context, reviewer Reviewer, verbs ...string) (bool, error) {
	for _, verb := range verbs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: w.Group, Version: w.Version,
				Resource: resourceOf(w.GroupKind()), Namespace: w.Namespace, Name: w.Name}}}
		answer, err := reviewer.Create(ctx, review, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if !answer.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

// String says what is watched.
func (w Watch) String() string {
	text := "watch " + resourceOf(w.GroupKind())
	if w.Name != "" {
		text += " " + w.Name
	}
	if w.Namespace != "" {
		text += " in namespace " + w.Namespace
	}
	return text
}

// Rule is what to add to a ClusterRole, or to a Role in the namespace of the watch, to permit it.
func (w Watch) Rule() string { return Rule(w.GroupKind(), w.Namespace, w.Name, watchVerbs...) }

// Rule is the rule that permits the verbs for a kind, in a namespace if one is given, and for one name if one is given, as in a manifest.
func Rule(kind schema.GroupKind, namespace, name string, verbs ...string) string {
	rule := rbacv1.PolicyRule{APIGroups: []string{kind.Group}, Resources: []string{resourceOf(kind)}, Verbs: verbs}
	if name != "" {
		rule.ResourceNames = []string{name}
	}
	return Text(rule, namespace)
}

// Text is a rule about resources as in a manifest, and the namespace that it is for if one is given.
func Text(rule rbacv1.PolicyRule, namespace string) string {
	groups := make([]string, 0, len(rule.APIGroups))
	for _, group := range rule.APIGroups {
		groups = append(groups, strconv.Quote(group))
	}
	list := func(names []string) string { return strings.Join(names, ", ") }
	text := fmt.Sprintf("{apiGroups: [%s], resources: [%s], ", list(groups), list(rule.Resources))
	if len(rule.ResourceNames) > 0 {
		text += fmt.Sprintf("resourceNames: [%s], ", list(rule.ResourceNames))
	}
	text += fmt.Sprintf("verbs: [%s]}", list(rule.Verbs))
	if namespace != "" {
		text += " in namespace " + namespace
	}
	return text
}

func resourceOf(kind schema.GroupKind) string {
	if kind.Kind == "Endpoints" {
		return "endpoints"
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	return resource.Resource
}

// Describe says which rules to add, each once; empty if there are none.
func Describe(rules []string) string {
	rules = distinct(rules)
	if len(rules) == 0 {
		return ""
	}
	return "The operator works without what it may not do; add to its ClusterRole: " + strings.Join(rules, "; ")
}

// distinct are the rules in order, each once.
func distinct(rules []string) []string { return slices.Compact(slices.Sorted(slices.Values(rules))) }

// pollInterval is how often it is checked whether what was missing is permitted now.
const pollInterval = 10 * time.Second

// Recheck is a manager.Runnable that ends the process with an error once one of the watches is permitted that were missing when it started:
// it watches from the start, so it has to be started again, as Kubernetes does.
type Recheck struct {
	Reviewer Reviewer
	Watches  []Watch
}

// Start implements manager.Runnable.
func (r Recheck) Start(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for len(r.Watches) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := r.permitted(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Watched reports whether a kind is watched: all watches of it are permitted.
func Watched(missing []Watch, kind schema.GroupVersionKind) bool {
	return !slices.ContainsFunc(missing, func(w Watch) bool { return w.GroupVersionKind == kind })
}

// Rules are those that permit the watches.
func Rules(missing []Watch) (rules []string) {
	for _, watch := range missing {
		rules = append(rules, watch.Rule())
	}
	return rules
}

// permitted is an error if one of the watches is permitted now. That it cannot be found out is none.
func (r Recheck) permitted(ctx context.Context) error {
	missing, err := Missing(ctx, r.Reviewer, r.Watches...)
	if err != nil {
		return nil //nolint:nilerr // it is checked again
	}
	for _, watch := range r.Watches {
		if !slices.Contains(missing, watch) {
			return fmt.Errorf("the process may %s now, and ends so that it is started again and does", watch)
		}
	}
	return nil
}
