package realcluster

import "testing"

// Of a dump there is shown what waits in this project's code, and nothing of the runtime, libraries and registers.
func TestOwnGoroutines(t *testing.T) {
	t.Parallel()
	own := `goroutine 7 [select, 3 minutes]:
github.com/capstan-io/capstan/internal/operator/clustermanager.(*Controller).Reconcile(0xc000)
	/src/internal/operator/clustermanager/controller.go:75 +0x1a`
	dump := `
PC=0x47 m=0 sigcode=0

goroutine 1 [chan receive]:
main.main()
	/src/cmd/capstan-hub/main.go:12 +0x1

` + own + `

goroutine 8 [IO wait]:
net/http.(*persistConn).readLoop(0xc001)
	/go/src/net/http/transport.go:2 +0x5

rax    0xca
`
	if got := ownGoroutines(dump); got != own {
		t.Errorf("got %q", got)
	}
	if got := ownGoroutines(""); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
