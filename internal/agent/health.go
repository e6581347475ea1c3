package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/internal/secureserving"
)

// hubKubeconfigCheck is the name of the health check about the hub credential.
const hubKubeconfigCheck = "hub-kube-config"

// endpointGrace is how long a request in flight may take when the agent stops.
const endpointGrace = time.Second

// noEndpoint is the address of an endpoint that is not wanted.
const noEndpoint = secureserving.None

// atWork reports whether the controllers run, with a credential for the hub.
type atWork struct{ atomic.Bool }

// Start is called by a manager when its caches are filled.
func (w *atWork) Start(ctx context.Context) error {
	w.Store(true)
	defer w.Store(false)
	<-ctx.Done()
	return nil
}

// endpoints serves health, metrics and profiles from the start of the process: an agent that waits to be accepted is alive.
func (a *Agent) endpoints() (manager.Runnable, error) {
	alive := map[string]healthz.Checker{"ping": healthz.Ping, hubKubeconfigCheck: a.checkAlive}
	ready := map[string]healthz.Checker{"ping": healthz.Ping, hubKubeconfigCheck: a.checkReady}
	health, profiles := http.NewServeMux(), http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": alive, "/readyz": ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		health.Handle(path, handler)
		health.Handle(path+"/", handler)
	}
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
	var all runnables
	for _, endpoint := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"--health-probe-bind-address", a.HealthProbeBindAddress, health},
		{"--pprof-bind-address", a.PprofBindAddress, profiles},
	} {
		if endpoint.address == noEndpoint {
			continue
		}
		listener, err := net.Listen("tcp", endpoint.address)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w; choose another, or 0 for none", endpoint.flag, endpoint.address, err)
		}
		all = append(all, &manager.Server{
			Name: endpoint.flag, Listener: listener, ShutdownTimeout: ptr.To(endpointGrace),
			Server: &http.Server{Handler: endpoint.handler, ReadHeaderTimeout: 10 * time.Second},
		})
	}
	if a.ListenAddress != noEndpoint {
		bounds, err := a.TLS.Apply()
		if err != nil {
			return nil, err
		}
		server, err := secureserving.New(secureserving.Options{
			Address: a.ListenAddress, Health: alive, Ready: ready, API: a.management, TLS: bounds,
		})
		if err != nil {
			return nil, err
		}
		all = append(all, server)
	}
	metrics, err := metricsserver.NewServer(metricsserver.Options{BindAddress: a.MetricsBindAddress}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	if metrics != nil {
		all = append(all, manager.RunnableFunc(func(ctx context.Context) error {
			if err := metrics.Start(ctx); err != nil {
				return fmt.Errorf("--metrics-bind-address %s: %w; choose another, or 0 for none", a.MetricsBindAddress, err)
			}
			return nil
		}))
	}
	return all, nil
}

// runnables run side by side.
type runnables []manager.Runnable

// Start returns when all of them have ended, with the first error.
func (r runnables) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range r {
		group.Go(func() error { return one.Start(ctx) })
	}
	return group.Wait()
}

// checkAlive fails if the agent goes on under a credential that has expired, which only a restart can end. An agent that
// waits for its credential is alive.
func (a *Agent) checkAlive(*http.Request) error {
	if !a.working.Load() {
		return nil
	}
	credential, err := a.store.Load()
	if err != nil || credential == nil {
		return err
	}
	return credential.Expired(a.clock.Now())
}

// checkReady fails until the controllers run.
func (a *Agent) checkReady(*http.Request) error {
	if !a.working.Load() {
		return errors.New("the agent has no access to the hub yet; if its cluster is not accepted there, accept it")
	}
	return nil
}
