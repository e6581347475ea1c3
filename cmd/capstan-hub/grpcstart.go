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

// grpcStartTimeout is how long the gRPC server may take to read from the API what it serves.
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

// bound runs the process, and returns the cause if it does not serve in time. While it does not serve, bound does not wait for its end: a
// manager whose caches do not sync never ends.
func (s *grpcStart) bound(ctx context.Context, run func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		if !s.over.Load() {
			return nil
		}
	case <-time.After(grpcStartTimeout):
		if !s.over.Load() {
			return fmt.Errorf("after %s, %w; see whether the API answers, and whether the account of the server has its rights",
				grpcStartTimeout, s.obstacle())
		}
	}
	return <-ended
}
