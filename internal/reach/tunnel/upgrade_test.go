package tunnel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// CP-04: an API server in between closes the connection over which it has passed a refusal on, and does not say so. The next request takes
// another one.
func TestUpgradeAfterRefusal(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
	}))
	t.Cleanup(server.Close)
	for range 50 {
		if _, err := tunnel.Upgrade(t.Context(), server.Client(), server.URL, "p"); !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
	}
}
