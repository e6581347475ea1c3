package manyclusters

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-02: an event that is larger than any object is not read, and ends the watch of its cluster.
func TestWatchBoundsEvents(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	fake.Connect("c1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Table","rows":[{"cells":[%q]}]}}`, strings.Repeat("x", 17<<20))
	}))
	cluster, err := clusterapi.Of(t.Context(), fake.Client(t), "c1")
	if err != nil {
		t.Fatal(err)
	}
	pods := Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	var failed []string
	last := map[string]Page{"c1": {Resource: pods}}
	err = Watch(t.Context(), []*clusterapi.Cluster{cluster}, last, Query{Clock: clock.RealClock{}}, WatchHandler{
		Write:  func(Page) error { return errors.New("the event is read") },
		Failed: func(f Failure) { failed = append(failed, f.Cluster+": "+f.Message) },
	})
	if err != nil || len(failed) != 1 || !strings.HasPrefix(failed[0], "c1: an event of the watch is larger than 16 MiB") {
		t.Errorf("%v, %v", failed, err)
	}
}
