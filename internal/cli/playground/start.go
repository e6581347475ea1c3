package playground

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// startHub starts the hub, and returns when it is ready.
func (u *up) startHub(ctx context.Context, port int) error {
	defer close(u.hubStarted)
	program, err := u.home.hub().program(port)
	if err != nil {
		return err
	}
	u.report.Wait("hub", "starting")
	process, started, err := u.home.Processes().Start(program)
	if err != nil {
		return err
	}
	hub, err := awaitServer(ctx, process, u.home.hub().kubeconfig(), (*hubapi.Hub).Ready)
	if err != nil {
		return err
	}
	if err := u.publish(hubapi.PlaygroundContext, u.home.hub().kubeconfig()); err != nil {
		return err
	}
	admin, err := loadSelfContained(u.home.hub().kubeconfig())
	if err != nil {
		return err
	}
	u.hub, u.hubProcess = hub, process
	u.invitation = hubapi.Invitation{Server: hub.Server}
	u.trust = hubapi.Trust{CA: admin.Clusters[admin.Contexts[admin.CurrentContext].Cluster].CertificateAuthorityData}
	u.report.Done("hub", stateOf(started, "ready"))
	return nil
}

// startJoined starts the agent of a cluster that is not of the playground again. Whether its hub accepts it is not waited for.
func (u *up) startJoined(joined Member) error {
	program, err := u.home.Agent(joined).Program()
	if err != nil {
		return err
	}
	_, started, err := u.home.Processes().Start(program)
	if err == nil {
		u.report.Done(joined.Name, stateOf(started, "the agent runs"))
	}
	return err
}

func (u *up) publish(name, kubeconfig string) error {
	u.publishing.Lock()
	defer u.publishing.Unlock()
	return u.home.publish(name, kubeconfig, u.report)
}

// awaitServer returns when a probe of the API server that the process runs succeeds.
func awaitServer(ctx context.Context, process *Process, kubeconfig string,
	probe func(*hubapi.Hub, context.Context) error) (*hubapi.Hub, error) {
	var server *hubapi.Hub
	last := errors.New("it has not answered yet")
	ctx, release := cancelOnExit(ctx, process)
	defer release()
	err := wait.PollUntilContextCancel(ctx, readyPollInterval, true, func(context.Context) (bool, error) {
		probing, cancel := context.WithTimeout(ctx, readyRequestTimeout)
		defer cancel()
		if _, err := os.Stat(kubeconfig); err != nil {
			return false, nil
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			server, err = hubapi.New(config)
		}
		if err == nil {
			err = probe(server, probing)
		}
		if ctx.Err() == nil { // else the probe was cut short, and says nothing
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return server, nil
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s is not ready in time: %w\nIt goes on starting; its log is %s. Run the command again with a longer --timeout.",
			process.Name, last, process.Log)
	}
	return nil, context.Cause(ctx)
}

// cancelOnExit returns a context that ends when one of the processes does, with its exit error as the cause.
func cancelOnExit(ctx context.Context, processes ...*Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, process := range processes {
		go func() {
			if process.WaitExit(ctx) == nil {
				cancel(process.ExitError())
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// processExitOr returns that a process has ended, if one has, because that explains why a request failed; otherwise the error of the
// request.
func processExitOr(ctx context.Context, err error, processes ...*Process) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitNotice)
	defer cancel()
	for _, process := range processes {
		if process.WaitExit(ctx) == nil {
			return process.ExitError()
		}
	}
	return err
}

func stateOf(started bool, what string) string {
	if started {
		return what
	}
	return what + " (it ran already)"
}
