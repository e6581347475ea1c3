package install_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
)

// newHubToJoin is a hub that a cluster can join.
func newHubToJoin(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHub(t)
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	return h
}

// CA-15, CA-16: what is wrong with the flags is found before anything is sent to a server.
func TestJoinClusterBadInput(t *testing.T) {
	t.Parallel()
	for line, says := range map[string][]string{
		"--managed-cluster-kubeconfig k": {"of no use with --mode default", "--local"},
		"--mode hosted":                  {"--managed-cluster-kubeconfig is missing"},
		"--mode Hosted":                  {"--managed-cluster-kubeconfig is missing"},
		"--mode elsewhere":               {`"elsewhere"`, "default, hosted"},
		"--detach":                       {"--detach: useless without --local"},
		"--registration-auth awsirsa":    {`--hub-cluster-arn: "" is not the ARN`},
		"--registration-auth awsirsa --hub-cluster-arn " + hubARN:                     {`--managed-cluster-arn: "" is not the ARN`},
		"--registration-auth spiffe":                                                  {`"spiffe" is no driver; choose out of csr, grpc, awsirsa`},
		"--registration-auth grpc":                                                    {"--grpc-server is missing"},
		"--registration-auth grpc --grpc-server https://x":                            {`--grpc-server: "https://x" is not the HOST:PORT`},
		"--registration-auth grpc --grpc-server x":                                    {`--grpc-server: "x" is not the HOST:PORT`},
		"--registration-auth grpc --grpc-server x:1 --force-internal-endpoint-lookup": {"of no use with --registration-auth grpc"},
		"--grpc-server x:1":                                                           {"--grpc-server: useless without grpc in --registration-auth"},
		"--grpc-ca-file x":                                                            {"--grpc-ca-file: useless without grpc in --registration-auth"},
		"--local --managed-cluster-kubeconfig k --grpc-server x:1":                    {"--grpc-server: for agents in clusters"},
		"--managed-cluster-arn x":                                                     {"--managed-cluster-arn: useless without --registration-auth awsirsa"},
		"--klusterlet-annotation x":                                                   {"--klusterlet-annotation", "KEY=VALUE"},
		"--client-cert-expiration-seconds 60":                                         {"at least 600"},
		"--addon-token-expiration-seconds 700":                                        {"--addon-kubeclient-registration-auth token"},
		"--capi-cluster-name a/b":                                                     {"--capi-cluster-name: useless without --capi-import"},
		"--capi-kubeconfig k":                                                         {"--capi-kubeconfig: useless without --capi-import"},
		"--capi-import --capi-cluster-name b":                                         {`--capi-cluster-name: "b" is not NAMESPACE/NAME`},
		"--capi-import --mode hosted --managed-cluster-kubeconfig k":                  {"--capi-import: of no use with --mode hosted"},
		"--local --managed-cluster-kubeconfig k --capi-import":                        {"--capi-import: for agents in clusters"},
		"--force-internal-endpoint-lookup-managed":                                    {"useless without --mode hosted"},
		"--feature-gates Nonsense=true":                                               {`"Nonsense" is no feature gate`},
		"--local --managed-cluster-kubeconfig k --singleton":                          {"--singleton: for agents in clusters"},
		"--local --managed-cluster-kubeconfig k --image-registry x":                   {"--image-registry: for agents in clusters"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := []string{"join", "--hub-token", "t", "--hub-apiserver", "https://127.0.0.1:1", "--cluster-name", "c1"}
			clitest.Run(t.Context(), "", append(args, strings.Fields(line)...)...).Fails(t, says...)
		})
	}
}

