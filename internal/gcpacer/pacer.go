// Package gcpacer paces the garbage collector of a process that is idle most of the time and busy now and then, and gives memory
// back while it is idle.
//
// A fixed GOGC has to choose between unused memory while the process is idle, and a collector that takes half the processor while
// it is busy.
package gcpacer

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// idlePercent is GOGC while little happens.
	idlePercent = 40
	// busyPercent is the least GOGC of a busy process. It is what counts where so much is live that the room is little.
	busyPercent = 100
	// busyInterval is the time between two collections under which a process is busy, for each busyHeap of what is live: a large
	// heap costs more to collect, and has more room between collections.
	busyInterval = time.Second
	busyHeap     = 100 << 20
	// share of the memory of the machine, or of the cgroup, that the room may take.
	share = 16
	// busyAfter is how long a process must have been busy until it gets more room than the least: a start, or a moment of work,
	// is not worth memory that cannot be given back entirely.
	busyAfter = 2 * time.Second
	// calm is how long a process must have had little to do until it counts as idle.
	calm = 5 * time.Second
)

// Pace takes over the pace of the collector, unless the environment variable GOGC sets one. While the process is busy, its
// heap may grow by least bytes beyond what is live, or to twice that if it is more, before it is collected. While it stays so,
// the room doubles, up to most bytes or a sixteenth of the memory there is. Once the process is idle, that memory goes back to
// the operating system, and so do the parts of the program that it does not use. It counts as busy now, for a start is a busy time.
//
// Unless GOMEMLIMIT says otherwise, the collector works harder, too, where nine tenths of the memory of the cgroup, or of the
// machine, are taken.
func Pace(least, most uint64) {
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if os.Getenv("GOGC") != "" {
		return
	}
	if err == nil {
		most = max(least, min(most, uint64(limit)/share)) //nolint:gosec // a limit is not negative
	}
	p := &pacer{least: least, most: most, room: least, set: debug.SetGCPercent, free: giveBack, read: readUsage}
	p.start()
	p.onCollection(p.collected)
}

// usage of the heap in bytes: what the last collection found live, and what was ever allocated.
type usage struct{ live, allocated uint64 }

func (u usage) busyInterval() time.Duration {
	return time.Duration(float64(busyInterval) * max(1, float64(u.live)/busyHeap))
}

type pacer struct {
	least, most uint64
	set         func(percent int) int
	free        func()
	read        func() usage

	mu    sync.Mutex
	timer *time.Timer
	// room is for how many bytes of garbage there is room while the process is busy, from least to most.
	room uint64
	// last is when the last collection was, and collectedAt what had been allocated then.
	last        time.Time
	collectedAt uint64
	// hurried tells that the process is busy, since when, and what had been allocated when that was last found.
	hurried   bool
	since     time.Time
	hurriedAt uint64
}

func (p *pacer) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(calm, p.look)
	p.hurry(p.read())
}

// collected is called after every collection. Of those that follow each other closely, only the ones count that had
// something to collect: others are asked for, by free for one.
func (p *pacer) collected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	heap, now := p.read(), time.Now()
	if now.Sub(p.last) < heap.busyInterval() && heap.allocated-p.collectedAt > idleRoom(heap)/2 {
		if p.hurried && now.Sub(p.since) >= busyAfter {
			p.room = min(2*p.room, p.most)
		}
		p.hurry(heap)
	} else if p.hurried {
		p.giveRoom(heap)
	}
	p.last, p.collectedAt = now, heap.allocated
}

// hurry is the pace of a busy process.
func (p *pacer) hurry(heap usage) {
	if !p.hurried {
		p.since = time.Now()
	}
	p.hurried, p.hurriedAt = true, heap.allocated
	p.giveRoom(heap)
	p.timer.Reset(calm)
}

// giveBack returns to the operating system what an idle process does not need.
func giveBack() {
	debug.FreeOSMemory()
	freeProgram()
}

// minHeap is the heap to which the runtime applies the percentage where less is live.
const minHeap = 4 << 20

func (p *pacer) giveRoom(heap usage) {
	p.set(int(max(busyPercent, 100*p.room/max(heap.live, minHeap)))) //nolint:gosec // a percentage is far below the limit
}

// look ends the hurry when it is over: when, at the idle pace, collections would not follow each other closely.
func (p *pacer) look() {
	if p.calmDown() {
		p.free()
	}
}

func (p *pacer) calmDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	heap := p.read()
	if float64(heap.allocated-p.hurriedAt)*heap.busyInterval().Seconds()/calm.Seconds() > float64(idleRoom(heap)) {
		p.hurry(heap)
		return false
	}
	p.hurried, p.room = false, p.least
	p.set(idlePercent)
	return true
}

// idleRoom is for how many bytes of garbage there is room at the idle pace.
func idleRoom(heap usage) uint64 { return heap.live * idlePercent / 100 }

// onCollection calls f after every collection, by the death of an object that nobody holds.
func (p *pacer) onCollection(f func()) {
	type sentinel struct{ self *pacer } // with a pointer, so that it shares its memory with no other object
	runtime.AddCleanup(&sentinel{p}, func(struct{}) {
		f()
		p.onCollection(f)
	}, struct{}{})
}

func readUsage() usage {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return usage{live: samples[0].Value.Uint64(), allocated: samples[1].Value.Uint64()}
}
