// Package agent is what runs for each managed cluster, in it or outside of it: it registers the cluster with a hub, keeps the hub
// informed of it, and makes it be what the hub's ManifestWorks say.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/agent/registration/bootstrap"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/hubreport"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// Parts of an agent, which run in one process or in one each.
type Parts struct{ Registration, Work bool }

// Agent is one cluster's agent.
type Agent struct {
	*Options
	parts         Parts
	clock         clock.WithTicker
	identity      identity.Identity
	managed       *rest.Config
	management    *rest.Config       // of the cluster that holds the Secret
	files         *filewatch.Watcher // TerminateOnFiles
	access        *hubaccess.Access  // how the hub is reached
	store         *hubkubeconfig.Store
	clientConfigs []clusterv1.ClientConfig
	bootstrap     *bootstrap.Bootstrap // of the registration part
	record        clientcert.Recorder
	report        *hubreport.Report     // of the registration part, for an operator; nil if there is none
	hubHash       string                // of the hub that it works with
	lease         *coordinationv1.Lease // as that hub had it when the agent connected; nil if that did not read it
	working       atWork
}

const (
	firstRestart = time.Second
	lastRestart  = 30 * time.Second
)

// restartBackoff has the delays before something that failed is started again. They start over once it has run for longer than lastRestart.
func restartBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: firstRestart, Factor: 2, Steps: 16, Cap: lastRestart}
}

// Run runs the parts of an agent until the context ends. It fails on what only an administrator can correct: invalid options,
// or a managed cluster that refuses what the agent needs. After failures of the hub, or of connections, it tries again.
func Run(ctx context.Context, o *Options, parts Parts) error {
	a, err := newAgent(o, parts)
	if err != nil {
		return err
	}
	endpoints, err := a.endpoints()
	if err != nil {
		return err
	}
	o.log(log.FromContext(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() error { return endpoints.Start(bothCtx) })
	if len(o.TerminateOnFiles) > 0 {
		both.Go(func() error {
			a.files.Run(bothCtx, func() {
				log.FromContext(bothCtx).Info("A file changed, which ends the agent; it has to be restarted", "files", o.TerminateOnFiles)
				stop()
			})
			return nil
		})
	}
	both.Go(func() error {
		defer stop()
		return endedWell(bothCtx, a.asLeader(bothCtx, a.work))
	})
	return both.Wait()
}

// work prepares the managed cluster, registers with the hub, and then serves it until the context ends.
func (a *Agent) work(ctx context.Context) error {
	if err := a.identify(ctx); err != nil {
		return err
	}
	var err error
	if a.record, err = a.newRecorder(ctx); err != nil {
		return err
	}
	a.store.Record = a.record
	if a.report, err = a.newHubReport(); err != nil {
		return err
	}
	a.bootstrap = a.newBootstrap()
	prepare, prepareCtx := errgroup.WithContext(ctx)
	prepare.Go(func() error { return a.installCRDs(prepareCtx) })
	prepare.Go(func() error { return a.ensureCredential(prepareCtx) })
	if err := prepare.Wait(); err != nil {
		return err
	}
	backoff := restartBackoff()
	for {
		began := a.clock.Now()
		err := a.serve(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an agent ends with its context
		}
		if a.clock.Since(began) > lastRestart {
			backoff = restartBackoff()
		}
		if !a.isIntended(ctx, err) {
			delay := backoff.Step()
			log.FromContext(ctx).Error(err, "The connection to the hub ended and is begun again", "after", delay.String())
			if !a.sleep(ctx, delay) {
				return nil
			}
		}
		if err := a.ensureCredential(ctx); err != nil {
			return err
		}
	}
}

// isIntended reports whether the agent ended the connection to the hub itself, to start another.
func (a *Agent) isIntended(ctx context.Context, err error) bool {
	var lost *monitor.LostError
	var changed *bootstrap.ChangedError
	switch {
	case errors.Is(err, errHubKubeconfigChanged), errors.As(err, &changed):
	case errors.As(err, &lost):
		a.bootstrap.Leave(lost.Reason == monitor.Refused)
	default:
		return false
	}
	log.FromContext(ctx).Info("The agent connects to the hub again", "reason", err.Error())
	return true
}

// sleep reports false if the context ends first.
func (a *Agent) sleep(ctx context.Context, d time.Duration) bool {
	timer := a.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// endedWell is nil if it was the context that ended the agent.
func endedWell(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // what failed did so because the context ended
	}
	return err
}

func newAgent(o *Options, parts Parts) (*Agent, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := o.Validate(parts); err != nil {
		return nil, err
	}
	// Before any of them is read.
	files := filewatch.New(func() []string { return o.TerminateOnFiles })
	managed, err := managedConfig(o)
	if err != nil {
		return nil, err
	}
	a := &Agent{Options: o, parts: parts, clock: clock.RealClock{}, managed: managed, files: files}
	if a.management, err = managementConfig(o, managed); err != nil {
		return nil, err
	}
	if a.access, err = o.access(parts); err != nil {
		return nil, err
	}
	if a.store, err = newStore(o, a.access, a.management); err != nil {
		return nil, err
	}
	return a, a.readAddresses()
}

// readAddresses fills in how users of the hub reach the cluster.
func (a *Agent) readAddresses() error {
	loaded := rest.CopyConfig(a.managed) // the agent's own reloads its files when they change
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return fmt.Errorf("--spoke-kubeconfig: %w", err)
	}
	for _, u := range a.SpokeExternalServerURLs {
		bundle := loaded.CAData
		if file, named := a.SpokeExternalServerCAFiles[u]; named {
			var err error
			if bundle, err = os.ReadFile(file); err != nil {
				return fmt.Errorf("--spoke-external-server-ca-files: %w", err)
			}
		}
		a.clientConfigs = append(a.clientConfigs, clusterv1.ClientConfig{URL: u, CABundle: bundle})
	}
	return nil
}
