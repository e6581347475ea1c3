package gitops

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// generatorConfig is the ConfigMap that an ApplicationSet names to follow placements.
const generatorConfig = "acm-placement"

const resourceDecisions = "placementdecisions"

// ensureGenerator creates what ApplicationSets of an Argo CD need to follow placements, where it is absent. What exists belongs to whoever
// changes it.
func (c *Controller) ensureGenerator(ctx context.Context, namespace string) error {
	var failed []error
	for _, o := range generator(namespace) {
		existing, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		key := client.ObjectKeyFromObject(o)
		err := c.c.Live.Get(ctx, key, existing)
		if apierrors.IsNotFound(err) {
			err = c.c.Live.Create(ctx, o)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			failed = append(failed, fmt.Errorf("make %T %s: %w", o, key, err))
		}
	}
	return errors.Join(failed...)
}

// generator is where the decisions are, and the right to read those in the namespace of the Argo CD.
func generator(namespace string) []client.Object {
	role := namespace + "-applicationset-controller-placement"
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	subject := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: object(role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{subject("argocd-applicationset-controller")},
	}
	if own := namespace + "-applicationset-controller"; own != binding.Subjects[0].Name {
		binding.Subjects = append(binding.Subjects, subject(own)) // where an operator names it
	}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: object(generatorConfig), Data: map[string]string{
			"apiVersion": clusterv1beta1.GroupVersion.String(), "kind": resourceDecisions,
			"statusListKey": "decisions", "matchKey": "clusterName",
		}},
		&rbacv1.Role{ObjectMeta: object(role), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{clusterv1beta1.GroupVersion.Group}, Resources: []string{resourceDecisions},
			Verbs: []string{"get", "list", "watch"},
		}}},
		binding,
	}
}
