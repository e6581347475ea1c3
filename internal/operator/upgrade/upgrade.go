// Package upgrade decides whether an operator may take over what another version of it has installed.
package upgrade

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// AnnotationVersion on a ClusterManager or Klusterlet is the version of the operator that last installed all of it.
	AnnotationVersion = "capstan.io/installed-version"
	// AnnotationSkip with the value "true" allows an upgrade or a downgrade over several minor versions, at the user's own risk.
	AnnotationSkip = "capstan.io/allow-version-skip"
)

// Check returns an error if between the two versions is more than one minor version: what is stored and what runs is only tested from one
// minor version to the next. Versions of builds that are no releases are not compared.
func Check(installed, current string, annotations map[string]string) error {
	from, err := version.ParseSemantic(installed)
	if err != nil {
		return nil //nolint:nilerr // no release
	}
	to, err := version.ParseSemantic(current)
	if err != nil || annotations[AnnotationSkip] == "true" {
		return nil //nolint:nilerr // no release
	}
	if from.Major() == to.Major() && distance(from.Minor(), to.Minor()) <= 1 {
		return nil
	}
	return fmt.Errorf("version %s is installed, and the operator has version %s: go from one minor version to the next, with an operator of version %d.%d "+
		"first; the annotation %s=true allows the skip, which is not tested", installed, current, from.Major(), towards(from.Minor(), to.Minor()), AnnotationSkip)
}

func distance(a, b uint) uint { return max(a, b) - min(a, b) }

// towards is the minor version next to from on the way to to.
func towards(from, to uint) uint {
	if to < from {
		return from - 1
	}
	return from + 1
}
