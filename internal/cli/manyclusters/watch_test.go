package manyclusters

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// CA-02: who watches a cluster that does not know any more what has changed is notified once that all rows come again, however many pages
// they have.
func TestWatchListsAnew(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	fake.Connect("c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := r.URL.Query()
		switch {
		case query.Has("watch"):
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
		case query.Get("continue") == "":
			fmt.Fprint(w, `{"kind":"Table","metadata":{"resourceVersion":"7","continue":"more"},"rows":[{"cells":["a"]}]}`)
		default:
			fmt.Fprint(w, `{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[{"cells":["b"]}]}`)
		}
	}))
	cluster, err := clusterapi.Of(t.Context(), fake.Client(t), "c1")
	if err != nil {
		t.Fatal(err)
	}
	pods := Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	enough := errors.New("both pages are here")
	var seen []string
	err = Watch(t.Context(), []*clusterapi.Cluster{cluster}, map[string]Page{"c1": {Resource: pods}},
		Query{Clock: clock.RealClock{}, Timeout: time.Minute}, WatchHandler{
			Write: func(Page) error {
				if seen = append(seen, "page"); len(seen) == 3 {
					return enough
				}
				return nil
			},
			Relisted: func(cluster string) { seen = append(seen, cluster) },
			Away:     func(f Failure) { seen = append(seen, "away: "+f.Message) },
			Failed:   func(f Failure) { seen = append(seen, "failed: "+f.Message) },
		})
	if !errors.Is(err, enough) || strings.Join(seen, " ") != "c1 page page" {
		t.Errorf("%v: %v", seen, err)
	}
}

// pausing is a clock that notes the pauses, which take no time.
type pausing struct {
	clock.RealClock
	lengths []time.Duration
	number  atomic.Int32
}

// NewTimer implements clock.Clock.
func (p *pausing) NewTimer(length time.Duration) clock.Timer {
	p.lengths = append(p.lengths, length)
	p.number.Add(1)
	return p.RealClock.NewTimer(0)
}

// CA-02: a resource of an API group that does not answer at first is watched once that does, without the pauses that came before.
func TestWatchAwaitsGroups(t *testing.T) {
	t.Parallel()
	const attempts = 6
	fake, pauses := fakehub.New(t), &pausing{}
	events := make(chan string, 1)
	events <- `{"type":"ADDED","object":{"kind":"Table","rows":[{"cells":["b"]}]}}`
	fake.Connect("c1", &fakehub.ClusterAPI{
		Collections: []fakehub.Collection{{
			GroupVersion: "example.com/v1", APIResource: metav1.APIResource{Name: "things", Kind: "Thing", Namespaced: true},
			Columns: []metav1.TableColumnDefinition{{Name: "Name"}},
			Objects: []fakehub.Object{{Namespace: "default", Name: "a", Cells: []any{"a"}}},
		}},
		Handlers: map[string]http.HandlerFunc{"/apis/example.com/v1": func(w http.ResponseWriter, r *http.Request) {
			if pauses.number.Load() < attempts {
				fakehub.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no endpoints")(w, r)
				return
			}
			fakehub.JSON(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1",`+
				`"resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list"]}]}`)(w, r)
		}},
		Watch: map[string]chan string{"/apis/example.com/v1/things": events},
	})
	cluster, err := clusterapi.Of(t.Context(), fake.Client(t), "c1")
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("the event is here")
	var seen []string
	err = Watch(t.Context(), []*clusterapi.Cluster{cluster}, nil, Query{Resource: "things", Clock: pauses, Timeout: time.Minute}, WatchHandler{
		Write: func(Page) error {
			if seen = append(seen, "page"); len(seen) == 5 {
				return enough
			}
			return nil
		},
		Relisted: func(string) { seen = append(seen, "relisted") },
		Away:     func(Failure) { seen = append(seen, "away") },
		Back:     func(string) { seen = append(seen, "back") },
		Failed:   func(f Failure) { seen = append(seen, "failed: "+f.Message) },
	})
	if !errors.Is(err, enough) || strings.Join(seen, " ") != "away relisted page back page" {
		t.Fatalf("%v: %v", err, seen)
	}
	if got := pauses.lengths; len(got) <= attempts || got[attempts-1] < time.Second || got[attempts] > 100*time.Millisecond {
		t.Errorf("pauses %v", got)
	}
}
