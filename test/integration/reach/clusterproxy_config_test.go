package reach

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
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-13: the tunnel goes through the forward proxy of the AddOnDeploymentConfig, and through another one as soon as that is changed. The
// agent knows the hub by an address that only proxies know.
func TestTunnelThroughProxy(t *testing.T) {
	t.Parallel()
	const name = "tunnel-proxy"
	way, first, second := framework.StartProxy(t, false, nil), framework.StartProxy(t, false, nil), framework.StartProxy(t, true, nil)
	p := &framework.Proxied{On: framework.Hub, API: api.Standalone, Name: name, Alice: "alice-" + name}
	p.Agent = env.NewAgent(t, framework.Hub, framework.Managed, name, "", "--namespace", framework.Namespace(t, framework.Managed.Client(t), name))
	framework.BehindProxy(t, p.Agent, way.URL, nil)
	if err := p.Agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
	pid := p.Agent.Pid()

	h := framework.Hub.Client(t)
	config := &addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tunnel"}}
	config.Spec.ProxyConfig = addonv1beta1.ProxyConfig{HTTPSProxy: first.URL, NoProxy: "localhost,.svc"}
	addOn := p.AddOn()
	addOn.Spec.Configs = []addonv1beta1.AddOnConfig{{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addondeploymentconfigs"},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: name, Name: "tunnel"}}}
	framework.Create(t, h, config, addOn)
	connected := func() {
		t.Helper()
		p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
		env.Eventually(t, func(context.Context) error {
			if code, answer := p.Send(t, p.Config(t, "admin", "system:masters"), http.MethodGet, "/version", nil, ""); code != http.StatusOK {
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
	p.AwaitAvailable(t, metav1.ConditionFalse, fleet.ReasonTunnelNotConnected, second.URL)
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
	set(addonv1beta1.ProxyConfig{HTTPSProxy: second.URL, CABundle: second.CA(), NoProxy: strings.Split(framework.Unreachable, ":")[0]})
	p.AwaitAvailable(t, metav1.ConditionFalse, fleet.ReasonTunnelNotConnected, "hub.invalid")
	before := way.Connections()
	set(addonv1beta1.ProxyConfig{})
	connected()
	if way.Connections() == before {
		t.Error("without a configuration, the tunnel does not go the way of everything else")
	}
	if p.Agent.Pid() != pid {
		t.Error("the agent has started again")
	}
}
