package upgrade_test

import (
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/operator/upgrade"
)

// More than a minor version at once is refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		installed, current string
		skip               bool
		refused            string
	}{
		"the first":           {"", "v1.4.0", false, ""},
		"the same":            {"v1.4.0", "v1.4.0", false, ""},
		"a patch":             {"v1.4.0", "v1.4.7", false, ""},
		"the next minor":      {"v1.4.3", "v1.5.0", false, ""},
		"back":                {"v1.5.0", "v1.4.3", false, ""},
		"a skipped minor":     {"v1.4.3", "v1.6.0", false, "version 1.5 first"},
		"far back":            {"v1.6.0", "v1.4.3", false, "version 1.5 first"},
		"another major":       {"v1.4.3", "v2.4.3", false, "version v1.4.3 is installed"},
		"skipped by the user": {"v1.4.3", "v1.6.0", true, ""},
		"a build":             {"v1.4.3", "devel-0123456789ab", false, ""},
		"after a build":       {"devel", "v1.6.0", false, ""},
	} {
		var annotations map[string]string
		if test.skip {
			annotations = map[string]string{upgrade.AnnotationSkip: "true"}
		}
		err := upgrade.Check(test.installed, test.current, annotations)
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
