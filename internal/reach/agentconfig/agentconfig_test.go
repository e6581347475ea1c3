package agentconfig_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/reach/agentconfig"
)

func configOf(proxy addonv1beta1.ProxyConfig, variables ...addonv1beta1.CustomizedVariable) *addonv1beta1.AddOnDeploymentConfig {
	spec := addonv1beta1.AddOnDeploymentConfigSpec{ProxyConfig: proxy, CustomizedVariables: variables}
	return &addonv1beta1.AddOnDeploymentConfig{Spec: spec}
}

func domain(value string) addonv1beta1.CustomizedVariable {
	return addonv1beta1.CustomizedVariable{Name: "serviceDomain", Value: value}
}

// CP-13: later configurations override earlier ones, and the agent reads what the hub has written.
func TestConfig(t *testing.T) {
	t.Parallel()
	ca, _, err := cert.GenerateSelfSignedCertKey("proxy", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := agentconfig.Config{}
	proxy := addonv1beta1.ProxyConfig{HTTPSProxy: "https://u:p@proxy:3129", NoProxy: ".svc", CABundle: ca}
	for _, from := range []*addonv1beta1.AddOnDeploymentConfig{
		configOf(addonv1beta1.ProxyConfig{HTTPSProxy: "http://other"}, domain("other")), configOf(proxy, domain("cluster.local")),
		configOf(addonv1beta1.ProxyConfig{}, addonv1beta1.CustomizedVariable{Name: "other", Value: "x y"}),
	} {
		if err := c.Add(from); err != nil {
			t.Fatal(err)
		}
	}
	if want := (agentconfig.Config{Proxy: proxy, ServiceDomain: "cluster.local"}); !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if read, err := agentconfig.Decode(text); err != nil || !reflect.DeepEqual(read, c) {
		t.Errorf("read as %+v %v", read, err)
	}
	if text, err := (agentconfig.Config{}).Encode(); text != "" || err != nil {
		t.Errorf("nothing is written as %q %v", text, err)
	}
	if read, err := agentconfig.Decode(""); err != nil || !reflect.DeepEqual(read, agentconfig.Config{}) {
		t.Errorf("nothing is read as %+v %v", read, err)
	}
}

// CP-13: what cannot be used is refused, by its field and without what is secret.
func TestRefused(t *testing.T) {
	t.Parallel()
	for want, from := range map[string]*addonv1beta1.AddOnDeploymentConfig{
		"proxyConfig.httpsProxy is not": configOf(addonv1beta1.ProxyConfig{HTTPSProxy: "socks5://u:s3cr3t@proxy:1080"}),
		"proxyConfig.httpProxy is not":  configOf(addonv1beta1.ProxyConfig{HTTPProxy: "http://u:s3cr3t@:1:2"}),
		"proxyConfig.caBundle is not":   configOf(addonv1beta1.ProxyConfig{HTTPSProxy: "proxy:3128", CABundle: []byte("x")}),
		"proxyConfig.caBundle has":      configOf(addonv1beta1.ProxyConfig{HTTPSProxy: "proxy:3128", CABundle: make([]byte, 200<<10)}),
		`serviceDomain: "a b" is not`:   configOf(addonv1beta1.ProxyConfig{}, domain("a b")),
	} {
		c := agentconfig.Config{}
		if err := c.Add(from); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// CP-13: the proxy is that for the address of the hub, unless that needs none.
func TestProxyFor(t *testing.T) {
	t.Parallel()
	hub := &url.URL{Scheme: "https", Host: "hub.example.com:6443"}
	for _, test := range []struct {
		want  string
		proxy addonv1beta1.ProxyConfig
	}{
		{"", addonv1beta1.ProxyConfig{NoProxy: "x"}},
		{"direct", addonv1beta1.ProxyConfig{HTTPSProxy: "http://proxy:3128", NoProxy: "10.0.0.0/8,.example.com"}},
		{"direct", addonv1beta1.ProxyConfig{HTTPProxy: "http://proxy:3128"}}, // which is for others than a hub with TLS
		{"http://proxy:3128", addonv1beta1.ProxyConfig{HTTPSProxy: "proxy:3128", NoProxy: "example.org"}},
	} {
		got, set, err := agentconfig.Config{Proxy: test.proxy}.ProxyFor(hub)
		said := ""
		if set {
			said = "direct"
		}
		if got != nil {
			said = got.String()
		}
		if err != nil || said != test.want {
			t.Errorf("%+v: %q %v", test.proxy, said, err)
		}
	}
}
