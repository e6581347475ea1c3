package integration

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
	"github.com/capstan-io/capstan/test/env"
)

// CP-07, CP-08: users of the hub reach the services that it exposes, and no others, also when it exposes others than before. The agent of
// this cluster does not run in it, and says so: nothing resolves the names of services.
func TestExposedServices(t *testing.T) {
	t.Parallel()
	p := newProxied(t, hub, "exposed-services")
	admin := hub.Client(t)
	namespace(t, admin, fleet.NamespaceAddOn)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAddOn, Name: fleet.ConfigMapExposedServices}}
	path := "/api/v1/namespaces/" + p.name + "/services/http:web:8080/proxy-service/"
	const exposed, hidden = "the agent does not run in its cluster", "is not in the exposed services allowlist"
	asked := func(user, method, path string, wantCode int, want string) error {
		code, answer := p.send(t, p.config(t, user), method, path, nil, "")
		if code != wantCode || !strings.Contains(answer, want) {
			return fmt.Errorf("to %s of %s the answer is %d %s", method, path, code, answer)
		}
		return nil
	}
	await := func(wantCode int, want string) {
		t.Helper()
		env.Eventually(t, func(context.Context) error { return asked(p.alice, http.MethodGet, path, wantCode, want) })
	}
	await(http.StatusForbidden, "service "+p.name+"/web "+hidden)
	list.Data = map[string]string{"web": fmt.Sprintf("- {namespace: %s, service: web, port: 8080}", p.name)}
	create(t, admin, list)
	await(http.StatusBadGateway, exposed)
	if err := asked(p.alice, http.MethodGet, strings.Replace(path, "8080", "8081", 1), http.StatusForbidden, hidden); err != nil {
		t.Error(err)
	}
	if err := asked("bob", http.MethodGet, path, http.StatusForbidden, `cannot get resource \"managedclusters/proxy\"`); err != nil {
		t.Error(err)
	}
	readsOnly(t, p, "carol-"+p.name)
	env.Eventually(t, func(context.Context) error {
		return asked("carol-"+p.name, http.MethodGet, path, http.StatusBadGateway, exposed)
	})
	if err := asked("carol-"+p.name, http.MethodPost, path, http.StatusForbidden, `cannot create resource \"managedclusters/proxy\"`); err != nil {
		t.Error(err)
	}

	mergePatch(t, admin, list, fmt.Sprintf(`{"data":{"web":null,"other":"- {namespace: %s, service: other}"}}`, p.name))
	await(http.StatusForbidden, hidden)
	mergePatch(t, admin, list, fmt.Sprintf(`{"data":{"other":null,"web":"- {namespace: %s, service: web}"}}`, p.name))
	await(http.StatusBadGateway, exposed)
	mergePatch(t, admin, list, `{"data":{"web":"- {name: web}"}}`)
	awaitInvalidList(t, admin, `unknown field "name"`)
	if err := asked(p.alice, http.MethodGet, path, http.StatusBadGateway, exposed); err != nil {
		t.Errorf("the list from before does not count: %v", err)
	}
	if err := admin.Delete(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	await(http.StatusForbidden, hidden)
}

// readsOnly lets a user of the hub enter the cluster with the verb get alone.
func readsOnly(t *testing.T, p *proxied, user string) {
	t.Helper()
	create(t, p.on.Client(t), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{clusterAPI}, Resources: []string{"managedclusters/proxy"}, ResourceNames: []string{p.name}, Verbs: []string{"get"}}}},
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
