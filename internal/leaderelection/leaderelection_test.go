package leaderelection

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLease is a Lease in a cluster that can be cut off, and that tells of a conflict when the lease is given back for the
// first time.
type fakeLease struct {
	mu       sync.Mutex
	record   *resourcelock.LeaderElectionRecord
	written  time.Time
	cutOff   bool
	conflict bool
	// lastAnswer is how long the answer to the next write takes, which is the last one; 0 is to no last one.
	lastAnswer time.Duration
}

func (l *fakeLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.reach(ctx); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lock")
	}
	now := *l.record
	raw, err := json.Marshal(now)
	return &now, raw, err
}

func (l *fakeLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *fakeLease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	lastAnswer, err := l.write(r)
	if err != nil || lastAnswer == 0 {
		return err
	}
	select {
	case <-time.After(lastAnswer):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *fakeLease) write(r resourcelock.LeaderElectionRecord) (lastAnswer time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.HolderIdentity == "" && l.conflict {
		l.conflict = false
		return 0, apierrors.NewConflict(schema.GroupResource{}, "lock", errors.New("another version"))
	}
	l.record, l.written, l.cutOff = &r, time.Now(), l.cutOff || l.lastAnswer != 0
	return l.lastAnswer, nil
}

// cutOffAfter cuts it off at once, or after the next write, whose answer takes that long.
func (l *fakeLease) cutOffAfter(lastAnswer time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutOff, l.lastAnswer = lastAnswer == 0, lastAnswer
}

// lastAnswers are how long the last renewal of a leader may take that is cut off then.
var lastAnswers = map[string]time.Duration{
	"at once":                    0,
	"after a slow answer":        requestTimeout - time.Nanosecond,
	"after one that is too late": requestTimeout + time.Second,
}

// reach blocks as a request does that gets no answer.
func (l *fakeLease) reach(ctx context.Context) error {
	l.mu.Lock()
	cutOff := l.cutOff
	l.mu.Unlock()
	if !cutOff {
		return ctx.Err()
	}
	<-ctx.Done()
	return ctx.Err()
}

func (l *fakeLease) RecordEvent(string) {}
func (l *fakeLease) Identity() string   { return "replica" }
func (l *fakeLease) Describe() string   { return "agent/lock" }

func (l *fakeLease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.HolderIdentity
}

// W19 CM-32: a replica that cannot renew its lease has ended its work before another one may lead.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	for name, lastAnswer := range lastAnswers {
		synctest.Test(t, func(t *testing.T) {
			lock := &fakeLease{}
			var acted time.Duration
			err := Lead(t.Context(), lock, func(ctx context.Context) error {
				<-time.After(time.Minute + time.Nanosecond) // just after a renewal, as it may be
				lock.cutOffAfter(lastAnswer)
				<-ctx.Done()
				acted = time.Since(lock.written)
				return nil
			})
			if !errors.Is(err, ErrLost) || acted >= leaseDuration {
				t.Errorf("%s: it acted for %s after its last renewal, and ended with %v", name, acted, err)
			}
		})
	}
}

// W19 CM-32: a replica that ends gives the lease back, and not before its work has ended.
func TestLeaderEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lock := &fakeLease{conflict: true}
		ctx, stop := context.WithCancel(t.Context())
		err := Lead(ctx, lock, func(ctx context.Context) error {
			stop()
			<-ctx.Done()
			<-time.After(time.Minute)
			if lock.holder() != lock.Identity() {
				t.Error("the lease is given back before the work has ended")
			}
			return nil
		})
		if err != nil || lock.holder() != "" {
			t.Errorf("it ended with %v, and %q leads", err, lock.holder())
		}
	})
}
