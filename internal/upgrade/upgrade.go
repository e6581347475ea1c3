// Package upgrade decides whether a version may take over what another version has installed: in the operators, in the command line before
// it gives a cluster another operator, and wherever CustomResourceDefinitions are applied. It is pure.
package upgrade

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// AnnotationVersion on a ClusterManager or Klusterlet is the version of the operator that last installed all of it, and on a
	// CustomResourceDefinition the release that last applied it.
	AnnotationVersion = "capstan.io/installed-version"
	// AnnotationSkip allows what [Step] refuses, at the user's own risk: to the version that is its value, or to any if that is "true".
	AnnotationSkip = "capstan.io/allow-version-skip"
)

// Step is an error, which says what to do, if the next version may not take over what the installed one has stored and runs. That is only
// tested from one minor version to the next, so none is skipped; and an older version does not know what a newer one has stored, so none
// goes back. The first minor version of a major version follows every one of the major version before, because no version says which the
// last of those was. What is no release, such as the build of a commit, follows everything, and everything follows it.
func Step(installed, next string) error {
	from, isRelease := release(installed)
	to, isNextRelease := release(next)
	if !isRelease || !isNextRelease {
		return nil
	}
	if to.LessThan(from) {
		return fmt.Errorf("version %s is installed, and %s is older: what is stored may not be understood there; use version %s, or a newer "+
			"one", installed, next, installed)
	}
	following := followingMinor(from, to)
	if sameMinor(to, from) || sameMinor(to, following) {
		return nil
	}
	return fmt.Errorf("version %s is installed, and %s skips a minor version: install version %d.%d first",
		installed, next, following.Major(), following.Minor())
}

// Check is an error if the current version may not take over what is installed; see [Step]. The annotations are those of the
// ClusterManager or Klusterlet.
func Check(installed, current string, annotations map[string]string) error {
	err := Step(installed, current)
	if err == nil || allows(annotations[AnnotationSkip], current) {
		return nil
	}
	return fmt.Errorf("%w; the annotation %s=%s allows %s all the same, which is not tested", err, AnnotationSkip, current, current)
}

// allows reports whether a value of AnnotationSkip is for that version.
func allows(value, current string) bool {
	if value == "true" {
		return true
	}
	named, isRelease := release(value)
	to, isCurrentRelease := release(current)
	return isRelease && isCurrentRelease && named.EqualTo(to)
}

// IsInstalled reports whether an operator of that version has installed all of it, by the version that AnnotationVersion has. What is no
// release is not told apart from others: the tag of an image need not be what the program calls itself. A tag such
// as v1.5, or v1.5.3-mirror, stands for v1.5.4, or v1.5.3, too.
func IsInstalled(installed, version string) bool {
	want, isRelease := release(version)
	if !isRelease {
		return true
	}
	is, isInstalledRelease := release(installed)
	if !isInstalledRelease {
		return installed != ""
	}
	return sameMinor(is, want) && !is.LessThan(want)
}

// IsRelease reports whether a version is that of a release, not such as of the build of a commit.
func IsRelease(text string) bool {
	_, isRelease := release(text)
	return isRelease
}

// Older reports whether a version is that of an earlier release than another. What is no release is neither older nor newer.
func Older(one, other string) bool {
	from, isRelease := release(one)
	to, isOtherRelease := release(other)
	return isRelease && isOtherRelease && from.LessThan(to)
}

// ofCommit matches the version that Go, or "git describe", gives the build of a commit that is no release.
var ofCommit = regexp.MustCompile(`[-.][0-9]{14}-[0-9a-f]{12}|-[0-9]+-g[0-9a-f]{7,}`)

// release parses the version of a release, or the tag of its image, which has an underscore for each plus sign.
func release(text string) (parsed *version.Version, isRelease bool) {
	if ofCommit.MatchString(text) {
		return nil, false
	}
	parsed, err := version.ParseSemantic(strings.ReplaceAll(text, "_", "+"))
	if err != nil {
		parsed, err = version.ParseGeneric(text)
	}
	return parsed, err == nil
}

func sameMinor(a, b *version.Version) bool { return a.Major() == b.Major() && a.Minor() == b.Minor() }

// followingMinor is the minor version after that of from between it and to.
func followingMinor(from, to *version.Version) *version.Version {
	if from.Major() < to.Major() {
		return version.MajorMinor(from.Major()+1, 0)
	}
	return version.MajorMinor(from.Major(), from.Minor()+1)
}
