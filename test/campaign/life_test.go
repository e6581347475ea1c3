package campaign

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
)

// joiner is the user whose clusters are accepted without a person.
const joiner = "joiner"

// hubOptions has all controllers run that need nothing but the API of a hub. Clusters that ask to join expire at once. Left out are those
// that need a broker or clusters to import, and the Lease of the hub itself: it is renewed all the time, so that no step would end. The
// authority of the gRPC server is kept in dir.
func hubOptions(dir string) (hub.Options, error) {
	gates := featuregates.Hub()
	for _, gate := range []string{"ClusterProfile", "GitOpsCluster", "SIGPlacementDecision", "ManagedServiceAccountEphemeralIdentity"} {
		if err := gates.Set(gate + "=true"); err != nil {
			return hub.Options{}, err
		}
	}
	grpc, err := grpcOptions(dir)
	if err != nil {
		return hub.Options{}, err
	}
	address := accessprovider.NewAddress()
	address.Publish("https://hub.example.com", nil)
	return hub.Options{
		Gates: gates, AutoApprovedUsers: []string{joiner}, PendingClusterExpiry: time.Nanosecond, GRPC: grpc, GatewayNamespace: "apps",
		BuiltInAddOns: []string{fleet.AddOnManagedServiceAccount, fleet.AddOnClusterProxy, fleet.AddOnClusterGateway},
		Access:        &accessprovider.Options{Address: address, Server: func(url, cluster string) string { return url + "/" + cluster }},
	}, nil
}

// grpcOptions are for agents that join by a gRPC server, which itself does not run.
func grpcOptions(dir string) (*hub.GRPCOptions, error) {
	signer, err := newAuthority()
	if err != nil {
		return nil, err
	}
	o := &hub.GRPCOptions{CAFile: filepath.Join(dir, "ca.crt"), KeyFile: filepath.Join(dir, "ca.key"), LongestValidity: time.Hour}
	o.Server, o.Users = fleet.ServiceAccountUser(fleet.NamespaceHub, fleet.ServiceAccountGRPCServer), []string{joiner}
	return o, errors.Join(os.WriteFile(o.CAFile, signer.certificate, 0o600), os.WriteFile(o.KeyFile, signer.key, 0o600))
}

// life is that of the hub's controllers from one start to one end. Nothing in the memory of the process outlives it but metrics.
type life struct {
	history *history
	ctx     context.Context
	end     context.CancelFunc
	// inFlight are the writes that are not answered.
	inFlight atomic.Int64
	ended    chan error
}

// begin starts the controllers as the program does.
func begin(config *rest.Config, o hub.Options, h *history) (*life, error) {
	l := &life{history: h, ended: make(chan error, 1)}
	l.ctx, l.end = context.WithCancel(context.Background())
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{l, next} })
	options := hub.ManagerOptions(o)
	options.Logger = newLogger()
	options.Metrics.BindAddress = "0"
	options.Controller.SkipNameValidation = ptr.To(true)
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		l.end()
		return nil, err
	}
	if err := hub.Register(manager, o); err != nil {
		l.end()
		return nil, err
	}
	go func() { l.ended <- manager.Start(l.ctx) }()
	return l, nil
}

// close ends a life that goes on, and returns when nothing of it runs any more.
func (l *life) close() error {
	l.end()
	err := <-l.ended
	l.ended <- err
	return err
}

// activity is what changes whenever the controllers do something.
type activity struct {
	written    int
	reconciled float64
	working    float64
}

// observe reads the metrics of controller-runtime. Workers take what is in a queue within microseconds: queues are empty when no worker has
// been active for a while. What is tried again has a wait of milliseconds before it. Metrics of the depth of queues would say less: the
// queue of a life that has ended stays as deep as it was.
func (l *life) observe() (activity, error) {
	a := activity{written: l.history.written(), working: float64(l.inFlight.Load())}
	families, err := metrics.Registry.Gather()
	if err != nil {
		return a, fmt.Errorf("read the metrics: %w", err)
	}
	for _, name := range []string{"controller_runtime_active_workers", "controller_runtime_reconcile_total"} {
		i := slices.IndexFunc(families, func(family *dto.MetricFamily) bool { return family.GetName() == name })
		if i < 0 {
			continue
		}
		for _, m := range families[i].GetMetric() {
			a.working += m.GetGauge().GetValue()
			a.reconciled += m.GetCounter().GetValue()
		}
	}
	return a, nil
}
