package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
	"github.com/capstan-io/capstan/test/env"
)

// proxied is a cluster with the add-on cluster-proxy, which alice, who is no administrator, may enter.
type proxied struct {
	on    *env.Server
	api   schema.GroupVersion
	name  string
	agent *env.Agent
	alice string
}

// newProxied joins a cluster, enables the add-on there and waits until it is available.
func newProxied(t *testing.T, on *env.Server, name string) *proxied {
	t.Helper()
	p := &proxied{on: on, api: api.Standalone, name: name, alice: "alice-" + name}
	p.agent = env.Join(t, on, managed, name, "--namespace", namespace(t, managed.Client(t), name))
	p.enable(t)
	p.awaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
	p.letAliceEnter(t)
	return p
}

// letAliceEnter gives her the right on the hub, and waits until she has it.
func (p *proxied) letAliceEnter(t *testing.T) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "enter-" + p.name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{p.api.Group}, Resources: []string{"managedclusters/proxy"}, ResourceNames: []string{p.name}, Verbs: []string{"*"}}}}
	create(t, p.on.Client(t), role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "enter-" + p.name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: p.alice}}})
	env.Eventually(t, func(ctx context.Context) error {
		return p.as(t, p.alice).CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	})
}

func (p *proxied) addOn() *addonv1beta1.ManagedClusterAddOn {
	return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: fleet.AddOnClusterProxy}}
}

func (p *proxied) enable(t *testing.T) {
	t.Helper()
	create(t, p.on.Client(t), p.addOn())
}

func (p *proxied) awaitAvailable(t *testing.T, status metav1.ConditionStatus, reason, text string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		addOn := p.addOn()
		if err := p.on.Client(t).Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable)
		if cond == nil || cond.Status != status || cond.Reason != reason || !strings.Contains(cond.Message, text) {
			return fmt.Errorf("want Available=%s, %s, %q; have %+v", status, reason, text, cond)
		}
		return nil
	})
}

func asAdmin(t *testing.T, server *env.Server) *rest.Config {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (p *proxied) config(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config := asAdmin(t, p.on)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	config.Host += api.Path(p.api, p.name, fleet.SubresourceProxy)
	return config
}

// as is a client of the cluster that reaches it through the hub, as a user of the hub.
func (p *proxied) as(t *testing.T, user string, groups ...string) *kubernetes.Clientset {
	t.Helper()
	return kubernetes.NewForConfigOrDie(p.config(t, user, groups...))
}

// bind lets a user of the hub read and write ConfigMaps in the namespace of the cluster, on the cluster.
func (p *proxied) bind(t *testing.T, user string) {
	t.Helper()
	c := managed.Client(t)
	create(t, c, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: user},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: access.Prefix + user}}})
	env.Eventually(t, func(ctx context.Context) error {
		_, err := p.as(t, user).CoreV1().ConfigMaps(p.name).List(ctx, metav1.ListOptions{})
		return err
	})
}

