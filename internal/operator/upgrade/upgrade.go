// Package upgrade decides whether an operator may take over what another version of it has installed.
package upgrade

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// AnnotationVersion on a ClusterManager or Klusterlet is the version of the operator that last installed all of it.
	AnnotationVersion = "capstan.io/installed-version"
	// AnnotationSkip allows an upgrade or a downgrade over several minor versions, at the user's own risk: to the version that is its value,
	// or to any if that is "true".
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
	if err != nil || allows(annotations[AnnotationSkip], to) {
		return nil //nolint:nilerr // no release
	}
	if from.Major() == to.Major() && distance(from.Minor(), to.Minor()) <= 1 {
		return nil
	}
	return fmt.Errorf("version %s is installed, and the operator has version %s: go from one minor version to the next, with an operator of version %d.%d "+
		"first; the annotation %s=true allows the skip, which is not tested", installed, current, from.Major(), towards(from.Minor(), to.Minor()), AnnotationSkip)
}

// Remember writes down on a ClusterManager or Klusterlet that a version of the operator has installed all of it. In memory it changes the
// metadata alone.
func Remember[T interface {
	client.Object
	DeepCopy() T
}](ctx context.Context, writer client.Client, object T, current string) error {
	if object.GetAnnotations()[AnnotationVersion] == current {
		return nil
	}
	written := object.DeepCopy()
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, AnnotationVersion, current)
	if err := writer.Patch(ctx, written, client.RawPatch(types.MergePatchType, change)); err != nil {
		return err
	}
	object.SetAnnotations(written.GetAnnotations())
	object.SetResourceVersion(written.GetResourceVersion())
	return nil
}

// allows tells whether a value of AnnotationSkip is for that version.
func allows(value string, to *version.Version) bool {
	if value == "true" {
		return true
	}
	named, err := version.ParseSemantic(value)
	return err == nil && named.EqualTo(to)
}

func distance(a, b uint) uint { return max(a, b) - min(a, b) }

// towards is the minor version next to from on the way to to.
func towards(from, to uint) uint {
	if to < from {
		return from - 1
	}
	return from + 1
}
