package freeport

import (
	"net"
	"runtime"
	"testing"
)

func TestNext(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	if got, err := released(t, Between(port, port)).Next(); err == nil {
		t.Errorf("port %d was handed out, which is in use", got)
	}
	r, seen := released(t, Between(6000, 6009)), map[int]bool{6004: true}
	r.Take(6004)
	for got, err := r.Next(); err == nil; got, err = r.Next() {
		if seen[got] || got < 6000 || got > 6009 {
			t.Errorf("port %d after %v", got, seen)
		}
		seen[got] = true
	}
	if len(seen) < 2 {
		t.Errorf("of ten ports only %v were handed out", seen)
	}
}

// Two ranges stand for two processes: what one has handed out, the other does not.
func TestReserved(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("ports are reserved on Linux alone")
	}
	seen := map[int]bool{}
	for _, r := range []*Range{released(t, Between(6010, 6014)), released(t, Between(6010, 6014))} {
		for port, err := r.Next(); err == nil; port, err = r.Next() {
			if seen[port] {
				t.Errorf("port %d was handed out twice", port)
			}
			seen[port] = true
		}
	}
	if len(seen) < 2 {
		t.Errorf("of five ports only %v were handed out", seen)
	}
}

// released has the ports of a range free again after the test.
func released(t *testing.T, r *Range) *Range {
	t.Helper()
	t.Cleanup(func() {
		for _, reservation := range r.taken {
			if reservation != nil {
				_ = reservation.Close()
			}
		}
	})
	return r
}
