package agent

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// After an outage every controller tries again within a minute: by default it may be a quarter of an hour.
func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	controllers := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(source, []byte("ctrl.NewControllerManagedBy(")) {
			return err
		}
		controllers++
		if !bytes.Contains(source, []byte("RateLimiter: ")) {
			t.Errorf("the controller in %s has no RateLimiter of its own: its waits after failures grow to a quarter of an hour", path)
		}
		return nil
	})
	if err != nil || controllers < 5 {
		t.Errorf("%d controllers found, %v", controllers, err)
	}
}
