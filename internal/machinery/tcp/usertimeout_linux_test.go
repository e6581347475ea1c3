package tcp

import (
	"net"
	"syscall"
	"testing"
)

// options of a connection, in the units of the kernel: seconds, and milliseconds for the last.
type options struct{ enabled, idle, interval, userTimeout int }

func optionsOf(t *testing.T, conn net.Conn) (o options) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, option := range []struct {
			level, name int
			value       *int
		}{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, &o.enabled},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, &o.idle},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, &o.interval},
			{syscall.IPPROTO_TCP, optionUserTimeout, &o.userTimeout},
		} {
			if *option.value, err = syscall.GetsockoptInt(int(fd), option.level, option.name); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Connections to one of several replicas end three seconds after its machine has gone, whether it owes an answer or not.
func TestProbe(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	probed, other := options{1, 1, 1, 3000}, options{1, 30, 15, 0}
	for name, test := range map[string]struct {
		addresses []string
		probe     bool
		want      options
	}{
		"replicas":                    {[]string{"127.0.0.1", "127.0.0.2"}, true, probed},
		"replicas, without probes":    {[]string{"127.0.0.1", "127.0.0.2"}, false, other},
		"one machine":                 {[]string{"127.0.0.1"}, true, other},
		"one machine, named twice":    {[]string{"127.0.0.1", "127.0.0.1"}, true, other},
		"one machine of two families": {[]string{"127.0.0.1", "::1"}, true, other},
	} {
		h := &host{addresses: test.addresses}
		r := h.racer()
		r.single, r.probe = (&net.Dialer{KeepAlive: keepAlive}).DialContext, test.probe
		conn, err := r.dial(t.Context(), "tcp", "hub.example.com:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := optionsOf(t, conn); got != test.want {
			t.Errorf("%s: the options are %+v, want %+v", name, got, test.want)
		}
	}
	conn, err := (&Dialer{Probe: true}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := optionsOf(t, conn); got != other {
		t.Errorf("the options of a connection to an address are %+v, want %+v", got, other)
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	probe(here) // has none
}
