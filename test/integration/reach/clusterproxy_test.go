package reach

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-01, CP-05, CP-07, CP-09: users of the hub reach the API of a cluster through it, as themselves, with the rights that the cluster gives
// them.
func TestClusterProxy(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "proxied")
	alice := p.As(t, p.Alice, "ops")
	_, err := alice.CoreV1().ConfigMaps(p.Name).List(t.Context(), metav1.ListOptions{})
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, `User "cluster:hub:`+p.Alice+`" cannot list resource "configmaps"`)
	if who := p.WhoIsThere(t, p.Config(t, p.Alice, "ops", "system:masters"), nil); who.Username != access.Prefix+p.Alice ||
		!slices.Equal(who.Groups, []string{"cluster:hub:ops", "cluster:hub:system:masters", "system:authenticated"}) {
		t.Errorf("on the cluster she is %+v", who)
	}

	p.Bind(t, p.Alice)
	watch, err := alice.CoreV1().ConfigMaps(p.Name).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=from-alice"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "from-alice"},
		BinaryData: map[string][]byte{"key": bytes.Repeat([]byte("x"), 700<<10)}}
	if _, err := alice.CoreV1().ConfigMaps(p.Name).Create(t.Context(), big, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event, _ := env.NextEvent(t, watch); event.Object.(*corev1.ConfigMap).Name != "from-alice" {
		t.Errorf("she watches %+v", event)
	}

	t.Run("no right on the hub", func(t *testing.T) {
		t.Parallel()
		_, err := p.As(t, "bob").CoreV1().ConfigMaps(p.Name).List(t.Context(), metav1.ListOptions{})
		framework.ExpectRefusal(t, err, apierrors.IsForbidden, `User "bob" cannot get resource "managedclusters/proxy"`)
	})
	t.Run("a token of the cluster", func(t *testing.T) {
		t.Parallel()
		token, err := kubernetes.NewForConfigOrDie(framework.AsAdmin(t,
			framework.Managed)).CoreV1().ServiceAccounts(p.Name).CreateToken(t.Context(), "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		who := p.WhoIsThere(t, p.Config(t, p.Alice), http.Header{fleet.HeaderClusterAuthorization: {"Bearer " + token.Status.Token}})
		if who.Username != "system:serviceaccount:"+p.Name+":default" {
			t.Errorf("with the token of a service account she is %+v", who)
		}
		code, answer := p.Send(t, p.Config(t, p.Alice), http.MethodGet, "/api/v1/pods", http.Header{fleet.HeaderClusterAuthorization: {"Bearer x"}}, "")
		if code != http.StatusUnauthorized {
			t.Errorf("with a token that nobody has issued, the answer is %d %s", code, answer)
		}
	})
	t.Run("headers from outside", func(t *testing.T) {
		t.Parallel()
		who := p.WhoIsThere(t, p.Config(t, p.Alice), http.Header{access.HeaderUser: {"system:admin"}, access.HeaderGroup: {"system:masters"},
			"X-Remote-Extra-Scopes": {"all"}, "X-Remote-Uid": {"0"}})
		if who.Username != access.Prefix+p.Alice || !slices.Equal(who.Groups, []string{"system:authenticated"}) || len(who.Extra) > 0 {
			t.Errorf("she is %+v", who)
		}
	})
	t.Run("paths that escape", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/../../proxied-no/proxy/version", "/%2e%2e/version", "/api/..%2f..%2fversion", "/./version", "/a%5cb"} {
			if code, answer := p.Send(t, p.Config(t, p.Alice), http.MethodGet, path, nil, ""); code != http.StatusBadRequest ||
				!strings.Contains(answer, "path") {
				t.Errorf("to %s the answer is %d %s", path, code, answer)
			}
		}
	})
	t.Run("no cluster", func(t *testing.T) {
		t.Parallel()
		config := p.Config(t, "admin", "system:masters")
		config.Host = strings.Replace(config.Host, p.Name, "proxied-no", 1)
		if code, answer := p.Send(t, config, http.MethodGet, "/version", nil, ""); code != http.StatusNotFound {
			t.Errorf("the answer is %d %s", code, answer)
		}
	})
}

