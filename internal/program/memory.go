package program

import "github.com/KimMachineGun/automemlimit/memlimit"

// LimitMemory has the garbage collector work harder when nine tenths of the memory of the cgroup, or of the machine, are taken. The
// environment variable GOMEMLIMIT goes before it. Where nobody knows how much memory there is, nothing is limited.
func LimitMemory() {
	_, _ = memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
}
