package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
)

// How long each part may take to stop. Together they are less than the half minute that Kubernetes gives a pod.
const (
	controllersTimeout = 10 * time.Second
	hooksTimeout       = 5 * time.Second
	serverTimeout      = 10 * time.Second
)

// part is what runs next to others until it is stopped or fails.
type part struct {
	stop context.CancelFunc
	done chan struct{}
	// err is how it ended, once done is closed.
	err error
}

func start(ctx context.Context, run func(context.Context) error) *part {
	ctx, stop := context.WithCancel(ctx)
	p := &part{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer stop()
		p.err = run(ctx)
	}()
	return p
}

// stopWithin stops the part and says whether it ended in time.
func (p *part) stopWithin(timeout time.Duration) bool {
	p.stop()
	select {
	case <-p.done:
		return true
	case <-time.After(timeout):
		return false
	}
}

// failure is the error of a part that has ended.
func (p *part) failure() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// serve runs everything until ctx ends or a part fails, and then stops it in order.
func (h *hub) serve(ctx context.Context) error {
	// They outlive ctx: controllers say goodbye to the API server, the API server to its storage.
	base := context.WithoutCancel(ctx)
	server, listening, err := h.startServer(base)
	if err != nil {
		return err
	}
	controllers := start(base, func(ctx context.Context) error {
		select {
		case <-listening:
			return h.work(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	failing := start(base, h.storage.fails)
	defer failing.stop()
	if err := awaitEnd(ctx, controllers, server, failing); err != nil {
		return err
	}
	return h.stop(base, controllers, server)
}

// awaitEnd returns when the controllers end, or are to. It fails if others cannot end in order any more.
func awaitEnd(ctx context.Context, controllers, server, storage *part) error {
	select {
	case <-ctx.Done():
		klog.FromContext(ctx).Info("Stopping")
		return nil
	case <-controllers.done:
		return nil
	case <-server.done:
		controllers.stop()
		return fmt.Errorf("the API server stopped: %w", orUnexpected(server.err))
	case <-storage.done:
		// Nothing that is in flight can end well any more.
		return orUnexpected(storage.err)
	}
}

// startServer runs the API server. listening is closed when it takes requests.
func (h *hub) startServer(ctx context.Context) (server *part, listening <-chan struct{}, err error) {
	open := make(chan struct{})
	err = h.server.GenericAPIServer.AddPostStartHook("hub-listening", func(genericapiserver.PostStartHookContext) error {
		close(open)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	prepared, err := h.server.PrepareRun()
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the API server: %w", err)
	}
	return start(ctx, prepared.Run), open, nil
}

// stop ends the controllers and then the API server, and reports what failed. What takes too long is left behind: the
// process is about to end, and loses nothing by it that was acknowledged.
func (h *hub) stop(ctx context.Context, controllers, server *part) error {
	logger := klog.FromContext(ctx)
	if !controllers.stopWithin(controllersTimeout) {
		logger.Info("Controllers are still busy; stopping without them", "after", controllersTimeout)
	}
	if !h.awaitStartHooks(ctx) {
		logger.Info("The API server is still starting; stopping without it", "after", hooksTimeout)
		return controllers.failure()
	}
	if !server.stopWithin(serverTimeout) {
		logger.Info("The API server still answers requests; stopping without it", "after", serverTimeout)
		return controllers.failure()
	}
	if err := controllers.failure(); err != nil {
		return err
	}
	if server.err != nil {
		return fmt.Errorf("stop the API server: %w", server.err)
	}
	return nil
}

// awaitStartHooks waits until the API server has started: one of its start hooks that is cut short ends the process
// with a dump of all it does.
func (h *hub) awaitStartHooks(ctx context.Context) bool {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, hooksTimeout, true, func(ctx context.Context) (bool, error) {
		code := 0
		h.client.Discovery().RESTClient().Get().AbsPath("/livez").Param("exclude", "etcd").Do(ctx).StatusCode(&code)
		return code == http.StatusOK, nil
	})
	return err == nil
}

func orUnexpected(err error) error {
	if err == nil {
		return errors.New("unexpectedly")
	}
	return err
}
