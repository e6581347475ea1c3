package install

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linkedVersion = regexp.MustCompile(`internal/program\.version=([^" ]+)`)
	writtenTag    = regexp.MustCompile(`-version "([^"]+)"`)
	pushedTag     = regexp.MustCompile(`-tag "([^"]+)"`)
)

// CA-07: the command line of `make build` installs, without another flag, the images that `make images` writes and `make push` pushes.
func TestTagOfBuiltImages(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"", "VERSION=v0.2.0", "VERSION=v0.2.0-rc.1+x", "TAG=mine"} {
		version := printed(t, linkedVersion, "build", variable)
		bundleVersion, err := (&bundleFlags{version: defaultBundle}).imageTag(version)
		if err != nil {
			t.Fatal(err)
		}
		written := printed(t, writtenTag, "images", variable)
		if pushed := printed(t, pushedTag, "push", variable); bundleVersion != written || bundleVersion != pushed {
			t.Errorf("make %s: version %s asks for the tag %s, images are written with %s and pushed with %s", variable, version, bundleVersion, written,
				pushed)
		}
	}
}

// printed is what the commands of a target of the Makefile say of themselves.
func printed(t *testing.T, what *regexp.Regexp, target, variable string) string {
	t.Helper()
	const root = "../../.."
	// So that the result of the test is not taken for that of another Makefile.
	if _, err := os.ReadFile(root + "/Makefile"); err != nil {
		t.Fatal(err)
	}
	args := []string{"-C", root, "--dry-run", target}
	if variable != "" {
		args = append(args, variable)
	}
	command := exec.CommandContext(t.Context(), "make", args...)
	// The variables of a make that runs the test are not for this one.
	command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "VERSION", "TAG"}, name)
	})
	out, err := command.Output()
	if err != nil {
		t.Fatalf("make %v: %v", args, err)
	}
	found := what.FindSubmatch(out)
	if found == nil {
		t.Fatalf("make %v says nothing of %s:\n%s", args, what, out)
	}
	return string(found[1])
}
