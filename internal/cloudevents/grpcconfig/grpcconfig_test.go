package grpcconfig_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
)

// CE-09: the keys are those of the GRPCConfig of Open Cluster Management, and data is base64.
func TestParse(t *testing.T) {
	t.Parallel()
	got, err := grpcconfig.Parse([]byte(`
url: hub.example.com:8090
tokenFile: /spoke/token
caData: Y2E=
clientCertFile: /spoke/tls.crt
clientKeyFile: /spoke/tls.key
keepAliveConfig: {enable: true, time: 20s, timeout: 5s, permitWithoutStream: true}
serverHealthinessTimeout: 20s
another: key
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &grpcconfig.Config{
		URL: "hub.example.com:8090", TokenFile: "/spoke/token", CAData: []byte("ca"), ClientCertFile: "/spoke/tls.crt", ClientKeyFile: "/spoke/tls.key",
		KeepAlive: grpcconfig.KeepAlive{Enable: true, Time: &metav1.Duration{Duration: 20 * time.Second},
			Timeout: &metav1.Duration{Duration: 5 * time.Second}, PermitWithoutStream: true},
		ServerHealthinessTimeout: &metav1.Duration{Duration: 20 * time.Second},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// CE-09: what cannot work is said, with the key.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"[":                               "not the configuration",
		"{}":                              `url: "" is not the HOST:PORT`,
		"url: https://hub.example.com":    `url: "https://hub.example.com" is not`,
		"url: hub.example.com":            "url:",
		"url: :8090":                      "url:",
		"{url: 'a:1', token: b}":          "neither caData nor caFile",
		"{url: 'a:1', tokenFile: b}":      "neither caData nor caFile",
		"{url: 'a:1', clientCertFile: b}": "needs both",
		"{url: 'a:1', caFile: c, token: b, tokenFile: d}":             "both set",
		"{url: 'a:1', keepAliveConfig: {enable: true, time: 5s}}":     "keepAliveConfig.time is 5s",
		"{url: 'a:1', keepAliveConfig: {enable: true, timeout: -1s}}": "keepAliveConfig.timeout is -1s",
		"{url: 'a:1', serverHealthinessTimeout: 0s}":                  "serverHealthinessTimeout is 0s",
	} {
		if _, err := grpcconfig.Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %s", content, err, want)
		}
	}
}

// What is written can be read again.
func TestMarshal(t *testing.T) {
	t.Parallel()
	config := &grpcconfig.Config{URL: "[2001:db8::1]:8090", Token: "secret", CAData: []byte("a certificate")}
	content, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := grpcconfig.Parse(content); err != nil || !reflect.DeepEqual(got, config) {
		t.Errorf("%s is %+v: %v", content, got, err)
	}
	if _, err := (&grpcconfig.Config{}).Marshal(); err == nil {
		t.Error("a configuration that cannot work was written")
	}
}

// Files are keys of the Secret, and nothing else is read.
func TestInline(t *testing.T) {
	t.Parallel()
	config := &grpcconfig.Config{URL: "a:1", CAFile: "ca.crt", ClientCertFile: "/spoke/hub-kubeconfig/tls.crt", ClientKeyFile: "tls.key"}
	files := map[string][]byte{"ca.crt": []byte("1"), "tls.crt": []byte("2"), "tls.key": []byte("3")}
	if err := config.Inline(files); err != nil {
		t.Fatal(err)
	}
	want := &grpcconfig.Config{URL: "a:1", CAData: []byte("1"), ClientCertData: []byte("2"), ClientKeyData: []byte("3")}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("got %+v", config)
	}
	other := &grpcconfig.Config{URL: "a:1", TokenFile: "/etc/hostname"}
	if err := other.Inline(files); err == nil || !strings.Contains(err.Error(), "/etc/hostname, which is no key") {
		t.Errorf("error %v", err)
	}
}
