package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// A failure is reported when it has lasted; until then the API server is probed more often.
const (
	failureMustLast = 20 * time.Second
	probeAgain      = 5 * time.Second
	probeTimeout    = 5 * time.Second
)

// maxAnswer is as much of an answer as is read: enough for a version and for the reason of a failure.
const maxAnswer = 4 << 10

// Health is what a probe found.
type Health struct {
	// Condition is the Available condition that follows from it; without a type, nothing can be said yet.
	Condition metav1.Condition
	// Version is the API server's git version; empty if it did not say.
	Version string
}

// Prober probes the health of the managed cluster's API server at intervals.
type Prober struct {
	client *http.Client
	host   string
	period time.Duration
	clock  clock.Clock

	mu           sync.Mutex
	health       *Health
	failingSince time.Time
	changed      func()
}

// NewProber returns a Prober that probes every period.
func NewProber(config *rest.Config, period time.Duration, clk clock.Clock) (*Prober, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for health probes: %w", err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for health probes: %w", err)
	}
	return &Prober{client: client, host: strings.TrimSuffix(host.String(), "/"), period: period, clock: clk}, nil
}

// Source enqueues the requests whenever health has changed. It probes for as long as the controller runs.
func (p *Prober) Source(requests []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.mu.Lock()
		p.changed = func() {
			for _, r := range requests {
				queue.Add(r)
			}
		}
		p.mu.Unlock()
		go p.run(ctx)
		return nil
	})
}

func (p *Prober) run(ctx context.Context) {
	for {
		timer := p.clock.NewTimer(p.next())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			p.probe(ctx)
		}
	}
}

// next is when to probe again: soon, while a failure has not yet lasted long enough to be reported.
func (p *Prober) next() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failingSince.IsZero() {
		return p.period
	}
	return min(probeAgain, p.period)
}

// Health is the state to report. The first call probes, later ones return what the last probe found.
func (p *Prober) Health(ctx context.Context) Health {
	p.mu.Lock()
	cached := p.health
	p.mu.Unlock()
	if cached == nil {
		return p.probe(ctx)
	}
	return *cached
}

func (p *Prober) probe(ctx context.Context) Health {
	failure := p.queryHealth(ctx)
	found := Health{Condition: available(failure)}
	if failure == "" {
		found.Version = p.version(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case failure == "":
		p.failingSince = time.Time{}
	case p.failingSince.IsZero():
		p.failingSince = p.clock.Now()
	}
	if failure != "" && p.clock.Since(p.failingSince) < failureMustLast {
		if p.health == nil {
			p.health = &Health{}
		}
		return *p.health // the failure may pass
	}
	transitioned := p.health == nil || p.health.Condition.Status != found.Condition.Status || p.health.Version != found.Version
	p.health = &found
	if transitioned && p.changed != nil {
		p.changed()
	}
	return found
}

func available(failure string) metav1.Condition {
	if failure == "" {
		return metav1.Condition{
			Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue, Reason: fleet.ReasonManagedClusterAvailable,
			Message: "Managed cluster is available",
		}
	}
	return metav1.Condition{
		Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionFalse, Reason: fleet.ReasonManagedClusterKubeAPIServerUnavailable,
		Message: "The API server of the managed cluster is not available: " + failure,
	}
}

// queryHealth returns what is wrong, or nothing. Servers that do not serve /livez, or not to this agent, are probed at /healthz.
func (p *Prober) queryHealth(ctx context.Context) string {
	code, body, err := p.get(ctx, "/livez")
	if err == nil && (code == http.StatusNotFound || code == http.StatusForbidden) {
		code, body, err = p.get(ctx, "/healthz")
	}
	switch {
	case err != nil:
		return text.Stable(err.Error())
	case code != http.StatusOK:
		return fmt.Sprintf("status code %d: %s", code, body)
	}
	return ""
}

func (p *Prober) version(ctx context.Context) string {
	code, body, err := p.get(ctx, "/version")
	info := version.Info{}
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &info) != nil {
		return ""
	}
	return info.GitVersion
}

func (p *Prober) get(ctx context.Context, path string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.host+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode, body, err
}
