package reach

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-07, CP-08: users of the hub reach the services that it exposes, and no others, also when it exposes others than before. The agent of
// this cluster does not run in it, and says so: nothing resolves the names of services.
func TestExposedServices(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "exposed-services")
	admin := framework.Hub.Client(t)
	framework.Namespace(t, admin, fleet.NamespaceAddOn)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAddOn, Name: fleet.ConfigMapExposedServices}}
	path := "/api/v1/namespaces/" + p.Name + "/services/http:web:8080/proxy-service/"
	const exposed, hidden = "the agent does not run in its cluster", "is not in the exposed services allowlist"
	asked := func(user, method, path string, wantCode int, want string) error {
		code, answer := p.Send(t, p.Config(t, user), method, path, nil, "")
		if code != wantCode || !strings.Contains(answer, want) {
			return fmt.Errorf("to %s of %s the answer is %d %s", method, path, code, answer)
		}
		return nil
	}
	await := func(wantCode int, want string) {
		t.Helper()
		env.Eventually(t, func(context.Context) error { return asked(p.Alice, http.MethodGet, path, wantCode, want) })
	}
	await(http.StatusForbidden, "service "+p.Name+"/web "+hidden)
	list.Data = map[string]string{"web": fmt.Sprintf("- {namespace: %s, service: web, port: 8080}", p.Name)}
	framework.Create(t, admin, list)
	await(http.StatusBadGateway, exposed)
	if err := asked(p.Alice, http.MethodGet, strings.Replace(path, "8080", "8081", 1), http.StatusForbidden, hidden); err != nil {
		t.Error(err)
	}
	if err := asked("bob", http.MethodGet, path, http.StatusForbidden, `cannot get resource \"managedclusters/proxy\"`); err != nil {
		t.Error(err)
	}
	readsOnly(t, p, "carol-"+p.Name)
	env.Eventually(t, func(context.Context) error {
		return asked("carol-"+p.Name, http.MethodGet, path, http.StatusBadGateway, exposed)
	})
	if err := asked("carol-"+p.Name, http.MethodPost, path, http.StatusForbidden, `cannot create resource \"managedclusters/proxy\"`); err != nil {
		t.Error(err)
	}
	code, answer := p.Raw(t, "GET "+api.Path(p.API, p.Name, "proxy")+path+" HTTP/1.1\r\nImpersonate-User: carol-"+p.Name+
		"\r\nConnection: Upgrade\r\nUpgrade: websocket", "")
	if code != http.StatusForbidden || !strings.Contains(answer, `cannot create resource \"managedclusters/proxy\"`) {
		t.Errorf("to upgrade her connection, the answer is %d %s", code, answer)
	}

	framework.MergePatch(t, admin, list, fmt.Sprintf(`{"data":{"web":null,"other":"- {namespace: %s, service: other}"}}`, p.Name))
	await(http.StatusForbidden, hidden)
	framework.MergePatch(t, admin, list, fmt.Sprintf(`{"data":{"other":null,"web":"- {namespace: %s, service: web}"}}`, p.Name))
	await(http.StatusBadGateway, exposed)
	framework.MergePatch(t, admin, list, `{"data":{"web":"- {name: web}"}}`)
	awaitInvalidList(t, admin, `unknown field "name"`)
	if err := asked(p.Alice, http.MethodGet, path, http.StatusBadGateway, exposed); err != nil {
		t.Errorf("the list from before does not count: %v", err)
	}
	if err := admin.Delete(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	await(http.StatusForbidden, hidden)
}

// readsOnly lets a user of the hub enter the cluster with the verb get alone.
func readsOnly(t *testing.T, p *framework.Proxied, user string) {
	t.Helper()
	framework.Create(t, p.On.Client(t), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters/proxy"},
		ResourceNames: []string{p.Name}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
}

// awaitInvalidList waits for the event that says what is wrong with the list of exposed services.
func awaitInvalidList(t *testing.T, c client.Client, text string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := c.List(ctx, events, client.InNamespace(fleet.NamespaceAddOn)); err != nil {
			return err
		}
		for _, e := range events.Items {
			isAbout := e.Regarding.Name == fleet.ConfigMapExposedServices
			if isAbout && e.Reason == fleet.EventExposedServicesInvalid && strings.Contains(e.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("no event of %d has %q", len(events.Items), text)
	})
}
