//go:build bench

package bench

import (
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// usage of a process: memory in MB, and processor time since its start.
type usage struct {
	rss, anonymous float64
	cpu            time.Duration
}

func usageOf(t *testing.T, pid int) usage {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := p.MemoryInfoEx()
	if err != nil {
		t.Fatal(err)
	}
	times, err := p.Times()
	if err != nil {
		t.Fatal(err)
	}
	const mb = 1 << 20
	return usage{
		rss:       float64(memory.RSS) / mb,
		anonymous: float64(memory.RSS-memory.Shared) / mb,
		cpu:       time.Duration((times.User + times.System) * float64(time.Second)),
	}
}
