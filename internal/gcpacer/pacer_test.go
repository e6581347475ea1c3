package gcpacer

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const mb = 1 << 20

// process is a heap that the test fills.
type process struct {
	*pacer
	mu      sync.Mutex
	heap    usage
	percent []int
	freed   int
}

func newProcess() *process {
	p := &process{heap: usage{live: 50 * mb}}
	p.pacer = &pacer{
		least: 128 * mb, most: 500 * mb, room: 128 * mb,
		set:  func(percent int) int { p.percent = append(p.percent, percent); return 0 },
		free: func() { p.freed++; p.collected() },
		read: func() usage {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.heap
		},
	}
	p.start()
	return p
}

// allocate lets the process allocate so much within so long, and collects.
func (p *process) allocate(bytes uint64, within time.Duration) {
	p.mu.Lock()
	p.heap.allocated += bytes
	p.mu.Unlock()
	pass(within)
	p.collected()
}

// keep has the process hold so much.
func (p *process) keep(bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heap.live = bytes
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestPacer(t *testing.T) {
	for name, test := range map[string]struct {
		run     func(*process)
		percent []int
		freed   int
	}{
		"a start has room":         {func(*process) {}, []int{256}, 0},
		"then the process is idle": {func(*process) { pass(calm) }, []int{256, idlePercent}, 1},
		"little garbage leaves it idle": {func(p *process) {
			pass(calm)
			p.allocate(25*mb, 2*time.Second)
			p.allocate(25*mb, 2*time.Second)
		}, []int{256, idlePercent}, 1},
		"collections of nothing, too": {func(p *process) { pass(calm + 1); p.allocate(1, 1); p.allocate(1, 1) }, []int{256, idlePercent}, 1},
		"much garbage makes it busy":  {func(p *process) { pass(calm + 1); p.allocate(25*mb, time.Second/2) }, []int{256, idlePercent, 256}, 1},
		"while it stays so, it has more room": {func(p *process) {
			for range 8 {
				p.allocate(200*mb, time.Second/2)
			}
			pass(2 * calm)
			p.allocate(25*mb, time.Second/2)
			p.allocate(25*mb, time.Second/2)
		}, []int{256, 512, 1000, idlePercent, 256}, 1},
		"a moment is not worth more": {func(p *process) {
			for range 3 {
				p.allocate(200*mb, time.Second/2)
			}
		}, []int{256}, 0},
		"while it is, it stays so":   {func(p *process) { p.allocate(200*mb, calm-1); pass(1) }, []int{256}, 0},
		"until the garbage ends":     {func(p *process) { p.allocate(200*mb, calm-1); pass(1); pass(calm) }, []int{256, idlePercent}, 1},
		"a large heap has its share": {func(p *process) { p.keep(1000 * mb); p.allocate(3000*mb, calm-1); pass(1) }, []int{256, busyPercent}, 0},
		"collections of a large heap are far between": {func(p *process) {
			p.keep(400 * mb)
			pass(calm + 1)
			p.allocate(160*mb, 3*time.Second)
		}, []int{256, idlePercent, busyPercent}, 1},
		"a small heap has no more, too": {func(p *process) { p.keep(mb); p.allocate(200*mb, calm-1); pass(1) }, []int{256, 3200}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newProcess()
				test.run(p)
				if !slices.Equal(slices.Compact(p.percent), test.percent) || p.freed != test.freed {
					t.Errorf("percent %v, freed %d times; want %v, %d times", p.percent, p.freed, test.percent, test.freed)
				}
				p.timer.Stop()
			})
		})
	}
}

func TestOnCollection(t *testing.T) {
	t.Parallel()
	collections := make(chan struct{}, 1)
	(&pacer{}).onCollection(func() {
		select {
		case collections <- struct{}{}:
		default:
		}
	})
	for range 3 {
		// One that comes before the last was answered is not noticed.
		for heard := false; !heard; {
			runtime.GC()
			select {
			case <-collections:
				heard = true
			default:
			}
		}
	}
}
