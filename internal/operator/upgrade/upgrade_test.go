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
		skip               string
		refused            string
	}{
		"the first":           {"", "v1.4.0", "", ""},
		"the same":            {"v1.4.0", "v1.4.0", "", ""},
		"a patch":             {"v1.4.0", "v1.4.7", "", ""},
		"the next minor":      {"v1.4.3", "v1.5.0", "", ""},
		"back":                {"v1.5.0", "v1.4.3", "", ""},
		"a skipped minor":     {"v1.4.3", "v1.6.0", "", "version 1.5 first"},
		"far back":            {"v1.6.0", "v1.4.3", "", "version 1.5 first"},
		"another major":       {"v1.4.3", "v2.4.3", "", "version v1.4.3 is installed"},
		"skipped by the user": {"v1.4.3", "v1.6.0", "true", ""},
		"skipped once":        {"v1.4.3", "v1.6.0", "v1.6.0", ""},
		"skipped before":      {"v1.4.3", "v1.7.0", "v1.6.0", "version 1.5 first"},
		"a build":             {"v1.4.3", "devel-0123456789ab", "", ""},
		"after a build":       {"devel", "v1.6.0", "", ""},
	} {
		var annotations map[string]string
		if test.skip != "" {
			annotations = map[string]string{upgrade.AnnotationSkip: test.skip}
		}
		err := upgrade.Check(test.installed, test.current, annotations)
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
