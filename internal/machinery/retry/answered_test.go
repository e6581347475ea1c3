package retry

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refused is what a request to an API server that is away ends with.
var refused = &url.Error{Op: "Get", URL: "https://hub", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}

// What an API server refuses is not asked again, and what it could not answer is; some of that only if it was not reached.
func TestIsUnanswered(t *testing.T) {
	t.Parallel()
	works := schema.GroupResource{Group: "work.open-cluster-management.io", Resource: "manifestworks"}
	tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, test := range map[string]struct {
		err                   error
		unanswered, unreached bool
	}{
		"an answer":               {nil, false, false},
		"refused connection":      {refused, true, true},
		"starting":                {apierrors.NewServiceUnavailable("starting"), true, false},
		"too many requests":       {apierrors.NewTooManyRequests("later", 1), false, false},
		"storage without leader":  {apierrors.NewInternalError(errors.New("etcdserver: no leader")), true, false},
		"denied":                  {apierrors.NewForbidden(works, "", nil), false, false},
		"unknown to the hub":      {apierrors.NewUnauthorized("who?"), false, false},
		"too old":                 {apierrors.NewResourceExpired("old"), false, false},
		"too new":                 {tooLarge, false, false},
		"what no one understands": {errors.New("no kind is registered"), false, false},
	} {
		if unanswered, unreached := isUnanswered(test.err), IsUnreached(test.err); unanswered != test.unanswered || unreached != test.unreached {
			t.Errorf("%s: unanswered: %t, unreached: %t", name, unanswered, unreached)
		}
	}
}

// A request is repeated until there is an answer, whatever that is, or the context ends.
func TestUntilAnswered(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"an answer": nil, "a refusal": apierrors.NewUnauthorized("who?")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got, err := UntilAnswered(t.Context(), func(context.Context) (string, error) {
					if time.Since(start) < time.Minute {
						return "", refused
					}
					return "answer", answer
				})
				if late := time.Since(start) - time.Minute; got != "answer" || !errors.Is(err, answer) || late > longestPause+longestPause/5 {
					t.Errorf("%q, %v, %v after the API server was back", got, err, late)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := UntilAnswered(ctx, func(context.Context) (string, error) { return "", refused }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the context ends: %v", err)
		}
	})
}

// Who sends a request learns of an API server that cannot answer after a while, and at once if there is another request to send.
func TestUntilAnsweredGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := apierrors.NewInternalError(errors.New("conversion webhook failed"))
		request := func(context.Context) (string, error) { return "", broken }
		start := time.Now()
		if _, err := UntilReached(t.Context(), request); !errors.Is(err, broken) || time.Since(start) > 0 {
			t.Errorf("if it was reached: %v after %v", err, time.Since(start))
		}
		_, err := UntilAnswered(t.Context(), request)
		if took := time.Since(start); !errors.Is(err, broken) || took < patience || took > patience+longestPause+longestPause/5 {
			t.Errorf("%v after %v", err, took)
		}
	})
}
