package controlplane

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// hindrance is what keeps a hub from making what it makes at its start.
type hindrance struct {
	// put puts it in the way of a later start, and remove takes it out of the way while that hub runs.
	put, remove func(context.Context, *testHub) error
	// check is the part of /readyz that says what is wrong.
	check string
	says  []string
}

// deletedNamespace is a namespace of the hub that is being deleted, and waits for an object.
func deletedNamespace() hindrance {
	const namespace = "open-cluster-management"
	return hindrance{
		check: "hub-objects",
		put: func(ctx context.Context, h *testHub) error {
			held := configMap("held")
			held.Finalizers = []string{"capstan.test/held"}
			if _, err := h.client.CoreV1().ConfigMaps(namespace).Create(ctx, held, create); err != nil {
				return err
			}
			return h.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
		},
		says: []string{"namespace " + namespace, "it is being deleted"},
		remove: func(ctx context.Context, h *testHub) error {
			_, err := h.client.CoreV1().ConfigMaps(namespace).Patch(ctx, "held", types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		},
	}
}

// webhookThatIsDown admits requests about one resource, in the namespace of the hub if it is in any, or would.
func webhookThatIsDown(name string, operation admissionregistrationv1.OperationType, group, resource string) hindrance {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "open-cluster-management-hub"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{operation},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	return hindrance{
		put: func(ctx context.Context, h *testHub) error {
			_, err := h.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, create)
			return err
		},
		says: []string{"failed calling webhook", name},
		remove: func(ctx context.Context, h *testHub) error {
			return h.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
		},
	}
}

// refusedHubInfo is a webhook for what the hub publishes of itself.
func refusedHubInfo() hindrance {
	down := webhookThatIsDown("hub-info.capstan.test", admissionregistrationv1.Update, "", "configmaps")
	down.check, down.says = "hub-objects", append(down.says, "ConfigMap open-cluster-management-hub/hub-info")
	return down
}

// refusedRole is a webhook for a role of the hub that is to be made again.
func refusedRole() hindrance {
	down := webhookThatIsDown("roles.capstan.test", admissionregistrationv1.Create, rbacv1.GroupName, "clusterroles")
	down.check, down.says = "hub-bootstrap", append(down.says, roleStandaloneBootstrap)
	configure := down.put
	down.put = func(ctx context.Context, h *testHub) error {
		if err := configure(ctx, h); err != nil {
			return err
		}
		return h.client.RbacV1().ClusterRoles().Delete(ctx, roleStandaloneBootstrap, metav1.DeleteOptions{})
	}
	return down
}

// SC-19: a hub that cannot make all that it makes at its start serves its API, and says why, until the cause is removed, by its users and
// its own controllers. It is ready, and its controllers act, unless kinds or roles are missing.
func TestHinderedStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]hindrance{
		"a namespace that is being deleted": deletedNamespace(),
		"hub-info is refused":               refusedHubInfo(),
		"a role is refused":                 refusedRole(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			before := newHub(t, dir, nil)
			must(t, test.put(t.Context(), before))
			must(t, before.stop())

			h, err := launchHub(dir, func(o *Options) { o.Info = map[string]string{"version": "next"} })
			must(t, err)
			t.Cleanup(func() { must(t, h.stop()) })
			must(t, h.connect(filepath.Join(dir, "data")))
			eventually(t, func(ctx context.Context) string {
				why, err := h.client.Discovery().RESTClient().Get().AbsPath("/readyz/" + test.check).DoRaw(ctx)
				for _, want := range test.says {
					if !strings.Contains(string(why), want) {
						return fmt.Sprintf("it says %q, %v; want %q", why, err, want)
					}
				}
				return ""
			})
			if test.check == "hub-objects" {
				must(t, h.waitReady())
			} else if ready(t.Context(), h.port) {
				t.Error("it is ready")
			}
			must(t, test.remove(t.Context(), h))
			must(t, h.waitReady())
			eventually(t, func(ctx context.Context) string {
				if _, err := h.client.Discovery().RESTClient().Get().AbsPath("/readyz/hub-objects").DoRaw(ctx); err != nil {
					return err.Error()
				}
				if _, err := h.client.CoreV1().ServiceAccounts("open-cluster-management").Get(ctx, "agent-registration-bootstrap", get); err != nil {
					return err.Error()
				}
				if info, err := h.client.CoreV1().ConfigMaps("open-cluster-management-hub").Get(ctx, "hub-info", get); err != nil ||
					info.Data["version"] != "next" {
					return fmt.Sprintf("hub-info: %v, %v", info.Data, err)
				}
				return ""
			})
		})
	}
}

// SC-19: what the hub shows of itself, and what clusters join with, is made again when it is deleted while the hub runs.
func TestObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	core := newHub(t, t.TempDir(), nil).client.CoreV1()
	account := func(ctx context.Context) (metav1.Object, error) {
		return core.ServiceAccounts("open-cluster-management").Get(ctx, "agent-registration-bootstrap", get)
	}
	published := func(namespace, name string) func(context.Context) (metav1.Object, error) {
		return func(ctx context.Context) (metav1.Object, error) {
			return core.ConfigMaps(namespace).Get(ctx, name, get)
		}
	}
	for name, test := range map[string]struct {
		object   func(context.Context) (metav1.Object, error)
		deletion func(context.Context, string, metav1.DeleteOptions) error
		loses    string
	}{
		"the namespace of the account": {account, core.Namespaces().Delete, "open-cluster-management"},
		"cluster-info":                 {published("kube-public", "cluster-info"), core.ConfigMaps("kube-public").Delete, "cluster-info"},
		"the namespace of hub-info": {published("open-cluster-management-hub", "hub-info"), core.Namespaces().Delete,
			"open-cluster-management-hub"},
	} {
		before, err := test.object(t.Context())
		must(t, err)
		must(t, test.deletion(t.Context(), test.loses, metav1.DeleteOptions{}))
		eventually(t, func(ctx context.Context) string {
			if now, err := test.object(ctx); err != nil || now.GetUID() == before.GetUID() {
				return fmt.Sprintf("%s: it is not made again: %v", name, err)
			}
			return ""
		})
	}
}
