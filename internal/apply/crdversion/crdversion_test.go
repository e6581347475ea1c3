package crdversion

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CM-19, KL-23: only the CRDs of a newer release stay as they are.
func TestIsNewer(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{"": false, "devel": false, "v" + ours: false, "1.2.9": false, "v1.10.0": true, "2.0.0": true} {
		crd := &metav1.ObjectMeta{Annotations: map[string]string{fleet.AnnotationOperatorVersion: release}}
		if got := IsNewer(crd); got != want {
			t.Errorf("%s: %t", release, got)
		}
		if Set(crd); IsNewer(crd) {
			t.Errorf("%s: %v is newer", release, crd.Annotations)
		}
	}
}