// send sends a request to the hub as the user, and returns the answer.
func (p *proxied) send(t *testing.T, config *rest.Config, method, path string, header http.Header, body string) (int, string) {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		request.Header[key] = values
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// whoIsThere is as whom the cluster takes a request.
func (p *proxied) whoIsThere(t *testing.T, config *rest.Config, header http.Header) authenticationv1.UserInfo {
	t.Helper()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	code, answer := p.send(t, config, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", header,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	review := &authenticationv1.SelfSubjectReview{}
	if err := json.Unmarshal([]byte(answer), review); err != nil || code != http.StatusCreated {
		t.Fatalf("the cluster answers %d %s: %v", code, answer, err)
	}
	return review.Status.UserInfo
}

// CP-01, CP-05, CP-07, CP-09: users of the hub reach the API of a cluster through it, as themselves, with the rights that the cluster gives
// them.
func TestClusterProxy(t *testing.T) {
	t.Parallel()
	p := newProxied(t, hub, "proxied")
	alice := p.as(t, p.alice, "ops")
	_, err := alice.CoreV1().ConfigMaps(p.name).List(t.Context(), metav1.ListOptions{})
	expectRefusal(t, err, apierrors.IsForbidden, `User "cluster:hub:`+p.alice+`" cannot list resource "configmaps"`)
	if who := p.whoIsThere(t, p.config(t, p.alice, "ops", "system:masters"), nil); who.Username != access.Prefix+p.alice ||
		!slices.Equal(who.Groups, []string{"cluster:hub:ops", "cluster:hub:system:masters", "system:authenticated"}) {
		t.Errorf("on the cluster she is %+v", who)
	}

	p.bind(t, p.alice)
	watch, err := alice.CoreV1().ConfigMaps(p.name).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=from-alice"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "from-alice"},
		BinaryData: map[string][]byte{"key": bytes.Repeat([]byte("x"), 700<<10)}}
	if _, err := alice.CoreV1().ConfigMaps(p.name).Create(t.Context(), big, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event, _ := env.NextEvent(t, watch); event.Object.(*corev1.ConfigMap).Name != "from-alice" {
		t.Errorf("she watches %+v", event)
	}

	t.Run("no right on the hub", func(t *testing.T) {
		t.Parallel()
		_, err := p.as(t, "bob").CoreV1().ConfigMaps(p.name).List(t.Context(), metav1.ListOptions{})
		expectRefusal(t, err, apierrors.IsForbidden, `User "bob" cannot get resource "managedclusters/proxy"`)
	})
	t.Run("a token of the cluster", func(t *testing.T) {
		t.Parallel()
		token, err := kubernetes.NewForConfigOrDie(asAdmin(t, managed)).CoreV1().ServiceAccounts(p.name).CreateToken(t.Context(), "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		who := p.whoIsThere(t, p.config(t, p.alice), http.Header{fleet.HeaderClusterAuthorization: {"Bearer " + token.Status.Token}})
		if who.Username != "system:serviceaccount:"+p.name+":default" {
			t.Errorf("with the token of a service account she is %+v", who)
		}
		code, answer := p.send(t, p.config(t, p.alice), http.MethodGet, "/api/v1/pods", http.Header{fleet.HeaderClusterAuthorization: {"Bearer x"}}, "")
		if code != http.StatusUnauthorized {
			t.Errorf("with a token that nobody has issued, the answer is %d %s", code, answer)
		}
	})
	t.Run("headers from outside", func(t *testing.T) {
		t.Parallel()
		who := p.whoIsThere(t, p.config(t, p.alice), http.Header{access.HeaderUser: {"system:admin"}, access.HeaderGroup: {"system:masters"},
			"X-Remote-Extra-Scopes": {"all"}, "X-Remote-Uid": {"0"}})
		if who.Username != access.Prefix+p.alice || !slices.Equal(who.Groups, []string{"system:authenticated"}) || len(who.Extra) > 0 {
			t.Errorf("she is %+v", who)
		}
	})
	t.Run("paths that escape", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/../../proxied-no/proxy/version", "/%2e%2e/version", "/api/..%2f..%2fversion", "/./version", "/a%5cb"} {
			if code, answer := p.send(t, p.config(t, p.alice), http.MethodGet, path, nil, ""); code != http.StatusBadRequest ||
				!strings.Contains(answer, "path") {
				t.Errorf("to %s the answer is %d %s", path, code, answer)
			}
		}
	})
	t.Run("no cluster", func(t *testing.T) {
		t.Parallel()
		config := p.config(t, "admin", "system:masters")
		config.Host = strings.Replace(config.Host, p.name, "proxied-no", 1)
		if code, answer := p.send(t, config, http.MethodGet, "/version", nil, ""); code != http.StatusNotFound {
			t.Errorf("the answer is %d %s", code, answer)
		}
	})
}

// CP-05, CP-06: a tunnel is of the cluster whose agent makes it, and of nobody else.
func TestTunnelOfAnotherCluster(t *testing.T) {
	t.Parallel()
	admin := hub.Client(t)
	acceptAll(t, "tunnel-own", "tunnel-other")
	for _, name := range []string{"tunnel-own", "tunnel-other"} {
		create(t, admin, (&proxied{name: name}).addOn())
	}
	agent := withCertificate(t, hub, agentSubject("tunnel-own", "agent"), ofCluster("tunnel-own"))
	agent.NextProtos = []string{"http/1.1"}
	c, err := rest.HTTPClientFor(agent)
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string {
		return agent.Host + "/apis/cluster.open-cluster-management.io/v1/managedclusters/" + name + "/tunnel"
	}
	env.Eventually(t, func(ctx context.Context) error {
		own, err := tunnel.Dial(ctx, c, path("tunnel-own"))
		if err == nil {
			own.Close()
		}
		return err
	})
	_, err = tunnel.Dial(t.Context(), c, path("tunnel-other"))
	expectRefusal(t, err, apierrors.IsForbidden, `cannot create resource "managedclusters/tunnel"`)
	all := asAdmin(t, hub)
	all.NextProtos = []string{"http/1.1"}
	if c, err = rest.HTTPClientFor(all); err != nil {
		t.Fatal(err)
	}
	_, err = tunnel.Dial(t.Context(), c, path("tunnel-other"))
	expectRefusal(t, err, apierrors.IsForbidden, "only the agent of the cluster makes a tunnel")
}

// CP-09: the owner of a cluster narrows, on the cluster, what users of the hub may ask of it.
func TestHubAccessRules(t *testing.T) {
	t.Parallel()
	p := newProxied(t, hub, "ruled")
	p.bind(t, p.alice)
	list := func(ctx context.Context) error {
		_, err := p.as(t, p.alice).CoreV1().ConfigMaps(p.name).List(ctx, metav1.ListOptions{})
		return err
	}
	set := func(rules string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "hub-access"}, Data: map[string]string{"rules.yaml": rules}}
		c := managed.Client(t)
		if err := c.Create(t.Context(), o); apierrors.IsAlreadyExists(err) {
			err = c.Update(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(text string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			err := list(ctx)
			if err == nil {
				return fmt.Errorf("she may still list")
			}
			expectRefusal(t, err, apierrors.IsForbidden, text)
			return nil
		})
	}
	set("[]")
	refused(`does not let user "` + p.alice + `" of the hub do that; its ConfigMap hub-access says`)
	set(fmt.Sprintf("- {users: [%s], verbs: [list], namespaces: [%s]}", p.alice, p.name))
	env.Eventually(t, list)
	_, err := p.as(t, p.alice).CoreV1().ConfigMaps(p.name).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a rule for the verb list lets her get: %v", err)
	}
	set("- {user: [x]}")
	refused("ConfigMap ruled/hub-access has no rules that can be read")
	p.awaitAvailable(t, metav1.ConditionFalse, fleet.ReasonHubAccessRulesInvalid, `unknown field "user"`)
	rules := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "hub-access"}}
	if err := managed.Client(t).Delete(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, list)
	p.awaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
}

