package repair

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Unix(1000, 0)

const atOnce = 3

func object(name string) Object {
	return Object{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"},
		NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

// take takes a repair, and returns nil if it is not due.
func (b *Backoff) take(o Object, missing bool) (undo func()) {
	undo, _ = b.Take(o, missing)
	return undo
}

// rival is somebody who changes an object, so that it has to be repaired: again so long after each repair.
type rival struct {
	after time.Duration
	// deletes reports whether it deletes the object.
	deletes bool
	// until is when it stops; zero is never.
	until time.Duration
}

// WK-17: how often an object is repaired while others dispute it, by what they do.
func TestBackoff(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for name, test := range map[string]struct {
		rivals []rival
		// firstMinute and perMinute are the most repairs in the first minute and in each minute after it.
		firstMinute, perMinute int
		// disputed reports whether there is a dispute in the end, an hour later.
		disputed bool
	}{
		"a change by hand":                           {[]rival{{until: 1}}, 1, 0, false},
		"three changes by hand":                      {[]rival{{after: time.Second, until: 2500 * time.Millisecond}}, 3, 0, false},
		"an autoscaler":                              {[]rival{{}}, 8, 1, true},
		"an autoscaler that looks every 15 seconds":  {[]rival{{after: 15 * time.Second}}, 3, 1, true},
		"the garbage collector":                      {[]rival{{deletes: true}}, 8, 1, true},
		"a finished Job that goes after 5 seconds":   {[]rival{{after: 8 * time.Second, deletes: true}}, 4, 1, true},
		"a reconciler that looks every 3 minutes":    {[]rival{{after: 3 * time.Minute}}, 1, 1, true},
		"somebody who comes back every 5 minutes":    {[]rival{{after: 5 * time.Minute}}, 1, 1, false},
		"ten of them":                                {make([]rival, 10), 8, 1, true},
		"an autoscaler that is stopped after a time": {[]rival{{until: 20 * time.Minute}}, 8, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(start)
			b, o := NewBackoff(clk, atOnce), object("web")
			minutes := map[int]int{}
			last := make([]time.Duration, len(test.rivals)) // when each of them has had its way
			for elapsed := time.Duration(0); elapsed < hour; elapsed += 100 * time.Millisecond {
				clk.SetTime(start.Add(elapsed))
				for i, r := range test.rivals {
					if r.until > 0 && elapsed >= r.until || elapsed > 0 && elapsed < last[i]+r.after {
						continue
					}
					if b.take(o, r.deletes) != nil {
						minutes[int(elapsed/time.Minute)]++
						last[i] = elapsed
					}
				}
			}
			clk.SetTime(start.Add(hour))
			for minute, repairs := range minutes {
				if most := test.perMinute; minute > 0 && repairs > most {
					t.Errorf("%d repairs in minute %d, want %d at most", repairs, minute, most)
				}
			}
			if minutes[0] != test.firstMinute {
				t.Errorf("%d repairs in the first minute, want %d", minutes[0], test.firstMinute)
			}
			if _, disputed := b.Dispute(o); disputed != test.disputed {
				t.Errorf("disputed: %t", disputed)
			}
		})
	}
}

// The delays double up to a minute, and an object that was left alone for five minutes is repaired at once again.
func TestDelays(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(start)
	b, o := NewBackoff(clk, atOnce), object("web")
	for i := range atOnce {
		if _, disputed := b.Dispute(o); disputed {
			t.Fatalf("disputed after %d repairs", i)
		}
		if b.take(o, i > 0) == nil {
			t.Fatalf("repair %d is not made at once", i+1)
		}
	}
	for _, want := range []time.Duration{2, 2, 4, 8, 16, 32, 60, 60} {
		d, disputed := b.Dispute(o)
		if delay := d.Due.Sub(clk.Now()); !disputed || delay != want*time.Second || d.Deletions != atOnce-1 {
			t.Errorf("%+v (%t) at %s, want a delay of %s", d, disputed, clk.Now(), want*time.Second)
		}
		clk.SetTime(d.Due.Add(-1))
		if b.take(o, false) != nil {
			t.Errorf("a repair is made before its delay of %s", want*time.Second)
		}
		clk.SetTime(d.Due)
		if b.take(o, false) == nil {
			t.Errorf("no repair after a delay of %s", want*time.Second)
		}
		if undo := b.take(object("other"), false); undo == nil {
			t.Error("another object is delayed, too")
		} else {
			undo()
		}
	}
	d, _ := b.Dispute(o)
	clk.SetTime(d.Over.Add(-1))
	if _, disputed := b.Dispute(o); !disputed {
		t.Error("the dispute has ended too early")
	}
	clk.SetTime(d.Over)
	if _, disputed := b.Dispute(o); disputed {
		t.Error("the dispute has not ended")
	}
	for range atOnce {
		if b.take(o, false) == nil {
			t.Error("a repair after the dispute is not made at once")
		}
	}
}

// A repair that was not made after all does not count, whatever was made meanwhile.
func TestUndo(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(start)
	b, o := NewBackoff(clk, atOnce), object("web")
	b.take(o, true)()
	if len(b.objects) > 0 {
		t.Errorf("left: %v", b.objects)
	}
	for range atOnce {
		b.take(o, false)
	}
	before, _ := b.Dispute(o)
	clk.SetTime(before.Due)
	undo := b.take(o, true)
	if b.take(o, true) != nil {
		t.Error("two repairs are made at the same time")
	}
	undo()
	if after, disputed := b.Dispute(o); after != before || !disputed {
		t.Errorf("%+v, want %+v", after, before)
	}
	other := object("other")
	first := b.take(other, false)
	clk.SetTime(clk.Now().Add(time.Second))
	b.take(other, true)
	first()
	if h := b.objects[other]; h != (history{repairs: 1, deletions: 1, first: start.Add(2 * time.Second), last: clk.Now()}) {
		t.Errorf("%+v", h)
	}
}

// An error is a dispute if there is nothing else in it, however it is wrapped, and the first of several ends it.
func TestDisputedUntil(t *testing.T) {
	t.Parallel()
	failure := errors.New("refused")
	disputed, later := &BackoffError{Until: start}, &BackoffError{Until: start.Add(time.Minute)}
	for name, test := range map[string]struct {
		err  error
		want time.Time
	}{
		"none":               {},
		"a failure":          {err: failure},
		"a dispute":          {err: disputed, want: start},
		"a dispute within":   {err: fmt.Errorf("write: %w", fmt.Errorf("apply: %w", disputed)), want: start},
		"a dispute and more": {err: errors.Join(fmt.Errorf("apply: %w", disputed), failure)},
		"deep within":        {err: fmt.Errorf("a: %w, b: %w", errors.Join(disputed, failure), disputed)},
		"two disputes":       {err: errors.Join(later, disputed), want: start},
	} {
		if until, is := DisputedUntil(test.err); !until.Equal(test.want) || is == test.want.IsZero() {
			t.Errorf("%s: %s, %t", name, until, is)
		}
	}
}

// What is not repaired any more is forgotten.
func TestForgetting(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(start)
	b := NewBackoff(clk, atOnce)
	for i := range 1000 {
		b.take(object(fmt.Sprint(i)), false)
		clk.SetTime(clk.Now().Add(time.Second))
		if most := int(2 * resetAfter / time.Second); len(b.objects) > most {
			t.Fatalf("%d objects are remembered, want %d at most", len(b.objects), most)
		}
	}
}
