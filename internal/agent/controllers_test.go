package agent

import (
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	name = regexp.MustCompile(`NewControllerManagedBy\(mgr\)\.Named\("([^"]*)"\)`)
	// valid names of controllers say the area, the kind and what is done about it. They are in logs and metrics.
	valid = regexp.MustCompile(`^(registration|work|addon)-[a-z]+-[a-z]+$`)
)

// Every controller has a name that distinguishes it from all others. After an outage it tries again within a minute: by default it may be a
// quarter of an hour.
func TestControllers(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(source, []byte("ctrl.NewControllerManagedBy(")) {
			return err
		}
		found := name.FindSubmatch(source)
		if len(found) == 0 || !valid.Match(found[1]) || names[string(found[1])] != "" {
			t.Errorf("the controller in %s is not named uniquely after area, noun and duty: %q", path, found)
			return nil
		}
		names[string(found[1])] = path
		if !bytes.Contains(source, []byte("RateLimiter:")) {
			t.Errorf("the controller in %s has no RateLimiter of its own: its waits after failures grow to a quarter of an hour", path)
		}
		return nil
	})
	if err != nil || len(names) != 12 {
		t.Errorf("controllers %v, %v", names, err)
	}
}
