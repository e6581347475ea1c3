package text_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

func TestStable(t *testing.T) {
	t.Parallel()
	local, remote := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40123}, &net.TCPAddr{IP: net.IPv6loopback, Port: 6443}
	for _, test := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: remote, Err: syscall.ECONNRESET}, "read tcp: connection reset by peer"},
		{
			fmt.Errorf("Get \"https://hub:6443/livez\": %w", &net.OpError{Op: "dial", Net: "tcp4", Addr: local, Err: syscall.ECONNREFUSED}),
			"Get \"https://hub:6443/livez\": dial tcp4: connection refused",
		},
		{
			&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
				Name: "hub", Server: "192.0.2.53:53", Err: "read udp 192.0.2.7:40123->192.0.2.53:53: i/o timeout"}},
			"dial tcp: lookup hub: read udp: i/o timeout",
		},
		{
			x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2026-01-02T03:04:05Z is after 2026-01-01T00:00:00Z"},
			"x509: certificate has expired or is not yet valid: current time is after 2026-01-01T00:00:00Z",
		},
		{errors.New("stream error: stream ID 7; INTERNAL_ERROR"), "stream error: INTERNAL_ERROR"},
		{
			errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=3, ErrCode=NO_ERROR, debug=""`),
			`http2: server sent GOAWAY and closed the connection; ErrCode=NO_ERROR, debug=""`,
		},
		{errors.New("the Secret is for port tcp 80"), "the Secret is for port tcp 80"},
	} {
		if got := text.Stable(test.err.Error()); got != test.want {
			t.Errorf("%q becomes %q, want %q", test.err, got, test.want)
		}
	}
}
