// Package crdversion has CustomResourceDefinitions say which version of the API they are of, and which release of this program has applied
// them, so that nobody applies an older one over a newer one: its schema would drop fields of what users have stored. It is pure.
package crdversion

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// ours is the release of Open Cluster Management whose API the definitions of this program are.
const ours = "1.3.1"

// Set says on a definition of this program which version it is of, and which release applies it. It is set before the definition is
// applied. A build that is no release says nothing of a release, not even that there is none: else it and a release that apply the same
// definition would write that in turn, without end.
func Set(crd metav1.Object, program string) {
	annotations := maps.Clone(crd.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[fleet.AnnotationOperatorVersion] = ours
	if upgrade.IsRelease(program) {
		annotations[upgrade.AnnotationVersion] = program
	}
	crd.SetAnnotations(annotations)
}

// IsNewer reports whether a definition on a cluster is of a newer version than those of this program, or of the same version by a later
// release: it stays as it is. One that says no version, or none that can be read, is older. A build that is no release is neither earlier
// nor later than any.
func IsNewer(crd metav1.Object, program string) bool {
	annotations := crd.GetAnnotations()
	live, err := version.ParseGeneric(annotations[fleet.AnnotationOperatorVersion])
	if err != nil {
		return false
	}
	own := version.MustParseGeneric(ours)
	if own.EqualTo(live) {
		return upgrade.Older(program, annotations[upgrade.AnnotationVersion])
	}
	return own.LessThan(live)
}
