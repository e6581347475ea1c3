package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/addon/lease"
)

// server is an API server with leases, or without.
type server struct {
	without bool

	mu     sync.Mutex
	leases map[string]*coordinationv1.Lease // by path
}

func newServer(t *testing.T, without bool) (*server, *rest.Config) {
	t.Helper()
	s := &server{without: without, leases: map[string]*coordinationv1.Lease{}}
	http := httptest.NewServer(s)
	t.Cleanup(http.Close)
	return s, &rest.Config{Host: http.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json",
		AcceptContentTypes: "application/json"}}
}

const group = "/apis/coordination.k8s.io/v1"

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, group)
	switch {
	case s.without || path == r.URL.Path:
		answer(w, http.StatusNotFound, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	case path == "":
		answer(w, http.StatusOK, metav1.APIResourceList{GroupVersion: "coordination.k8s.io/v1"})
	case r.Method == http.MethodGet && s.leases[path] == nil:
		answer(w, http.StatusNotFound, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, s.leases[path])
	default:
		l := &coordinationv1.Lease{}
		if err := json.NewDecoder(r.Body).Decode(l); err != nil {
			panic(err)
		}
		if r.Method == http.MethodPost {
			path += "/" + l.Name
		}
		s.leases[path] = l
		answer(w, http.StatusOK, l)
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

// renewed is when the lease at the path was renewed last.
func (s *server) renewed(path string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[path]; l != nil && *l.Spec.LeaseDurationSeconds == 15 {
		return l.Spec.RenewTime.Time
	}
	return time.Time{}
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func start(t *testing.T, cluster *rest.Config, o lease.Options) {
	t.Helper()
	u, err := lease.New(cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// AF-25, gap A1: the lease is renewed every 15 to 19 seconds, as long as all checks pass, and soon after they pass again.
func TestRenewal(t *testing.T) {
	t.Parallel()
	s, config := newServer(t, false)
	startTime := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakeClock(startTime)
	var sick atomic.Bool
	var checks atomic.Int32
	start(t, config, lease.Options{AddOn: "hello", Namespace: "ns", Clock: clock, Checks: []lease.Check{func(context.Context) error {
		checks.Add(1)
		if sick.Load() {
			return errors.New("sick")
		}
		return nil
	}}})
	const path = "/namespaces/ns/leases/hello"
	step := func(d time.Duration) {
		t.Helper()
		eventually(t, "it waits for nothing", clock.HasWaiters)
		clock.Step(d)
	}
	eventually(t, "the first renewal", func() bool { return s.renewed(path).Equal(startTime) })
	step(14 * time.Second)
	if !s.renewed(path).Equal(startTime) {
		t.Error("the lease was renewed within 14 seconds")
	}
	step(5 * time.Second)
	second := startTime.Add(19 * time.Second)
	eventually(t, "the second renewal", func() bool { return s.renewed(path).Equal(second) })

	sick.Store(true)
	before := checks.Load()
	step(19 * time.Second)
	eventually(t, "the check", func() bool { return checks.Load() == before+1 })
	step(2500 * time.Millisecond)
	eventually(t, "the next check", func() bool { return checks.Load() == before+2 })
	if !s.renewed(path).Equal(second) {
		t.Error("the lease was renewed though a check fails")
	}
	sick.Store(false)
	step(2500 * time.Millisecond)
	eventually(t, "the renewal after recovery", func() bool { return s.renewed(path).Equal(second.Add(24 * time.Second)) })
}

// AF-25: the lease is on the hub only if the cluster has no leases.
func TestHub(t *testing.T) {
	t.Parallel()
	for name, without := range map[string]bool{"with leases": false, "without leases": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, cluster := newServer(t, without)
			hub, config := newServer(t, false)
			start(t, cluster, lease.Options{AddOn: "hello", Namespace: "ns", Hub: config, Cluster: "c1"})
			where, path, other := own, "/namespaces/ns/leases/hello", hub
			if without {
				where, path, other = hub, "/namespaces/c1/leases/hello", own
			}
			eventually(t, "the renewal", func() bool { return !where.renewed(path).IsZero() })
			other.mu.Lock()
			defer other.mu.Unlock()
			if len(other.leases) > 0 {
				t.Errorf("the other one has %v", other.leases)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]lease.Options{
		"no add-on":           {Namespace: "ns"},
		"no namespace":        {AddOn: "hello"},
		"hub without cluster": {AddOn: "hello", Namespace: "ns", Hub: &rest.Config{}},
		"cluster without hub": {AddOn: "hello", Namespace: "ns", Cluster: "c1"},
		"hub without TLS":     {AddOn: "hello", Namespace: "ns", Hub: &rest.Config{Host: "http://hub", BearerToken: "t"}, Cluster: "c1"},
		"too often":           {AddOn: "hello", Namespace: "ns", Interval: time.Second - 1},
	} {
		if _, err := lease.New(&rest.Config{}, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
