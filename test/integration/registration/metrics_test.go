package registration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

var documentedMetric = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

// occurring are the metrics that a hub has once something has happened.
var occurring = map[string]bool{
	"apiserver_flowcontrol_current_inqueue_requests": true, "apiserver_flowcontrol_rejected_requests_total": true,
	"scheduling_plugin_duration_seconds": true, "capstan_held_writes_total": true,
	"ocm_proxy_proxied_resource_requests_by_resource_total": true, "ocm_proxy_proxied_resource_requests_by_cluster_total": true,
	"ocm_proxy_proxied_resource_requests_duration_seconds": true,
}

// TestDocumentedMetrics sees to it that a hub has the metrics of docs/metrics.md, which the alert rules look at.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	client := clientOfHub(t)
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedMetric.FindAllStringSubmatch(string(page), -1)
	if len(documented) == 0 {
		t.Fatal("docs/metrics.md has no metrics")
	}
	env.Eventually(t, func(ctx context.Context) error {
		served, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for _, row := range documented {
			name := row[1]
			if strings.HasPrefix(name, "grpc_server_ce_") || strings.HasPrefix(name, "capstan_work_") {
				continue // the gRPC server has them, which is a process of its own, or the agents have
			}
			if !occurring[name] && !strings.Contains(string(served), "\n# TYPE "+name+" ") {
				return fmt.Errorf("docs/metrics.md has %s, which a hub does not serve", name)
			}
		}
		return nil
	})
}

// TestGarbageCollectionOnceReady: a hub collects garbage half as often until it is ready, and no longer.
func TestGarbageCollectionOnceReady(t *testing.T) {
	t.Parallel()
	served, err := clientOfHub(t).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = "\ngo_gc_gogc_percent 100\n"
	if !strings.Contains(string(served), want) {
		t.Errorf("a hub that is ready does not serve %q, but %q", want, regexp.MustCompile(`go_gc_gogc_percent \d+`).Find(served))
	}
}

func clientOfHub(t *testing.T) *kubernetes.Clientset {
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
