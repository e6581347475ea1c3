package importer

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/operator/installer"
)

func configSecret(values string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "cluster-import-config"},
		Data: map[string][]byte{"values.yaml": []byte(values)}}
}

func field(t *testing.T, values map[string]any, path string) string {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(values, strings.Split(path, ".")...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(value)
}

// RG-48: render-auto has the agent join with a token of the bootstrap service account at the address that the hub publishes, from the
// image and with the password that the hub has.
func TestRenderAuto(t *testing.T) {
	t.Parallel()
	s := setUp(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management",
		Name: "open-cluster-management-image-pull-credentials"}, Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{}}`)}})
	s.c.AgentImage = "example.com/agent:v1"
	values, err := s.c.render(t.Context(), "rome")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"klusterlet.clusterName": "rome", "images.overrides.operatorImage": "example.com/agent:v1",
		"images.overrides.registrationImage": "example.com/agent:v1", "images.overrides.workImage": "example.com/agent:v1",
		"images.imageCredentials.createImageCredentials": "true", "images.imageCredentials.dockerConfigJson": `{"auths":{}}`,
	} {
		if got := field(t, values, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(field(t, values, "bootstrapHubKubeConfig")))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://hub.example.com:8443" || string(config.CAData) != "certificates" || config.BearerToken == "" {
		t.Errorf("the agent joins with %v", config)
	}
	if _, err := installer.Objects("klusterlet", values); err != nil {
		t.Error(err)
	}
}

// RG-48: without an image or a password, those are the chart's.
func TestRenderAutoAlone(t *testing.T) {
	t.Parallel()
	values, err := setUp(t).c.render(t.Context(), "rome")
	if err != nil {
		t.Fatal(err)
	}
	if images, ok := values["images"].(map[string]any); !ok || len(images) != 0 {
		t.Errorf("images are %v", values["images"])
	}
	if _, err := installer.Objects("klusterlet", values); err != nil {
		t.Error(err)
	}
}

// RG-48: the renderers are applied in their order, and the cluster is the one that is imported, whatever they say.
func TestRenderInOrder(t *testing.T) {
	t.Parallel()
	values := "klusterlet: {clusterName: paris, mode: Singleton}\nimages: {overrides: {operatorImage: mine}}\nbootstrapHubKubeConfig: mine\n"
	for order, want := range map[string][]string{
		"render-auto render-from-config-secret": {"mine", "mine", "theirs"},
		"render-from-config-secret render-auto": {"theirs", "theirs", "theirs"},
		"render-from-config-secret":             {"mine", "mine", "<nil>"},
	} {
		s := setUp(t, configSecret(values))
		s.c.AgentImage, s.c.Renderers = "theirs", strings.Fields(order)
		got, err := s.c.render(t.Context(), "rome")
		if err != nil {
			t.Fatal(err)
		}
		bootstrap := field(t, got, "bootstrapHubKubeConfig")
		if bootstrap != "mine" {
			bootstrap = "theirs"
		}
		if found := []string{bootstrap, field(t, got, "images.overrides.operatorImage"), field(t, got, "images.overrides.workImage")}; fmt.Sprint(found) !=
			fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", order, found, want)
		}
		if field(t, got, "klusterlet.clusterName") != "rome" || field(t, got, "klusterlet.mode") != "Singleton" {
			t.Errorf("%s: the Klusterlet is %v", order, got["klusterlet"])
		}
	}
}

// RG-48: what a renderer lacks is said, and nothing of what is in Secrets.
func TestRenderFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects []client.Object
		message string
	}{
		"no Secret": {nil, "get Secret rome/cluster-import-config"},
		"no key": {[]client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "cluster-import-config"}}},
			"secret rome/cluster-import-config has no key values.yaml"},
		"no YAML":   {[]client.Object{configSecret("a: [s3cr3t")}, "secret rome/cluster-import-config: values.yaml: it is not a YAML object"},
		"no object": {[]client.Object{configSecret("s3cr3t")}, "it is not a YAML object"},
	} {
		s := setUp(t, test.objects...)
		s.c.Renderers = []string{"render-from-config-secret"}
		_, err := s.c.render(t.Context(), "rome")
		if err == nil || !strings.Contains(err.Error(), "render-from-config-secret: "+test.message) && !strings.Contains(err.Error(), test.message) ||
			strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
