package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
)

// grpcStartTimeout is how long the gRPC server may take to read from the API what it serves. It is less than the operator gives its pods.
const grpcStartTimeout = 2 * time.Minute

var errNotServing = errors.New("the gRPC server has not read from the API what it serves")

// grpcStart is the time until the gRPC server serves calls. The process is alive then, and not ready.
type grpcStart struct {
	over atomic.Bool
	// problem is the last one of reading; nil if there was none.
	problem atomic.Pointer[error]
}

// watchFailed is called by caches.
func (s *grpcStart) watchFailed(ctx context.Context, r *toolscache.Reflector, err error) {
	s.problem.Store(&err)
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

// ready is a check of health.
func (s *grpcStart) ready(*http.Request) error {
	if s.over.Load() {
		return nil
	}
	return s.obstacle()
}

func (s *grpcStart) obstacle() error {
	if problem := s.problem.Load(); problem != nil {
		return fmt.Errorf("%w: %w", errNotServing, *problem)
	}
	return errNotServing
}

// bound runs the process, and returns the cause if it does not serve in time. It does not wait for the end of it then: a manager whose
// caches do not sync never ends.
func (s *grpcStart) bound(ctx context.Context, run func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ended, late := make(chan error, 1), make(chan error, 1)
	timer := time.AfterFunc(grpcStartTimeout, func() {
		if !s.over.Load() {
			late <- fmt.Errorf("after %s, %w; see whether the API answers, and whether the account of the server has its rights",
				grpcStartTimeout, s.obstacle())
		}
	})
	defer timer.Stop()
	go func() { ended <- run(ctx) }()
	select {
	case err := <-ended:
		return err
	case err := <-late:
		return err
	}
}
