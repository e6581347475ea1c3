package apply

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

var (
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
)

// awaitMissing tracks what a manifest fails for the lack of, if that is known.
func (a *applier) awaitMissing(owner string, o *manifestResult) {
	if o.missing != nil {
		a.tracked.Track(owner, *o.missing)
	}
}

// namespaceOf is the namespace that does not exist by an error of the API server; nil if that is not why.
func namespaceOf(err error) *tracker.Object {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return nil
	}
	details := answer.Status().Details
	if details == nil || details.Group != namespaces.Group || details.Kind != namespaces.Resource {
		return nil
	}
	return &tracker.Object{GroupVersionResource: namespaces, NamespacedName: types.NamespacedName{Name: details.Name}}
}

// definitionOf is the definition that a kind of custom resources has, by the plural that kinds usually have.
func definitionOf(kind schema.GroupVersionKind) *tracker.Object {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return &tracker.Object{GroupVersionResource: definitions, NamespacedName: types.NamespacedName{Name: plural.GroupResource().String()}}
}
