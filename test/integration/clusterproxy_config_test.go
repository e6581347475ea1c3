package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/env"
)

// CP-13: the tunnel goes through the forward proxy of the AddOnDeploymentConfig, and through another one as soon as that is changed. The
// agent knows the hub by an address that only proxies know.
func TestTunnelThroughProxy(t *testing.T) {
	t.Parallel()
	const name = "tunnel-proxy"
	way, first, second := startProxy(t, false, nil), startProxy(t, false, nil), startProxy(t, true, nil)
	p := &proxied{on: hub, api: api.Standalone, name: name, alice: "alice-" + name}
	p.agent = env.NewAgent(t, hub, managed, name, "", "--namespace", namespace(t, managed.Client(t), name))
	behind(t, p.agent, way.URL, nil)
	if err := p.agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, hub.Client(t), name)
	env.AwaitAvailable(t, hub.Client(t), name)
	pid := p.agent.Pid()

	h := hub.Client(t)
	config := &addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tunnel"}}
	config.Spec.ProxyConfig = addonv1beta1.ProxyConfig{HTTPSProxy: first.URL, NoProxy: "localhost,.svc"}
	addOn := p.addOn()
	addOn.Spec.Configs = []addonv1beta1.AddOnConfig{{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addondeploymentconfigs"},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: name, Name: "tunnel"}}}
	create(t, h, config, addOn)
	connected := func() {
		t.Helper()
		p.awaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
		env.Eventually(t, func(context.Context) error {
			if code, answer := p.send(t, p.config(t, "admin", "system:masters"), http.MethodGet, "/version", nil, ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	}
	connected()
	if first.Connections() == 0 {
		t.Error("the tunnel does not go through the proxy")
	}
	set := func(proxy addonv1beta1.ProxyConfig) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := h.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
				return err
			}
			config.Spec.ProxyConfig = proxy
			return h.Update(ctx, config)
		})
	}
	set(addonv1beta1.ProxyConfig{HTTPSProxy: second.URL})
	p.awaitAvailable(t, metav1.ConditionFalse, fleet.ReasonTunnelNotConnected, second.URL)
	set(addonv1beta1.ProxyConfig{HTTPSProxy: second.URL, CABundle: second.CA()})
	connected()
	if second.Connections() == 0 {
		t.Error("the tunnel does not go through the other proxy")
	}
	first.Refuse(http.StatusForbidden)
	first.Cut()
	set(addonv1beta1.ProxyConfig{HTTPSProxy: "socks5://" + strings.TrimPrefix(second.URL, "https://")})
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionManifestApplied)
		if cond == nil || cond.Status != metav1.ConditionFalse || !strings.Contains(cond.Message, "proxyConfig.httpsProxy is not the URL") {
			return fmt.Errorf("a configuration that cannot be used: %+v", cond)
		}
		return nil
	})
	connected() // as before
	set(addonv1beta1.ProxyConfig{HTTPSProxy: second.URL, CABundle: second.CA(), NoProxy: strings.Split(unreachable, ":")[0]})
	p.awaitAvailable(t, metav1.ConditionFalse, fleet.ReasonTunnelNotConnected, "hub.invalid")
	before := way.Connections()
	set(addonv1beta1.ProxyConfig{})
	connected()
	if way.Connections() == before {
		t.Error("without a configuration, the tunnel does not go the way of everything else")
	}
	if p.agent.Pid() != pid {
		t.Error("the agent has started again")
	}
}
