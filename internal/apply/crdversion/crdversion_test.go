package crdversion

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// CM-19, KL-23: only the CRDs of a newer version, or of the same one from a later release, stay as they are. A build that is no release is
// neither earlier nor later.
func TestIsNewer(t *testing.T) {
	t.Parallel()
	const build = "v1.4.1-0.20261120101112-0123456789ab"
	for name, test := range map[string]struct {
		version, release, program string
		want                      bool
	}{
		"of nobody":                        {program: "v1.4.0"},
		"a version that cannot be read":    {version: "devel", release: "v1.5.0", program: "v1.4.0"},
		"of no release":                    {version: ours, program: "v1.4.0"},
		"older":                            {version: "1.2.9", program: "v1.4.0"},
		"older, by a later release":        {version: "1.2.9", release: "v1.5.0", program: "v1.4.0"},
		"newer":                            {version: "v1.10.0", program: "v1.4.0", want: true},
		"newer, for a build":               {version: "2.0.0", program: "devel", want: true},
		"newer, by an earlier release":     {version: "2.0.0", release: "v1.3.0", program: "v1.4.0", want: true},
		"the same":                         {version: "v" + ours, release: "v1.4.0", program: "v1.4.0"},
		"by an earlier release":            {version: ours, release: "v1.3.9", program: "v1.4.0"},
		"by a later release":               {version: ours, release: "v1.10.0", program: "v1.4.0", want: true},
		"by a later patch":                 {version: ours, release: "v1.4.1", program: "v1.4.0", want: true},
		"by the release, for a candidate":  {version: ours, release: "v1.4.0", program: "v1.4.0-rc.1", want: true},
		"by a later release, for a build":  {version: ours, release: "v1.5.0", program: build},
		"by a later release, for no build": {version: ours, release: "v1.5.0", program: "devel"},
		"by a build":                       {version: ours, release: build, program: "v1.4.0"},
	} {
		crd := &metav1.ObjectMeta{Annotations: map[string]string{
			fleet.AnnotationOperatorVersion: test.version, upgrade.AnnotationVersion: test.release}}
		if got := IsNewer(crd, test.program); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
		if Set(crd, test.program); IsNewer(crd, test.program) {
			t.Errorf("%s: %v is newer", name, crd.Annotations)
		}
	}
}

// CM-19, KL-23: a release says which it is, for earlier ones. What is no release leaves that as it finds it.
func TestSet(t *testing.T) {
	t.Parallel()
	crd := &metav1.ObjectMeta{}
	for _, step := range []struct{ program, want string }{{"devel", ""}, {"v1.4.0", "v1.4.0"}, {"devel", "v1.4.0"}, {"v1.5.0", "v1.5.0"}} {
		Set(crd, step.program)
		if got := crd.Annotations[upgrade.AnnotationVersion]; got != step.want || crd.Annotations[fleet.AnnotationOperatorVersion] != ours {
			t.Errorf("%s: %v, want release %q", step.program, crd.Annotations, step.want)
		}
	}
}
