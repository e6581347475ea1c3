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
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	if port < 65535 {
		r := Between(port, port+1)
		r.Take(port + 1)
		for _, free := range []bool{true, false} {
			if got, err := r.Next(); free != (err == nil) || free && got != port {
				t.Errorf("port %d and %v, want %d once", got, err, port)
			}
		}
	}
}
