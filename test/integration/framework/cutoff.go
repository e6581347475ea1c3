package framework

import (
	"context"
	"crypto/x509/pkix"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AsAddOn is a client with the identity of an add-on on a cluster, and the right to ConfigMaps in the namespace of the cluster by a binding
// that no label tells of.
func AsAddOn(t *testing.T, admin client.Client, cluster string) (addOn client.WithWatch, right *rbacv1.RoleBinding) {
	t.Helper()
	const name = "spy"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}}
	right = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AddOnGroup(cluster, name)}}}
	Create(t, admin, role, right)
	subject := pkix.Name{CommonName: fleet.AddOnUser(cluster, name, "agent"), Organization: fleet.AddOnGroups(cluster, name)}
	addOn = env.ClientFor(t, WithCertificate(t, Hub, subject, nil))
	env.Eventually(t, func(ctx context.Context) error {
		return addOn.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(cluster))
	})
	return addOn, right
}

// AwaitEnd waits until a watch is over.
func AwaitEnd(t *testing.T, events <-chan watch.Event) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the watch goes on")
		}
	}
}
