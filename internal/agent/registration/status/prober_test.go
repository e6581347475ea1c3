package status

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// apiServer answers probes as configured.
type apiServer struct {
	livez, healthz atomic.Int32
	*httptest.Server
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.livez.Store(http.StatusOK)
	s.healthz.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "livez says so", int(s.livez.Load())) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "healthz says so", int(s.healthz.Load())) })
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"gitVersion":"v1.37.1"}`)) })
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func newTestProber(t *testing.T, s *apiServer) (*Prober, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	p, err := NewProber(&rest.Config{Host: s.URL}, time.Minute, clk)
	if err != nil {
		t.Fatal(err)
	}
	return p, clk
}

// RG-23: what each answer means. RG-26: the version comes with it.
func TestProbe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		livez, healthz int32
		status         metav1.ConditionStatus
		reason         string
		message        string
	}{
		"well":                 {200, 500, metav1.ConditionTrue, "ManagedClusterAvailable", "available"},
		"no livez":             {404, 200, metav1.ConditionTrue, "ManagedClusterAvailable", "available"},
		"livez not for agents": {403, 200, metav1.ConditionTrue, "ManagedClusterAvailable", "available"},
		"failing":              {500, 200, metav1.ConditionFalse, "ManagedClusterKubeAPIServerUnavailable", "500: livez says so"},
		"no livez and failing": {404, 503, metav1.ConditionFalse, "ManagedClusterKubeAPIServerUnavailable", "503: healthz says so"},
	} {
		s := newAPIServer(t)
		s.livez.Store(test.livez)
		s.healthz.Store(test.healthz)
		p, clk := newTestProber(t, s)
		health := p.Health(t.Context())
		if test.status == metav1.ConditionFalse {
			if health.Condition.Type != "" || p.next() != 5*time.Second {
				t.Errorf("%s: a failure is reported at once, %+v, or asked about again after %s", name, health.Condition, p.next())
			}
			clk.Step(20 * time.Second)
			health = p.probe(t.Context())
		}
		c := health.Condition
		if c.Type != "ManagedClusterConditionAvailable" || c.Status != test.status || c.Reason != test.reason ||
			!strings.Contains(c.Message, test.message) {
			t.Errorf("%s: %+v", name, c)
		}
		if well := test.status == metav1.ConditionTrue; well != (health.Version == "v1.37.1") {
			t.Errorf("%s: version %q", name, health.Version)
		}
	}
}

// RG-23: a failure is reported when it has lasted for 20 s, and probed every 5 s until then; recovery at once.
func TestFailureMustLast(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	p, clk := newTestProber(t, s)
	changes := 0
	p.changed = func() { changes++ }
	p.Health(t.Context())
	changes = 0
	s.livez.Store(http.StatusInternalServerError)
	for _, step := range []struct {
		after time.Duration
		want  metav1.ConditionStatus
	}{{0, metav1.ConditionTrue}, {15 * time.Second, metav1.ConditionTrue}, {5 * time.Second, metav1.ConditionFalse}} {
		clk.Step(step.after)
		if got := p.probe(t.Context()).Condition.Status; got != step.want {
			t.Errorf("%s later: %s, want %s", step.after, got, step.want)
		}
		if p.next() != 5*time.Second {
			t.Errorf("a failing server is asked again after %s", p.next())
		}
	}
	s.livez.Store(http.StatusOK)
	if got := p.probe(t.Context()).Condition.Status; got != metav1.ConditionTrue || p.next() != time.Minute {
		t.Errorf("recovered: %s, asked again after %s", got, p.next())
	}
	if changes != 2 {
		t.Errorf("%d changes were told of, want the failure and the recovery", changes)
	}
}