// CA-16: with --capi-import, the agent is installed in the cluster of which Cluster API has made a kubeconfig.
func TestJoinByClusterAPI(t *testing.T) {
	t.Parallel()
	h, management, cluster := newHubToJoin(t), newCluster(t), newCluster(t)
	access, err := os.ReadFile(cluster.File)
	if err != nil {
		t.Fatal(err)
	}
	join := func(flags ...string) clitest.Result {
		return h.Run(t, "", append([]string{"join", "--dry-run", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1",
			"--ca-file", clitest.WriteCA(t, h), "--capi-import", "--capi-kubeconfig", management.File}, flags...)...)
	}
	join().Fails(t, "--capi-import: "+management.URL+" has no Secret c1/c1-kubeconfig", "the Cluster c1/c1")
	for _, path := range []string{"c1/secrets/c1-kubeconfig", "eu/secrets/blue-kubeconfig"} {
		management.Put(t, "/api/v1/namespaces/"+path, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			Data: map[string][]byte{"value": access}})
	}
	management.Put(t, "/api/v1/namespaces/eu/secrets/green-kubeconfig", &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		Data: map[string][]byte{"kubeconfig": access}})
	join("--capi-cluster-name", "eu/green").Fails(t, "has no key value")
	for _, flags := range [][]string{nil, {"--capi-cluster-name", "eu/blue"}} {
		before := len(cluster.Requests("GET"))
		got := join(flags...)
		got.Succeeds(t, "name: klusterlet")
		if len(cluster.Requests("GET")) == before {
			t.Errorf("%v: nothing is asked of the cluster", flags)
		}
	}
}

// CA-16, CA-17: the flags of join are values of the chart.
func TestJoinValues(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no other program is needed
	h, cluster, managed := newHubToJoin(t), newCluster(t), clitest.NewHub(t)
	join := func(flags ...string) clitest.Result {
		return cluster.Run(t, "", append([]string{"join", "--dry-run", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1",
			"--ca-file", clitest.WriteCA(t, h)}, flags...)...)
	}
	const spec, bootstrapSecret = "Klusterlet/klusterlet.spec.", "Secret/bootstrap-hub-kubeconfig.data.kubeconfig"
	got := join()
	got.Succeeds(t, "name: klusterlet")
	given := objectsOf(t, got)
	wantValues(t, given, map[string]string{
		spec + "deployOption.mode": "Default", spec + "namespace": "open-cluster-management-agent", spec + "clusterName": "c1",
		"Deployment/klusterlet.metadata.name": "klusterlet", spec + "externalServerURLs": "null",
		spec + "registrationConfiguration.clientCertExpirationSeconds": "31536000",
	})
	bootstrap := decodedAt(t, given, bootstrapSecret)
	for _, want := range []string{"token: t", "server: " + h.URL, "current-context: bootstrap", "namespace: default", "user: bootstrap", "cluster: hub"} {
		if !strings.Contains(bootstrap, want) {
			t.Errorf("%s is missing in the bootstrap kubeconfig:\n%s", want, bootstrap)
		}
	}
	for _, published := range []clitest.Hub{h, cluster, managed} {
		published.Put(t, "/api/v1/namespaces/kube-public/configmaps/cluster-info", &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
			Data: map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'https://inside-" +
				published.URL[len("https://"):] + "'}}]"},
		})
	}
	inside := func(h clitest.Hub) string { return "https://inside-" + h.URL[len("https://"):] }
	got = join("--singleton", "--force-internal-endpoint-lookup", "--klusterlet-annotation", "a=b", "--klusterlet-annotation",
		"agent.open-cluster-management.io/c=d", "--feature-gates", "ClusterProperty=true", "--addon-kubeclient-registration-auth", "token",
		"--addon-token-expiration-seconds", "700")
	got.Succeeds(t)
	given = objectsOf(t, got)
	wantValues(t, given, map[string]string{
		spec + "deployOption.mode": "Singleton", spec + "externalServerURLs": `[{"url":"` + inside(cluster) + `"}]`,
		spec + "registrationConfiguration.clusterAnnotations":                `{"agent.open-cluster-management.io/a":"b","agent.open-cluster-management.io/c":"d"}`,
		spec + "registrationConfiguration.addOnKubeClientRegistrationDriver": `{"authType":"token","token":{"expirationSeconds":700}}`,
	})
	if bootstrap := decodedAt(t, given, bootstrapSecret); !strings.Contains(bootstrap, "server: "+inside(h)) {
		t.Errorf("the agent is not told the address that the hub publishes:\n%s", bootstrap)
	}
	testJoinByGRPC(t, h, join)
	putOperator(t, cluster, "klusterlet", "r/x:v0.3.0", nil)
	got = join("--mode", "hosted", "--singleton", "--managed-cluster-kubeconfig", managed.File,
		"--force-internal-endpoint-lookup-managed")
	got.Succeeds(t, "name: external-managed-kubeconfig", "mode: SingletonHosted", "name: klusterlet-hosted-")
	// The operator, which does not run yet.
	wantValues(t, objectsOf(t, got), map[string]string{"Deployment/klusterlet.metadata.name": "klusterlet", "Klusterlet/klusterlet": "null"})
}

