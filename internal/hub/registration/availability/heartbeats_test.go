package availability

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// lease was renewed at a time by the clock of the cluster, and written at others by that of the hub.
func lease(renewed time.Time, written ...time.Time) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Namespace = "cluster1"
	micro := metav1.NewMicroTime(renewed)
	l.Spec.RenewTime = &micro
	for _, w := range written {
		at := metav1.NewTime(w)
		l.ManagedFields = append(l.ManagedFields, metav1.ManagedFieldsEntry{Manager: "agent", Time: &at, FieldsV1: metav1.NewFieldsV1("{}")})
	}
	return l
}

// RG-21, RG-22: the hub's time counts, not the cluster's clock.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	hourAgo, minuteAgo := noon.Add(-time.Hour), noon.Add(-time.Minute)
	for name, test := range map[string]struct {
		seen []*coordinationv1.Lease // a second apart
		want time.Time
	}{
		"none":                                   {},
		"the first, when it was written":         {[]*coordinationv1.Lease{lease(noon, hourAgo, minuteAgo)}, minuteAgo},
		"the first, if nobody noted when":        {[]*coordinationv1.Lease{lease(hourAgo)}, noon},
		"the first, of a hub whose clock is set": {[]*coordinationv1.Lease{lease(noon, noon.Add(time.Hour))}, noon},
		"the next, when it was written": {[]*coordinationv1.Lease{lease(hourAgo, hourAgo), lease(minuteAgo, hourAgo, minuteAgo)},
			minuteAgo},
		"the next, by a clock that is behind": {[]*coordinationv1.Lease{lease(hourAgo), lease(hourAgo.Add(time.Second))},
			noon.Add(time.Second)},
		"the next, by a clock that was set back": {[]*coordinationv1.Lease{lease(noon), lease(hourAgo)}, noon.Add(time.Second)},
		"a change that is no renewal":            {[]*coordinationv1.Lease{lease(noon), lease(noon)}, noon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(noon)
			h := newHeartbeats(clk)
			for i, l := range test.seen {
				clk.SetTime(noon.Add(time.Duration(i) * time.Second))
				h.observe(l)
			}
			last, known := h.of("cluster1")
			if known != (len(test.seen) > 0) || !last.written.Equal(test.want) {
				t.Errorf("written at %s, want %s", last.written, test.want)
			}
			h.forget("cluster1")
			if _, known := h.of("cluster1"); known {
				t.Error("it is not forgotten")
			}
		})
	}
}

// RG-21: a cluster is not lost because the hub has become less patient while it was silent.
func TestOverdue(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(noon)
	h := newHeartbeats(clk)
	h.observe(lease(noon))
	for _, step := range []struct {
		at     time.Duration // after noon
		beat   bool
		length time.Duration
		want   time.Duration
	}{
		{0, false, 5 * time.Minute, 5 * time.Minute},
		{time.Minute, false, time.Second, time.Minute + time.Second}, // shorter: starts again
		{time.Minute, false, time.Second, time.Minute + time.Second}, // and not again
		{2 * time.Minute, true, time.Second, 2*time.Minute + time.Second},
		{3 * time.Minute, false, time.Hour, 2*time.Minute + time.Hour}, // longer: from the last heartbeat
	} {
		clk.SetTime(noon.Add(step.at))
		if step.beat {
			h.observe(lease(noon.Add(step.at)))
		}
		if got := h.overdue("cluster1", step.length); !got.Equal(noon.Add(step.want)) {
			t.Errorf("%s after noon: overdue at %s, want %s", step.at, got, noon.Add(step.want))
		}
	}
}

// RG-21: no heartbeat can come while the hub is away. So those from before its start give each cluster the whole grace once more.
func TestOverdueAfterAnOutage(t *testing.T) {
	t.Parallel()
	const length = 5 * time.Minute
	for name, test := range map[string]struct {
		written []time.Time
		want    time.Time
	}{
		"a minute ago":        {[]time.Time{noon.Add(-time.Minute)}, noon.Add(length)},
		"hours ago":           {[]time.Time{noon.Add(-9 * time.Hour)}, noon.Add(length)},
		"by a clock set back": {[]time.Time{noon.Add(time.Hour)}, noon.Add(length)},
		"at no known time":    {nil, noon.Add(length)},
	} {
		clk := clocktesting.NewFakePassiveClock(noon)
		h := newHeartbeats(clk)
		for range 2 { // the second time, the hub has been running, and counts the same
			h.observe(lease(noon.Add(-9*time.Hour), test.written...))
			if got := h.overdue("cluster1", length); !got.Equal(test.want) {
				t.Errorf("%s: overdue at %s, want %s", name, got, test.want)
			}
			clk.SetTime(clk.Now().Add(time.Minute))
		}
	}
}

