// Package retry says when a controller or a write tries again what has failed.
package retry

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The wait doubles from the first to the last.
const (
	first = 10 * time.Millisecond
	last  = time.Minute
)

// LongestTimer is how long a reconcile that waits for a time lets pass before it compares again: timers count neither the time for which
// a machine was suspended, nor by how much its clock was set.
const LongestTimer = 5 * time.Minute

// Limiter is for the options of one controller. It waits for a minute at most, where controller-runtime would for up to
// seventeen: what made something fail, such as a missing right or a Secret that is not watched, passes without an event.
func Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, last)
}
