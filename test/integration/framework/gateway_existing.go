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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
)

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