// RG-21: no heartbeat can come while the hub stands still, or its storage takes no writes. Such a time does not count.
func TestOverdueAfterAnInterruption(t *testing.T) {
	t.Parallel()
	const length = 5 * time.Minute
	for name, test := range map[string]struct {
		renewals []time.Duration // of the hub's own Lease, after noon
		beat     time.Duration   // when the cluster renews its Lease after these
		other    time.Duration   // when another cluster does
		forgets  bool
		now      time.Duration
		want     time.Duration
	}{
		"none": {now: 9 * time.Minute, want: length},
		"one after the other": {renewals: []time.Duration{0, 10 * time.Second, 20 * time.Second}, now: 30 * time.Second,
			want: length},
		"one is late":                       {renewals: []time.Duration{0, 25 * time.Second}, now: 30 * time.Second, want: length},
		"the first comes late":              {renewals: []time.Duration{time.Minute}, now: time.Minute, want: length},
		"none for hours, and again":         {renewals: []time.Duration{0, 9 * time.Hour}, now: 9 * time.Hour, want: 9*time.Hour + length},
		"none for hours, and not yet again": {renewals: []time.Duration{0}, now: 9 * time.Hour, want: 9*time.Hour + length},
		"twice none": {renewals: []time.Duration{0, time.Minute, 2 * time.Minute}, now: 2 * time.Minute,
			want: 2*time.Minute + length},
		"an interruption of before": {renewals: []time.Duration{0, time.Minute, 70 * time.Second}, now: 71 * time.Second,
			want: time.Minute + length},
		"a heartbeat after it": {renewals: []time.Duration{0, time.Hour}, beat: 61 * time.Minute, now: 61*time.Minute + time.Second,
			want: 61*time.Minute + length},
		"a heartbeat that ends it":     {renewals: []time.Duration{0}, beat: time.Hour, now: time.Hour, want: time.Hour + length},
		"the clock is set forward":     {renewals: []time.Duration{0, time.Hour}, now: time.Hour, want: time.Hour + length},
		"the clock is set back":        {renewals: []time.Duration{0, -time.Hour}, now: -time.Hour, want: -time.Hour + length},
		"only the own Lease is absent": {renewals: []time.Duration{0}, other: 20 * time.Second, now: 30 * time.Second, want: length},
		"the hub may not any more":     {renewals: []time.Duration{0}, forgets: true, now: 9 * time.Hour, want: length},
	} {
		clk := clocktesting.NewFakePassiveClock(noon)
		h := newHeartbeats(clk)
		h.observe(lease(noon))
		for _, at := range test.renewals {
			clk.SetTime(noon.Add(at))
			h.renewedOwn()
		}
		if test.beat != 0 {
			clk.SetTime(noon.Add(test.beat))
			h.observe(lease(noon.Add(test.beat)))
		}
		if test.other != 0 {
			other := lease(noon)
			other.Namespace = "cluster2"
			h.observe(other)
			clk.SetTime(noon.Add(test.other))
			other.Spec.RenewTime.Time = noon.Add(test.other)
			h.observe(other)
		}
		if test.forgets {
			h.refusedOwn()
		}
		clk.SetTime(noon.Add(test.now))
		if got := h.overdue("cluster1", length); !got.Equal(noon.Add(test.want)) {
			t.Errorf("%s: overdue %s after noon, want %s", name, got.Sub(noon), test.want)
		}
	}
}

func TestStripLease(t *testing.T) {
	t.Parallel()
	stripped, err := StripLease(lease(noon, noon.Add(-time.Hour), noon.Add(-time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	fields := stripped.(*coordinationv1.Lease).ManagedFields
	if len(fields) != 1 || fields[0].FieldsV1 != nil || !fields[0].Time.Time.Equal(noon.Add(-time.Minute)) {
		t.Errorf("kept %+v", fields)
	}
}
