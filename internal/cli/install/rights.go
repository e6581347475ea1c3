package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
)

// verbsToApply are what server-side apply takes. For who may not patch, the right to update is enough.
var verbsToApply = []string{"get", "create", "patch"}

// concurrency is how many reviews are made at a time.
const concurrency = 10

// right is something that a user needs to be allowed to do.
type right struct{ verb, group, resource, namespace string }

func (r right) String() string {
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	if r.namespace == "" {
		return fmt.Sprintf("%s %s", r.verb, resource)
	}
	return fmt.Sprintf("%s %s in namespace %s", r.verb, resource, r.namespace)
}

// MissingRights lists what the user may not do of what it takes to apply objects.
func (c *Cluster) MissingRights(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	needed, err := c.neededRights(ctx, objects)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var missing []string
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, right := range needed {
		group.Go(func() error {
			allowed, err := c.isAllowed(groupCtx, right)
			if err == nil && !allowed && right.verb == "patch" {
				update := right
				update.verb = "update"
				allowed, err = c.isAllowed(groupCtx, update)
			}
			if err == nil && !allowed {
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, right.String())
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, c.hub.Explain("ask for the permissions of the user", err)
	}
	if len(missing) == 0 {
		missing, err = c.missingToGrant(ctx, objects)
	}
	slices.Sort(missing)
	return missing, err
}

// neededRights are those for all objects, each once.
func (c *Cluster) neededRights(ctx context.Context, objects []*unstructured.Unstructured) ([]right, error) {
	defined := map[schema.GroupKind]string{}
	for _, object := range objects {
		if object.GroupVersionKind() == installation.KindCRD {
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			defined[schema.GroupKind{Group: group, Kind: kind}], _, _ = unstructured.NestedString(object.Object, "spec", "names", "plural")
		}
	}
	var needed []right
	for _, object := range objects {
		kind := object.GroupVersionKind()
		resource := defined[kind.GroupKind()]
		if resource == "" {
			served, err := c.ResourceOf(ctx, kind)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", installation.ReferenceTo(object), err)
			}
			resource = served.Resource
		}
		for _, verb := range verbsToApply {
			needed = append(needed, right{verb, kind.Group, resource, object.GetNamespace()})
		}
	}
	slices.SortFunc(needed, func(a, b right) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(needed), nil
}

// isAllowed reviews whether the user may do something in the cluster.
func (c *Cluster) isAllowed(ctx context.Context, what right) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: what.verb, Group: what.group, Resource: what.resource, Namespace: what.namespace,
		}},
	}
	content, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	body, err := c.hub.Raw().Post().AbsPath("/apis", authorizationv1.GroupName, "v1", "selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(content).DoRaw(ctx)
	if err != nil {
		return false, err
	}
	err = json.Unmarshal(body, &review)
	return review.Status.Allowed, err
}

// missingToGrant lists the roles that the user may not make or bind, because they allow more than the user may do.
func (c *Cluster) missingToGrant(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	var missing []string
	for _, object := range objects {
		if kind := object.GroupVersionKind(); kind != installation.KindClusterRole && kind != installation.KindClusterRoleBinding {
			continue
		}
		err := c.DryRunApply(ctx, object)
		switch {
		case hubapi.MayLackRight(err):
			missing = append(missing, fmt.Sprintf("escalate for %s: %v", installation.ReferenceTo(object), err))
		case apierrors.IsInvalid(err): // a binding of another role, which is replaced
			replace := right{"delete", object.GroupVersionKind().Group, "clusterrolebindings", ""}
			allowed, err := c.isAllowed(ctx, replace)
			if err != nil {
				return nil, c.hub.Explain("ask for the permissions of the user", err)
			}
			if !allowed {
				missing = append(missing, replace.String())
			}
		case err != nil && !apierrors.IsNotFound(err): // a binding of a role that is applied with it
			return nil, c.hub.Explain("try to apply "+installation.ReferenceTo(object).String(), err)
		}
	}
	return missing, nil
}