// CP-05, CP-06: a tunnel is of the cluster whose agent makes it, and of nobody else.
func TestTunnelOfAnotherCluster(t *testing.T) {
	t.Parallel()
	admin := framework.Hub.Client(t)
	framework.AcceptAll(t, "tunnel-own", "tunnel-other")
	for _, name := range []string{"tunnel-own", "tunnel-other"} {
		framework.Create(t, admin, (&framework.Proxied{Name: name}).AddOn())
	}
	agent := framework.WithCertificate(t, framework.Hub, framework.AgentSubject("tunnel-own", "agent"), framework.OfCluster("tunnel-own"))
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
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, `cannot create resource "managedclusters/tunnel"`)
	all := framework.AsAdmin(t, framework.Hub)
	all.NextProtos = []string{"http/1.1"}
	if c, err = rest.HTTPClientFor(all); err != nil {
		t.Fatal(err)
	}
	_, err = tunnel.Dial(t.Context(), c, path("tunnel-other"))
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, "only the agent of the cluster makes a tunnel")
}

// CP-09: the owner of a cluster narrows, on the cluster, what users of the hub may ask of it.
func TestHubAccessRules(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "ruled")
	p.Bind(t, p.Alice)
	list := func(ctx context.Context) error {
		_, err := p.As(t, p.Alice).CoreV1().ConfigMaps(p.Name).List(ctx, metav1.ListOptions{})
		return err
	}
	set := func(rules string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: "hub-access"}, Data: map[string]string{"rules.yaml": rules}}
		c := framework.Managed.Client(t)
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
			framework.ExpectRefusal(t, err, apierrors.IsForbidden, text)
			return nil
		})
	}
	set("[]")
	refused(`does not let user "` + p.Alice + `" of the hub do that; its ConfigMap hub-access says`)
	set(fmt.Sprintf("- {users: [%s], verbs: [list], namespaces: [%s]}", p.Alice, p.Name))
	env.Eventually(t, list)
	_, err := p.As(t, p.Alice).CoreV1().ConfigMaps(p.Name).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a rule for the verb list lets her get: %v", err)
	}
	set("- {user: [x]}")
	refused("ConfigMap ruled/hub-access has no rules that can be read")
	p.AwaitAvailable(t, metav1.ConditionFalse, fleet.ReasonHubAccessRulesInvalid, `unknown field "user"`)
	rules := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: "hub-access"}}
	if err := framework.Managed.Client(t).Delete(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, list)
	p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
}

// CP-10: what is open through a tunnel ends with the add-on, and with the acceptance of the cluster.
func TestTunnelIsCut(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "cut-tunnel")
	p.Bind(t, p.Alice)
	follow := func() <-chan struct{} {
		t.Helper()
		watch, err := p.As(t, p.Alice).CoreV1().ConfigMaps(p.Name).Watch(t.Context(), metav1.ListOptions{})
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
			_, err := p.As(t, p.Alice).CoreV1().ConfigMaps(p.Name).List(ctx, metav1.ListOptions{})
			if err == nil || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("want a refusal with %q, have %w", text, err)
			}
			return nil
		})
	}
	watch := follow()
	if err := framework.Hub.Client(t).Delete(t.Context(), p.AddOn()); err != nil {
		t.Fatal(err)
	}
	await(t, watch)
	refused("capstan addon enable --names cluster-proxy --clusters " + p.Name)
	env.Eventually(t, func(ctx context.Context) error { return framework.Hub.Client(t).Create(ctx, p.AddOn()) })
	p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
	watch = follow()
	framework.MergePatch(t, framework.Hub.Client(t), framework.ManagedCluster(t, p.Name), `{"spec":{"hubAcceptsClient":false}}`)
	await(t, watch)
	refused("is not accepted or is being deleted")
}

// CP-10, NX-01: an agent that is to make no tunnel says so.
func TestTunnelIsSwitchedOff(t *testing.T) {
	t.Parallel()
	p := &framework.Proxied{On: framework.Hub, Name: "no-tunnel"}
	env.Join(t, p.On, framework.Managed, p.Name, "--namespace", framework.Namespace(t, framework.Managed.Client(t), p.Name),
		"--feature-gates=ClusterProxy=false")
	framework.Create(t, p.On.Client(t), p.AddOn())
	p.AwaitAvailable(t, metav1.ConditionFalse, fleet.ReasonBuiltInSwitchedOff, "--feature-gates=ClusterProxy=true")
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
	p := framework.NewProxied(t, on, "comes-back")
	reached := func(ctx context.Context) error {
		return p.As(t, p.Alice).CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}
	p.Agent.Kill()
	p.Agent.AwaitExit(t)
	var refused string
	env.Eventually(t, func(ctx context.Context) error {
		err := reached(ctx)
		if err == nil || !strings.Contains(err.Error(), "its agent has no tunnel to the hub") {
			return fmt.Errorf("without an agent, the hub answers %w", err)
		}
		refused = err.Error()
		return nil
	})
	framework.FollowAdvice(t, on.Client(t), refused, "describe managedclusteraddon")
	if err := p.Agent.Start(); err != nil {
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
