package clustersecret_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

var certificate, key = func() (certificate, key []byte) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("c1", nil, nil)
	if err != nil {
		panic(err)
	}
	return certificate, key
}()

// of makes a Secret of labels and keys, given as NAME=VALUE; labels are those with a slash.
func of(values ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1", UID: "u", Labels: map[string]string{
		gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken"}, Annotations: map[string]string{}},
		Data: map[string][]byte{"endpoint": []byte("https://c1.example.com"), "ca.crt": certificate, "token": []byte("secret-token")}}
	for _, text := range values {
		name, value, _ := strings.Cut(text, "=")
		switch {
		case strings.HasPrefix(name, "@"):
			s.Annotations[name[1:]] = value
		case strings.Contains(name, "/"):
			s.Labels[name] = value
		case value == "":
			delete(s.Data, name)
		default:
			s.Data[name] = []byte(value)
		}
	}
	return s
}

const (
	credential = gatewayv1alpha1.LabelCredentialType + "="
	endpoint   = gatewayv1alpha1.LabelEndpointType + "="
)

func TestParse(t *testing.T) { // CG-01
	for _, test := range []struct {
		secret *corev1.Secret
		want   string
	}{
		{of(), "https://c1.example.com verified"},
		{of("endpoint=https://c1.example.com:6443/k8s/\n", "ca.crt=", "ca="+string(certificate)), "https://c1.example.com:6443/k8s verified"},
		{of("ca.crt="), "https://c1.example.com"},
		{of(endpoint+"Const", "proxy-url=socks5://p:1080"), "https://c1.example.com verified proxy socks5://p:1080"},
		{of(endpoint+"ClusterProxy", "endpoint=", "proxy-url=http://p"), "https://kubernetes.default.svc:443 verified tunnel"},
		{of(credential+"X509Certificate", "token=", "tls.crt="+string(certificate), "tls.key="+string(key)), "https://c1.example.com verified"},
		{of(credential+"Dynamic", `exec={"apiVersion":"client.authentication.k8s.io/v1","command":"aws","args":["eks"],"env":[{"name":"A","value":"B"}]}`),
			"https://c1.example.com verified exec aws"},
	} {
		c, err := clustersecret.Parse(test.secret)
		if err != nil {
			t.Error(err)
			continue
		}
		got := c.Endpoint.String()
		if !c.Insecure() {
			got += " verified"
		}
		if c.Proxy != nil {
			got += " proxy " + c.Proxy.String()
		}
		if c.Tunnel {
			got += " tunnel"
		}
		if c.Exec != nil {
			got += " exec " + c.Exec.Command
		}
		if got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestParseRefuses(t *testing.T) { // CG-01
	for _, test := range []struct {
		secret *corev1.Secret
		want   []string
	}{
		{of("endpoint=", "token="), []string{"key endpoint is missing; set it to the URL", "key token is missing"}},
		{of("endpoint=http://c1"), []string{`key endpoint is "http://c1"; set it to the URL of the API server, such as https://`}},
		{of("endpoint=https://u:hidden@c1"), []string{"key endpoint is"}},
		{of("endpoint=https://c1?a=b"), []string{"key endpoint is"}},
		{of("endpoint=://"), []string{"key endpoint is no URL"}},
		{of("proxy-url=ftp://u:hidden@p"), []string{"key proxy-url is no URL of a proxy; use one with http, https, socks5"}},
		{of("ca.crt=hidden"), []string{"key ca.crt has no certificate in PEM"}},
		{of(endpoint+"ClusterProxy", "ca.crt="), []string{"key ca.crt is missing; set it to the CA of the cluster"}},
		{of(endpoint + "Tunnel"), []string{`cluster-endpoint-type is "Tunnel"; use Const or ClusterProxy`}},
		{of(credential + "Basic"), []string{`cluster-credential-type is "Basic"; use ServiceAccountToken, X509Certificate or Dynamic`}},
		{of("token=hidden\nX-Header: y"), []string{"key token has more than one line"}},
		{of(credential+"X509Certificate", "tls.crt=hidden"), []string{"keys tls.crt and tls.key are no certificate with its private key"}},
		{of(credential+"Dynamic", "exec=hidden"), []string{"key exec is no configuration of a command in JSON"}},
		{of(credential+"Dynamic", "exec={}"), []string{"key exec is no configuration"}},
		{of("@" + gatewayv1alpha1.AnnotationProxyConfiguration + "=spec: {clientIdentityExchanger: {rules: [{name: r, type: Other, source: {user: a}}]}}"),
			[]string{"annotation cluster.core.oam.dev/cluster-gateway-proxy-configuration: spec.clientIdentityExchanger.rules[0] (r): type is"}},
	} {
		_, err := clustersecret.Parse(test.secret)
		if err == nil {
			t.Errorf("%q is taken", test.want)
			continue
		}
		for _, want := range append(test.want, "Secret ns/c1: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
		if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
}

// No change of what a Secret says goes unnoticed, and those of the health change nothing.
func TestVersion(t *testing.T) { // CG-02
	base := of()
	seen := []string{clustersecret.Version(base)}
	for _, other := range []*corev1.Secret{
		of("token=other"), of("ca.crt=other"), of("ca.crt=", "ca=another"), of("endpoint=https://other"), of("proxy-url=http://p"),
		of("tls.crt=a"), of("tls.key=a"), of("exec=a"), of(credential + "Dynamic"), of(endpoint + "ClusterProxy"),
		of("@" + gatewayv1alpha1.AnnotationProxyConfiguration + "=a"),
	} {
		version := clustersecret.Version(other)
		if slices.Contains(seen, version) {
			t.Errorf("%v has the version of another", other)
		}
		seen = append(seen, version)
	}
	if clustersecret.Version(of("@status.cluster.core.oam.dev/healthy=true")) != clustersecret.Version(base) {
		t.Error("the health makes another version")
	}
	if clustersecret.EndpointHash(of("token=other", "ca.crt=other")) != clustersecret.EndpointHash(base) {
		t.Error("another token is another place")
	}
	made := of()
	made.UID = "again"
	place := clustersecret.EndpointHash(base)
	if clustersecret.EndpointHash(made) == place || clustersecret.EndpointHash(of("endpoint=https://other")) == place {
		t.Error("two places are one")
	}
}

func TestGatewayShowsNoCredentials(t *testing.T) { // CG-01
	s := of("tls.key=hidden", "exec=hidden", "proxy-url=http://user:hidden@p", "endpoint=https://user:hidden@c1", "token=hidden",
		"@status.cluster.core.oam.dev/healthy=true", "@status.cluster.core.oam.dev/healthy-reason=fine", "@other/annotation=hidden")
	shown := clustersecret.Gateway(s)
	text, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hidden") {
		t.Errorf("%s", text)
	}
	if !shown.Status.Healthy || shown.Status.HealthyReason != "fine" || shown.Name != "c1" || !maps.Equal(shown.Labels, s.Labels) {
		t.Errorf("%s", text)
	}
}

// Whatever a Secret has, what is accepted leads to a cluster over TLS with one credential, and what is refused is not for its token.
func FuzzParse(f *testing.F) {
	f.Add("", "https://c1.example.com:6443/k8s/", "socks5://p:1080", "ServiceAccountToken", "", "")
	f.Add("ClusterProxy", "", "", "Dynamic", `{"command":"aws","args":["eks"],"env":[{"name":"A","value":"b"}]}`, "")
	f.Add("Const", "https://u:p@c1", "http://p", "X509Certificate", "", `{"spec":{"clientIdentityExchanger":{"rules":[]}}}`)
	f.Fuzz(func(t *testing.T, endpointType, address, proxy, credentialType, exec, rules string) {
		secret := of(endpoint+endpointType, "endpoint="+address, "proxy-url="+proxy, credential+credentialType,
			gatewayv1alpha1.KeyExec+"="+exec, "@"+gatewayv1alpha1.AnnotationProxyConfiguration+"="+rules)
		c, err := clustersecret.Parse(secret)
		if err != nil {
			if strings.Contains(err.Error(), "secret-token") {
				t.Errorf("the error has the token: %v", err)
			}
			return
		}
		if c.Endpoint.Scheme != "https" || c.Endpoint.Host == "" || c.Endpoint.User != nil || c.Insecure() {
			t.Errorf("it is at %s, insecure: %t", c.Endpoint, c.Insecure())
		}
		if (c.Token == "") == (c.Exec == nil) {
			t.Errorf("it has the token %q and the command %+v, want one of them", c.Token, c.Exec)
		}
	})
}
