package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KL-32: which errors mean that a cluster cannot be reached; one that answers, and refuses, can.
func TestIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("there is no Secret: %w", errNoKubeconfig), true},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "a", errors.New("no")), false},
		{apierrors.NewUnauthorized("expired"), false},
		{errors.New("another"), false},
	} {
		if got := isUnreachable(fmt.Errorf("wrapped: %w", test.err)); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, left := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"}} {
		if got := summary(left); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// KL-23: only the CRDs of a newer release stay as they are.
func TestNewer(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{"": false, "devel": false, "v1.3.1": false, "1.2.9": false, "v1.10.0": true, "2.0.0": true} {
		if got := newer(release, "1.3.1"); got != want {
			t.Errorf("%s: %t", release, got)
		}
	}
}
