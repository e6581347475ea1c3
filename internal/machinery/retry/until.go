package retry

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// The pause between attempts of Until doubles from the first to the longest, and starts with the first again after a time, which watches
// usually last.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
	resetPause   = 5 * time.Minute
)

// Until makes attempts until one is done or fails, or the context ends. It is for watches that have to be opened again when the API
// server ends them: a server or proxy that ends each one at once gets few requests.
func Until(ctx context.Context, attempt wait.ConditionWithContextFunc) error {
	pauses := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.1, Steps: 16, Cap: longestPause}
	return pauses.DelayWithReset(clock.RealClock{}, resetPause).Until(ctx, true, true, attempt)
}
