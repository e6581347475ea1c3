package playground

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/freeport"
)

// DefaultClusters is how many clusters the first "up" makes without --clusters.
const DefaultClusters = 2

const (
	// readyPollInterval is how often a process is probed until it is ready: there is nothing to watch before it is.
	readyPollInterval = 25 * time.Millisecond
	// readyRequestTimeout is how long a single probe may take.
	readyRequestTimeout = 5 * time.Second
	// exitLag is how long a process may take to go after it was killed.
	exitLag = 100 * time.Millisecond
	// portRelease is how long the ports of processes that have ended may still be in use.
	portRelease = 2 * time.Second
	// exitNotice is how long after a failed request a process may turn out to have ended.
	exitNotice = 200 * time.Millisecond
)

// Reporter shows the person who waits what is being waited for, and what has been done.
type Reporter interface {
	Wait(subject, what string)
	Done(subject, what string)
	// Warn shows what blocks the subject, which is still waited for.
	Warn(subject, what string)
}

// up is one run of Home.Up: the hub, and what its clusters need of it.
type up struct {
	home   Home
	report Reporter

	publishing sync.Mutex
	hubStarted chan struct{} // closed when startHub has ended: hub and invitation are set then, unless it has failed
	hub        *hubapi.Hub
	hubProcess *Process
	invitation hubapi.Invitation
	trust      hubapi.Trust
}

// Up starts what does not run of a hub and of clusters, joins the clusters, and gives each a sample of work. It returns
// when all clusters are accepted, joined and available, and the sample is applied and available on each. 0 clusters means
// those there are, or DefaultClusters. What was there before keeps its identity.
func (h Home) Up(ctx context.Context, clusters int, report Reporter) error {
	if err := findPrograms(); err != nil { // before anything is written
		return err
	}
	unlock, err := h.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := h.Processes().awaitStopping(ctx, report); err != nil {
		return err
	}
	state, err := h.prepare(ctx, clusters)
	if err != nil {
		return err
	}
	for range state.processes() {
		var exit *exitError
		if err = h.start(ctx, state, report); !errors.As(err, &exit) || !exit.ranAlready {
			return err
		}
		report.Done(exit.name, "ended meanwhile, starting it again")
	}
	return err
}

// Plan is what Up would start, in a home as it is.
func (h Home) Plan(clusters int) ([]Program, error) {
	before, err := h.Load()
	if err != nil {
		return nil, err
	}
	state, err := before.plan(before.desiredClusters(clusters))
	if err != nil {
		return nil, err
	}
	var programs []Program
	var errs []error
	add := func(program Program, err error) {
		process, readErr := h.Processes().get(program.Name)
		errs = append(errs, err, readErr)
		if err == nil && readErr == nil && !process.Running() {
			programs = append(programs, program)
		}
	}
	add(h.hub().program(state.Hub.Port))
	for _, cluster := range state.Clusters {
		add(h.sandbox(cluster).program())
		add(h.Agent(h.sandbox(cluster).member()).Program())
	}
	for _, joined := range state.background() {
		add(h.Agent(joined).Program())
	}
	return programs, errors.Join(errs...)
}

// start starts what does not run and joins it all. It takes for running what was killed and is not gone yet, and fails with
// an exitError when it goes.
func (h Home) start(ctx context.Context, state State, report Reporter) error {
	u := &up{home: h, report: report, hubStarted: make(chan struct{})}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return u.startHub(ctx, state.Hub.Port) })
	for _, cluster := range state.Clusters {
		group.Go(func() error { return u.cluster(cluster).start(ctx) })
	}
	for _, joined := range state.background() {
		group.Go(func() error { return u.startJoined(joined) })
	}
	return group.Wait()
}

// awaitStopping gives processes that were killed a moment ago, or that an interrupted "down" is stopping, the time to be gone: until then
// they count as running.
func (p Processes) awaitStopping(ctx context.Context, report Reporter) error {
	running, err := p.running()
	if err != nil {
		return err
	}
	stopping := slices.DeleteFunc(slices.Clone(running), func(process *Process) bool { return process.StoppingSince == nil })
	if err := stopAll(ctx, stopping, report); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, exitLag)
	defer cancel()
	for _, process := range running {
		_ = process.WaitExit(ctx) // most do not end, which is well
	}
	return nil
}

// prepare decides what there will be and saves it before anything starts.
func (h Home) prepare(ctx context.Context, clusters int) (State, error) {
	before, err := h.Load()
	if err != nil {
		return before, err
	}
	state, err := before.plan(before.desiredClusters(clusters))
	if err != nil {
		return state, err
	}
	if err := h.hub().checkDataDir(); err != nil { // first: a copy has the ports of the original
		return state, err
	}
	state.Hub.Port = h.hub().port(state.Hub.Port)
	if err := h.Processes().checkPorts(ctx, state); err != nil {
		return state, err
	}
	return state, errors.Join(h.Save(state), h.hub().writeConfig(state.Hub.Port))
}

// checkPorts finds out early that another program took a port meanwhile. A process of ours that has just been killed lets go
// of its port a moment later.
func (p Processes) checkPorts(ctx context.Context, state State) error {
	ports := map[string]int{hubProcess: state.Hub.Port}
	for _, cluster := range state.Clusters {
		ports[sandboxProcess(cluster.Name)] = cluster.Port
	}
	ctx, cancel := context.WithTimeout(ctx, portRelease)
	defer cancel()
	for name, port := range ports {
		process, err := p.get(name)
		if err != nil {
			return err
		}
		if process.Running() {
			continue
		}
		var busy error
		if wait.PollUntilContextCancel(ctx, exitPollInterval, true, func(context.Context) (bool, error) {
			busy = freeport.Check(port)
			return busy == nil, nil
		}) != nil {
			return fmt.Errorf("port %d of %s is used by another process: %w\nStop that process (\"ss -ltnp\" or \"lsof -i :%d\" names it), "+
				"or start afresh with \"capstan down --purge\".", port, name, busy, port)
		}
	}
	return nil
}
