// Package agentconfig is what the AddOnDeploymentConfigs of the add-on cluster-proxy say about the agent of a cluster: the forward proxy
// that its tunnel goes through, and the domain of the services of its cluster. The hub configures the agent by an annotation of the
// ManagedClusterAddOn, as agents may read no AddOnDeploymentConfigs: pure.
package agentconfig

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// VariableServiceDomain is the customized variable with the domain of the services.
const VariableServiceDomain = "serviceDomain"

// maxCABundle is how long caBundle may be, in bytes: annotations of an object have 256 KiB together.
const maxCABundle = 128 << 10

// Config is for one agent. Its zero value says nothing, and the agent reaches the hub for tunnels as it does for everything else.
type Config struct {
	// Proxy is the forward proxy of tunnels; its zero value is none.
	Proxy addonv1beta1.ProxyConfig `json:"proxy,omitzero"`
	// ServiceDomain is that of the cluster, such as cluster.local, below which services are resolved; empty leaves that to the machine of the
	// agent.
	ServiceDomain string `json:"serviceDomain,omitempty"`
}

// Add overrides what the AddOnDeploymentConfig says otherwise. The error names the field.
func (c *Config) Add(from *addonv1beta1.AddOnDeploymentConfig) error {
	if proxy := from.Spec.ProxyConfig; proxy.HTTPProxy != "" || proxy.HTTPSProxy != "" {
		if err := checkProxy(proxy); err != nil {
			return fmt.Errorf("proxyConfig.%w", err)
		}
		c.Proxy = proxy
	}
	for _, variable := range from.Spec.CustomizedVariables {
		if variable.Name != VariableServiceDomain {
			continue
		}
		if problems := validation.IsDNS1123Subdomain(variable.Value); variable.Value != "" && len(problems) > 0 {
			return fmt.Errorf("customizedVariables: %s: %q is not a domain such as cluster.local: %s", VariableServiceDomain, variable.Value,
				strings.Join(problems, ", "))
		}
		c.ServiceDomain = variable.Value
	}
	return nil
}

func checkProxy(proxy addonv1beta1.ProxyConfig) error {
	for field, text := range map[string]string{"httpProxy": proxy.HTTPProxy, "httpsProxy": proxy.HTTPSProxy} {
		if text == "" {
			continue
		}
		// The text may have a password.
		if at, err := parseProxy(text); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
			return fmt.Errorf("%s is not the URL of an HTTP proxy; write it as http://HOST:PORT or https://HOST:PORT", field)
		}
	}
	if len(proxy.CABundle) == 0 {
		return nil
	}
	if len(proxy.CABundle) > maxCABundle {
		return fmt.Errorf("caBundle has %d bytes, and the limit is %d; leave the CAs out that do not sign the certificate of the proxy",
			len(proxy.CABundle), maxCABundle)
	}
	if _, err := cert.ParseCertsPEM(proxy.CABundle); err != nil {
		return fmt.Errorf("caBundle is not one or more certificates in PEM: %w", err)
	}
	return nil
}

// parseProxy reads a proxy as programs read HTTPS_PROXY: it may have no scheme, which is then http.
func parseProxy(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	return url.Parse(text)
}

// ProxyFor is the forward proxy to a hub; nil is a direct connection. It is not set if the configuration leaves that to others.
func (c Config) ProxyFor(hub *url.URL) (proxy *url.URL, set bool, err error) {
	if c.Proxy.HTTPProxy == "" && c.Proxy.HTTPSProxy == "" {
		return nil, false, nil
	}
	choose := &httpproxy.Config{HTTPProxy: c.Proxy.HTTPProxy, HTTPSProxy: c.Proxy.HTTPSProxy, NoProxy: c.Proxy.NoProxy}
	proxy, err = choose.ProxyFunc()(hub)
	return proxy, true, err
}

// Encode is what the annotation says; empty if that is nothing.
func (c Config) Encode() (string, error) {
	if content, err := json.Marshal(c); err != nil || string(content) != "{}" {
		return string(content), err
	}
	return "", nil
}

// Decode reads what Encode has written.
func Decode(text string) (c Config, err error) {
	if text == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, fmt.Errorf("read what the hub says about the tunnel: %w", err)
	}
	return c, nil
}
