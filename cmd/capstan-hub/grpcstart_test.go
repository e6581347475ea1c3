package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// GR-01: the server is not ready before it serves calls, and ends with the cause if it never does.
func TestGRPCStart(t *testing.T) {
	t.Parallel()
	failure := errors.New("end of the program")
	// The stock handler does not wait with this error; with others, it waits until a millisecond after the last one of the process, by
	// the clock of all tests.
	broken := io.ErrUnexpectedEOF
	const late = "after 2m0s, the gRPC server has not read from the API what it serves"
	for name, test := range map[string]struct {
		serves  bool
		told    bool // to end, before it serves
		problem error
		ends    string // the error with which the process ends, once the time is up; empty for none
	}{
		"serves":                  {serves: true, ends: failure.Error()},
		"serves after a problem":  {serves: true, problem: broken, ends: failure.Error()},
		"cannot read":             {problem: broken, ends: late + ": " + broken.Error()},
		"the API does not answer": {ends: late + "; see whether the API answers"},
		"is told to end":          {told: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				starting, over, release := &grpcStart{}, make(chan struct{}), make(chan struct{})
				defer close(release)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				ended := make(chan error, 1)
				go func() {
					ended <- starting.bound(ctx, func(context.Context) error {
						select {
						case <-over:
							return failure
						case <-release: // whatever its context says
							return nil
						}
					})
				}()
				if test.problem != nil {
					starting.watchFailed(ctx, toolscache.NewReflector(&toolscache.ListWatch{}, &corev1.Secret{}, nil, 0), test.problem)
				}
				if err := starting.ready(nil); err == nil {
					t.Error("it is ready before it serves")
				}
				if test.serves {
					starting.over.Store(true)
					if err := starting.ready(nil); err != nil {
						t.Errorf("it is not ready when it serves: %v", err)
					}
					close(over)
				}
				if test.told {
					end()
				}
				if err := <-ended; (err != nil) != (test.ends != "") || err != nil && !strings.Contains(err.Error(), test.ends) {
					t.Errorf("it ended with %v, want %q", err, test.ends)
				}
			})
		})
	}
}
