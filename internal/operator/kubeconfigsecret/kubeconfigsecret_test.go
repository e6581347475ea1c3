package kubeconfigsecret_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://hub.example.com:6443"%CLUSTER%}}]
users: [{name: u, user: {%USER%}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`

// CM-03: a kubeconfig may refer to keys of its Secret, and to nothing of the operator's pod.
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cluster, user string
		keys          map[string]string
		token, fails  string
	}{
		"token":                  {user: "token: t", token: "t"},
		"token file":             {user: "tokenFile: token", keys: map[string]string{"token": "t"}, token: "t"},
		"token file with a line": {user: "tokenFile: token", keys: map[string]string{"token": "t\n"}, token: "t"},
		"another file":           {user: "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token", fails: "which is no key of the Secret"},
		"certificate":            {user: "client-certificate: tls.crt, client-key: tls.key", keys: map[string]string{"tls.crt": "c", "tls.key": "k"}},
		"no key": {user: "client-certificate: tls.crt, client-key: tls.key", keys: map[string]string{"tls.crt": "c"},
			fails: "the file tls.key"},
		"authority":     {cluster: `, certificate-authority: ca.crt`, user: "token: t", keys: map[string]string{"ca.crt": "c"}, token: "t"},
		"its authority": {cluster: `, certificate-authority: /etc/ssl/ca.crt`, user: "token: t", fails: "the file /etc/ssl/ca.crt"},
		"proxy":         {cluster: `, proxy-url: "http://ann:s3cr3t@proxy:3128"`, user: "token: t", token: "t"},
		"broken proxy": {cluster: `, proxy-url: "http://ann:s3cr3t%ss@proxy:3128"`, user: "token: t",
			fails: `a proxy-url for cluster "c" that is no URL of a proxy; use one with http, https, socks5, such as`},
		"proxy of another kind": {cluster: `, proxy-url: "ftp://ann:s3cr3t@proxy"`, user: "token: t", fails: "is no URL of a proxy"},
		"proxy without a kind":  {cluster: `, proxy-url: "ann:s3cr3t@proxy:3128"`, user: "token: t", fails: "is no URL of a proxy"},
		"proxy without a host":  {cluster: `, proxy-url: "http://"`, user: "token: t", fails: "is no URL of a proxy"},
		"program": {user: "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}",
			fails: `runs a program to get a credential for user "u": exec sh; use a certificate or a token`},
		"plugin": {user: "auth-provider: {name: gcp}", fails: `for user "u": auth-provider gcp; use a certificate or a token`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := strings.NewReplacer("%CLUSTER%", test.cluster, "%USER%", test.user).Replace(kubeconfig)
			secret := &corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte(content)}}
			secret.Namespace, secret.Name = "n", "s"
			for key, value := range test.keys {
				secret.Data[key] = []byte(value)
			}
			config, err := kubeconfigsecret.Config(secret)
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Fatalf("error %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("a password is in %v", err)
			}
			if err == nil && (config.BearerToken != test.token || config.BearerTokenFile != "" || config.CAFile != "" || config.CertFile != "") {
				t.Errorf("%v", config)
			}
		})
	}
	if _, err := kubeconfigsecret.Config(&corev1.Secret{}); err == nil || !strings.Contains(err.Error(), "has no key kubeconfig") {
		t.Errorf("without a kubeconfig: %v", err)
	}
}