// testJoinByGRPC is about an agent that registers through the gRPC server: it has the token and the certificates of that.
func testJoinByGRPC(t *testing.T, h clitest.Hub, join func(...string) clitest.Result) {
	t.Helper()
	byGRPC := []string{"--registration-auth", "grpc", "--grpc-server", "grpc.example.com:443"}
	join(byGRPC...).Fails(t, "the hub has no ConfigMap open-cluster-management-hub/ca-bundle-configmap", "--grpc-ca-file FILE")
	bundle, _, err := certutil.GenerateSelfSignedCertKey("grpc.example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Put(t, "/api/v1/namespaces/open-cluster-management-hub/configmaps/ca-bundle-configmap", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "ca-bundle-configmap"},
		Data: map[string]string{"ca-bundle.crt": string(bundle)},
	})
	wantConfig := func(got clitest.Result, ca []byte) {
		t.Helper()
		got.Succeeds(t)
		given := objectsOf(t, got)
		wantValues(t, given, map[string]string{"Klusterlet/klusterlet.spec.registrationConfiguration.registrationDriver": `{"authType":"grpc"}`})
		data, _ := given["Secret/bootstrap-hub-kubeconfig"].(map[string]any)["data"].(map[string]any)
		content, _ := data["config.yaml"].(string)
		decoded, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			t.Fatal(err)
		}
		config, err := grpcconfig.Parse(decoded)
		if err != nil || config.URL != "grpc.example.com:443" || config.Token != "t" || !bytes.Equal(config.CAData, ca) {
			t.Errorf("config.yaml is %+v: %v", config, err)
		}
	}
	wantConfig(join(byGRPC...), bundle)
	file := clitest.WriteCA(t, h)
	own, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wantConfig(join(append(byGRPC, "--grpc-ca-file", file)...), own)
	join(append(byGRPC, "--grpc-ca-file", "/no/such/file")...).Fails(t, "--grpc-ca-file", "/no/such/file")
}

// CA-17: without a pin, the kubeconfig of the user vouches for a hub that is one of its clusters, and nothing else does in a script.
func TestJoinKnownHub(t *testing.T) {
	t.Parallel()
	h, stranger := newHubToJoin(t), newHubToJoin(t)
	join := func(kubeconfig string, hub clitest.Hub) clitest.Result {
		return clitest.Run(t.Context(), "", "--kubeconfig", kubeconfig, "join", "--dry-run", "--hub-token", "t", "--hub-apiserver", hub.URL, "--cluster-name", "c1")
	}
	for path, answer := range map[string]string{
		"GET /version": `{"gitVersion":"v1.30.0"}`, "GET /apis/apps/v1": `{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`,
	} {
		h.Handle(path, fakehub.JSON(answer))
	}
	got := join(h.File, h) // the hub is the cluster that joins, too
	got.Succeeds(t, "kind: Deployment")
	if !strings.Contains(got.ErrOut, "verified with the certificate authority of cluster hub in your kubeconfig") {
		t.Errorf("it does not say how the hub is verified: %s", got.ErrOut)
	}
	elsewhere := newCluster(t) // whose authority signed the certificate of h, too
	h.Put(t, "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
		Data: map[string]string{"ca.crt": string(h.CA())},
	})
	got = join(elsewhere.File, h)
	if got.Code != 0 || !strings.Contains(got.ErrOut, "verified with the certificate authority of cluster hub") {
		t.Errorf("a hub with the certificate authority of a known cluster: %+v", got)
	}
	stranger.Put(t, "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
		Data: map[string]string{"ca.crt": otherCA(t)},
	})
	join(h.File, stranger).Fails(t, "cannot be verified", "--ca-cert-hash", "--trust-on-first-use")
	for _, request := range stranger.Requests("GET") {
		if request.Authorization != "" {
			t.Errorf("the token was sent to a server that is not verified: %+v", request)
		}
	}
}

// otherCA is a certificate authority that signed nothing.
func otherCA(t *testing.T) string {
	t.Helper()
	certificate, _, err := certutil.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(certificate)
}
