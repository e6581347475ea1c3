package upgrade_test

import (
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/upgrade"
)

// The operators and the command line refuse the same steps: those that skip a minor version, and those back. CA-41, O7
func TestStep(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ installed, next, refused string }{
		"the first":                           {"", "v1.4.0", ""},
		"the same":                            {"v1.4.0", "v1.4.0", ""},
		"a patch":                             {"v1.4.0", "v1.4.7", ""},
		"the next minor":                      {"v1.4.3", "v1.5.0", ""},
		"a later patch of the next minor":     {"v1.4.3", "v1.5.9", ""},
		"two digits":                          {"v1.9.3", "v1.10.0", ""},
		"a skipped minor":                     {"v1.4.3", "v1.6.0", "v1.6.0 skips a minor version: install version 1.5 first"},
		"several skipped":                     {"v0.1.0", "v0.9.1", "install version 0.2 first"},
		"a candidate that skips":              {"v1.4.3", "v1.6.0-rc.1", "install version 1.5 first"},
		"the next major":                      {"v1.9.0", "v2.0.0", ""},
		"the next major from an early minor":  {"v1.2.0", "v2.0.3", ""},
		"a later minor of the next major":     {"v1.9.0", "v2.1.0", "install version 2.0 first"},
		"a skipped major":                     {"v1.9.0", "v3.0.0", "install version 2.0 first"},
		"back by a minor":                     {"v1.3.0", "v1.2.9", "v1.2.9 is older: what is stored may not be understood there; use v"},
		"back by several":                     {"v1.6.0", "v1.2.0", "v1.2.0 is older"},
		"back by a patch":                     {"v1.4.3", "v1.4.2", "v1.4.2 is older"},
		"back by a major":                     {"v2.0.0", "v1.9.0", "v1.9.0 is older"},
		"from a candidate":                    {"v1.4.0-rc.2", "v1.4.0", ""},
		"to the next candidate":               {"v1.4.0-rc.2", "v1.4.0-rc.10", ""},
		"back to a candidate":                 {"v1.4.0", "v1.4.0-rc.2", "v1.4.0-rc.2 is older"},
		"other builds of a release":           {"v1.4.0+b", "v1.4.0_a", ""},
		"a tag with an underscore that skips": {"v1.4.0-rc.1_b", "v1.6.0_a", "install version 1.5 first"},
		"a tag without a patch":               {"v1.4", "v1.6", "install version 1.5 first"},
		"a build":                             {"v1.4.3", "devel-0123456789ab", ""},
		"after a build":                       {"devel", "v1.6.0", ""},
		"a build of a commit":                 {"v1.4.3", "v0.0.0-20261123010203-0123456789ab", ""},
		"a build after a release":             {"v1.4.3", "v1.9.1-0.20261123010203-0123456789ab+dirty", ""},
		"the latest":                          {"v1.4.3", "latest", ""},
	} {
		err := upgrade.Step(test.installed, test.next)
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v, want %q", name, err, test.refused)
		}
	}
}

// A user can allow what is refused, for one version or for all.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		installed, current, skip string
		refused                  bool
	}{
		"a step":                   {"v1.4.3", "v1.5.0", "", false},
		"skipped":                  {"v1.4.3", "v1.6.0", "", true},
		"skipped by the user":      {"v1.4.3", "v1.6.0", "true", false},
		"skipped once":             {"v1.4.3", "v1.6.0", "v1.6.0", false},
		"skipped once, by the tag": {"v1.4.3", "v1.6.0-rc.1+b", "v1.6.0-rc.1_b", false},
		"skipped before":           {"v1.4.3", "v1.7.0", "v1.6.0", true},
		"back":                     {"v1.5.0", "v1.4.3", "", true},
		"back by the user":         {"v1.5.0", "v1.4.3", "v1.4.3", false},
		"back further":             {"v1.5.0", "v1.3.0", "v1.4.3", true},
		"no allowance":             {"v1.5.0", "v1.4.3", "false", true},
	} {
		var annotations map[string]string
		if test.skip != "" {
			annotations = map[string]string{upgrade.AnnotationSkip: test.skip}
		}
		err := upgrade.Check(test.installed, test.current, annotations)
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "capstan.io/allow-version-skip="+test.current) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// CA-12, CA-41: what the operator before has installed is not what the next one has.
func TestIsInstalled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		installed, version string
		want               bool
	}{
		"the version before":    {"v1.4.0", "v1.5.0", false},
		"nothing yet":           {"", "v1.5.0", false},
		"that version":          {"v1.5.0", "v1.5.0", true},
		"another candidate":     {"v1.5.0-rc.1", "v1.5.0-rc.2", false},
		"by the tag":            {"v1.5.0+b", "v1.5.0_b", true},
		"tagged again":          {"v1.5.0", "v1.5.0-mirror", true},
		"a tag without a patch": {"v1.5.4", "v1.5", true},
		"before, tagged again":  {"v1.4.0", "v1.5.0-mirror", false},
		"a build with that tag": {"devel-0123456789ab", "v1.5.0", true},
		"a build":               {"v1.4.0", "devel-0123456789ab", true},
		"no tag":                {"v1.4.0", "", true},
		"nothing yet, a build":  {"", "latest", true},
	} {
		if got := upgrade.IsInstalled(test.installed, test.version); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
