package servingcert_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/servingcert"
)

func write(t *testing.T, dir, host string) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func host(t *testing.T, c *servingcert.Certificate) string {
	t.Helper()
	pair, err := c.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.DNSNames[0]
}

// A new certificate is served without a restart, and one that makes no sense leaves the old one.
func TestCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := servingcert.Read(dir); err == nil || !strings.Contains(err.Error(), "put it and its key into "+dir+
		" as tls.crt and tls.key") {
		t.Errorf("without files: %v", err)
	}
	write(t, dir, "one")
	c, err := servingcert.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := host(t, c); got != "one" {
		t.Errorf("it serves %q first", got)
	}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		_ = c.Start(t.Context())
	}()
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := host(t, c); got != "one" {
		t.Errorf("it serves %q after nonsense", got)
	}
	write(t, dir, "two")
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return host(t, c) == "two", nil })
	if err != nil {
		t.Errorf("it still serves %q", host(t, c))
	}
}
