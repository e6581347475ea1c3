// Package crdversion has CustomResourceDefinitions say which version of the API they are of, so that nobody applies an older one over a
// newer one: its schema would drop fields of what users have stored. It is pure.
package crdversion

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ours is the release of Open Cluster Management whose API the definitions of this program are.
const ours = "1.3.1"

// Set says on a definition of this program which version it is of. It is set before the definition is applied.
func Set(crd metav1.Object) {
	annotations := maps.Clone(crd.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[fleet.AnnotationOperatorVersion] = ours
	crd.SetAnnotations(annotations)
}

// IsNewer reports whether a definition on a cluster is of a newer version than those of this program: it stays as it is. One that says no
// version, or none that can be read, is older.
func IsNewer(crd metav1.Object) bool {
	live, err := version.ParseGeneric(crd.GetAnnotations()[fleet.AnnotationOperatorVersion])
	return err == nil && version.MustParseGeneric(ours).LessThan(live)
}
