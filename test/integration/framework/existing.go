package framework

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// trusted is whose clusters the hub in an existing cluster accepts by itself.
const trusted = "system:serviceaccount:default:trusted"

// HubInExistingCluster makes a hub of a sandbox cluster by what is in deploy/hub, with webhooks, and with all controllers but those of
// placements. It returns the cluster, and the process that serves the webhooks.
func HubInExistingCluster(t *testing.T) (cluster *env.Server, server *env.Process) {
	t.Helper()
	cluster = env.StartSandbox(t)
	c := cluster.Client(t)
	webhooks := Serving{Address: env.FreeAddress(t), CertDir: t.TempDir()}
	webhooks.MakeCertificate(t)
	for _, file := range []string{"rights.yaml", "clusterprofiles.yaml", "policies.yaml"} {
		Create(t, c, Deployed(t, file, func(content []byte) []byte { return content })...)
	}
	health := env.FreeAddress(t)
	server = env.NewWebhooks(t, KubeconfigOf(t, cluster, "registration-webhook-sa"), webhooks.Address, webhooks.CertDir,
		"--health-probe-bind-address", health)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	AwaitAnswer(t, "http://"+health+"/readyz", 200)
	Create(t, c, Deployed(t, "webhooks.yaml", webhooks.byURL)...)
	for _, crd := range crds.Hub() {
		webhooks.convertByURL(crd)
		Create(t, c, asUnstructured(t, crd))
	}
	awaitKinds(t, c)
	controllers := env.NewControllers(t, KubeconfigOf(t, cluster, "registration-controller-sa"), "--leader-election-namespace",
		fleet.NamespaceHub, "--controllers", "registration", "--feature-gates", "ClusterProfile=true,ManagedClusterAutoApproval=true",
		"--auto-approved-csr-users", trusted, "--health-probe-bind-address", "0")
	if err := controllers.Start(); err != nil {
		t.Fatal(err)
	}
	works := env.NewControllers(t, KubeconfigOf(t, cluster, "work-controller-sa"), "--leader-election-namespace", fleet.NamespaceHub,
		"--controllers", "work", "--health-probe-bind-address", "0")
	if err := works.Start(); err != nil {
		t.Fatal(err)
	}
	addOns := env.NewControllers(t, KubeconfigOf(t, cluster, "addon-manager-controller-sa"), "--leader-election-namespace", fleet.NamespaceHub,
		"--controllers", "addon", "--health-probe-bind-address", "0")
	if err := addOns.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range []*env.Process{server, controllers, works, addOns} {
			if strings.Contains(p.Log(), "forbidden") {
				t.Errorf("a right is missing in deploy/hub/rights.yaml, or a policy says too much:\n%s", p.Log())
			}
		}
	})
	return cluster, server
}

// Deployed is a file of deploy/hub, changed by the user who deploys it.
func Deployed(t *testing.T, name string, change func([]byte) []byte) (objects []client.Object) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "hub", name))
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(change(content)), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		objects = append(objects, object)
	}
}

// Serving is where a process of a hub serves, and with what certificate.
type Serving struct {
	Address, CertDir string
	certificate      []byte
}

// MakeCertificate makes the certificate.
func (s *Serving) MakeCertificate(t *testing.T) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.certificate = certificate
	env.ReplaceFile(t, filepath.Join(s.CertDir, "tls.crt"), certificate)
	env.ReplaceFile(t, filepath.Join(s.CertDir, "tls.key"), key)
}

var serviceWithPath = regexp.MustCompile(`service: {.* path: ([^,]*),.*}`)

// byURL is what docs/existing-cluster.md does for webhooks outside of the cluster.
func (s *Serving) byURL(configurations []byte) []byte {
	return serviceWithPath.ReplaceAll(configurations,
		[]byte("url: https://"+s.Address+"$1\n    caBundle: "+base64.StdEncoding.EncodeToString(s.certificate)))
}

func (s *Serving) convertByURL(crd *apiextensionsv1.CustomResourceDefinition) {
	if conversion := crd.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
		config := conversion.Webhook.ClientConfig
		conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://" + s.Address + *config.Service.Path),
			CABundle: s.certificate}
	}
}
