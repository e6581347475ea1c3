package controlplane

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/capstan-io/capstan/internal/controlplane/rbac"
)

// SC-19: at every start the hub's roles get what they miss. What a user added stays, and a role that is marked so is
// left alone.
func TestRolesAreCompleted(t *testing.T) {
	t.Parallel()
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"test"}, Resources: []string{resource}, Verbs: []string{"get"}}
	}
	role := func(name string, annotations map[string]string, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
		return rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Rules: rules}
	}
	roles := shared.client.RbacV1().ClusterRoles()
	for _, existing := range []rbacv1.ClusterRole{
		role("test-completed", nil, rule("own")),
		role("test-left-alone", map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}, rule("own")),
	} {
		_, err := roles.Create(t.Context(), &existing, create)
		must(t, err)
	}
	must(t, rbac.Ensure(t.Context(), shared.client, rbac.Policy{ClusterRoles: []rbacv1.ClusterRole{
		role("test-completed", nil, rule("needed")),
		role("test-left-alone", map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}, rule("needed")),
		role("test-new", nil, rule("needed")),
	}}))
	for name, want := range map[string][]string{"test-completed": {"needed", "own"}, "test-left-alone": {"own"}, "test-new": {"needed"}} {
		got, err := roles.Get(t.Context(), name, get)
		must(t, err)
		var resources []string
		for _, r := range got.Rules {
			resources = append(resources, r.Resources...)
		}
		slices.Sort(resources)
		if !slices.Equal(resources, want) {
			t.Errorf("%s grants %v, want %v", name, resources, want)
		}
	}
}

// SC-14: profiles are there with --profiling, and for admins alone.
func TestProfilesAreForAdmins(t *testing.T) {
	t.Parallel()
	h := newHub(t, t.TempDir(), func(o *Options) { o.Profiling = true })
	const path = "/debug/pprof/goroutine"
	if _, err := h.client.Discovery().RESTClient().Get().AbsPath(path).Param("debug", "1").DoRaw(t.Context()); err != nil {
		t.Errorf("the admin: %v", err)
	}
	joiner := h.withToken(t, bootstrapToken(t, h))
	eventually(t, func(ctx context.Context) string {
		if _, err := joiner.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("the holder of a bootstrap token: %v", err)
		}
		return ""
	})
	anonymous := h.as(t, func(*rest.Config) {})
	if _, err := anonymous.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("anybody: %v", err)
	}
}

// SC-19: of two hubs on the same etcd that start or renew their CA at once, none fails.
func TestTwoPublishClusterInfo(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	must(t, ensureClusterInfo(t.Context(), client, "https://hub", []byte("old")))
	misses, conflicts := 1, 1
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		misses--
		return misses >= 0, nil, apierrors.NewNotFound(schema.GroupResource{}, "cluster-info")
	})
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(schema.GroupResource{}, "cluster-info", errors.New("changed"))
	})
	must(t, ensureClusterInfo(t.Context(), client, "https://hub", []byte("new")))
	info, err := client.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", get)
	must(t, err)
	if want := base64.StdEncoding.EncodeToString([]byte("new")); !strings.Contains(info.Data["kubeconfig"], want) {
		t.Errorf("published:\n%s", info.Data["kubeconfig"])
	}
}
