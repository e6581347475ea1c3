package freeport

import (
	"net"
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
	if got, err := Between(port, port).Next(); err == nil {
		t.Errorf("port %d was handed out, which is in use", got)
	}
	r, seen := Between(6000, 6009), map[int]bool{6004: true}
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