// CP-10: what is open through a tunnel ends with the add-on, and with the acceptance of the cluster.
func TestTunnelIsCut(t *testing.T) {
	t.Parallel()
	p := newProxied(t, hub, "cut-tunnel")
	p.bind(t, p.alice)
	follow := func() <-chan struct{} {
		t.Helper()
		watch, err := p.as(t, p.alice).CoreV1().ConfigMaps(p.name).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range watch.ResultChan() {
			}
		}()
		return ended
	}
	refused := func(text string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			_, err := p.as(t, p.alice).CoreV1().ConfigMaps(p.name).List(ctx, metav1.ListOptions{})
			if err == nil || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("want a refusal with %q, have %w", text, err)
			}
			return nil
		})
	}
	watch := follow()
	if err := hub.Client(t).Delete(t.Context(), p.addOn()); err != nil {
		t.Fatal(err)
	}
	await(t, watch)
	refused("capstan addon enable --names cluster-proxy --clusters " + p.name)
	env.Eventually(t, func(ctx context.Context) error { return hub.Client(t).Create(ctx, p.addOn()) })
	p.awaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
	watch = follow()
	mergePatch(t, hub.Client(t), managedCluster(t, p.name), `{"spec":{"hubAcceptsClient":false}}`)
	await(t, watch)
	refused("is not accepted or is being deleted")
}

func await(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		select {
		case <-ended:
			return nil
		default:
			return fmt.Errorf("what was open through the tunnel goes on")
		}
	})
}

// CP-04: an agent that is killed, or whose hub is, makes its tunnel again.
func TestTunnelComesBack(t *testing.T) {
	t.Parallel()
	on := env.StartHub(t, "")
	p := newProxied(t, on, "comes-back")
	reached := func(ctx context.Context) error {
		return p.as(t, p.alice).CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}
	p.agent.Kill()
	p.agent.AwaitExit(t)
	env.Eventually(t, func(ctx context.Context) error {
		if err := reached(ctx); err == nil || !strings.Contains(err.Error(), "its agent has no tunnel to the hub") {
			return fmt.Errorf("without an agent, the hub answers %w", err)
		}
		return nil
	})
	if err := p.agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, reached)
	on.Kill()
	on.AwaitExit(t)
	if err := on.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, reached)
}
