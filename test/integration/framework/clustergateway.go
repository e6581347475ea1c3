package framework

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
)

// GatewayNamespace is where a ClusterGateway finds the Secrets of clusters.
const GatewayNamespace = "open-cluster-management-credentials"

// ThroughGateway reaches a cluster by a kubeconfig of the hub whose server has the path of the gateway.
func ThroughGateway(t *testing.T, config *rest.Config, cluster string) kubernetes.Interface {
	t.Helper()
	to := rest.CopyConfig(config)
	to.Host += "/apis/" + gatewayv1alpha1.GroupVersion.String() + "/clustergateways/" + cluster + "/proxy"
	c, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// AccountOnCluster makes a service account without rights on the managed cluster, and returns its token and the CA of the cluster.
func AccountOnCluster(t *testing.T, name string) (token string, config *rest.Config) {
	t.Helper()
	config, err := Managed.Config()
	if err != nil {
		t.Fatal(err)
	}
	c := kubernetes.NewForConfigOrDie(config)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answer, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token, config
}

// GatewayServer is the namespace in which the chart of the ClusterGateway runs it.
const GatewayServer = "open-cluster-management-addon"

// StartGateway starts one with the rights of its chart.
func StartGateway(t *testing.T, existing *env.Server, address string, flags ...string) *env.Process {
	t.Helper()
	gateway := env.NewAggregatedAPI(t, "gateway", KubeconfigIn(t, existing, GatewayServer, "cluster-gateway"), address,
		append([]string{"--leader-election-namespace", GatewayServer}, flags...)...)
	StartChartProcess(t, gateway)
	return gateway
}

// StartChartProcess starts a process that has the rights that its chart gives it, of which none may be missing in the end.
func StartChartProcess(t *testing.T, process *env.Process) {
	t.Helper()
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(process.Log(), "forbidden") {
			t.Errorf("the chart lacks a right:\n%s", process.Log())
		}
	})
}

// ChartOutside is what a chart installs by default, but for the pods: the process is at an address outside of the cluster.
func ChartOutside(t *testing.T, chart, address string) (objects []client.Object) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "charts", "testdata", chart+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	file := regexp.MustCompile(`(?m)^# \S+\.yaml$`)
	manifests := file.ReplaceAll(content[file.FindIndex(content)[0]:], []byte("---")) // after NOTES.txt
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		switch object.GetKind() {
		case "", "Deployment", "NetworkPolicy":
			continue
		case "Service":
			object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "APIService":
			if err := unstructured.SetNestedField(object.Object, number, "spec", "service", "port"); err != nil {
				t.Fatal(err)
			}
		}
		objects = append(objects, object)
	}
}
