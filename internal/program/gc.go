package program

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TuneGC has the garbage collector run when the heap has grown by percent since it ran last, and work harder when nine tenths of the
// memory of the cgroup, or of the machine, are taken. The environment variables GOGC and GOMEMLIMIT go before it. Where nobody knows how
// much memory there is, nothing is limited.
func TuneGC(percent int) {
	SetGCPercent(percent)
	_, _ = memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
}

// SetGCPercent changes what TuneGC has set, for another phase of the process. The environment variable GOGC goes before it.
func SetGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
