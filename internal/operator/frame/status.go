package frame

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/gates"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// ReasonVersionRefused of the condition Applied, which Open Cluster Management does not have: the operator is older than what is installed,
// or too far ahead of it.
const ReasonVersionRefused = "VersionRefused"

// CheckUpgrade is an error if the operator may not take over what another version has installed for the custom resource.
func (o *Operator) CheckUpgrade(resource client.Object) error {
	annotations := resource.GetAnnotations()
	return upgrade.Check(annotations[upgrade.AnnotationVersion], o.Version, annotations)
}

// Related names the objects, sorted.
func Related(scheme *runtime.Scheme, objects ...client.Object) ([]operatorv1.RelatedResourceMeta, error) {
	var related []operatorv1.RelatedResourceMeta
	for _, object := range objects {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, err
		}
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if kind.Kind == "Endpoints" {
			resource.Resource = "endpoints"
		}
		related = append(related, operatorv1.RelatedResourceMeta{Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
			Namespace: object.GetNamespace(), Name: object.GetName()})
	}
	slices.SortFunc(related, func(a, b operatorv1.RelatedResourceMeta) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(related), nil
}

// Generations are those of the Deployments among the objects, as they were applied.
func Generations(objects ...client.Object) (generations []operatorv1.GenerationStatus) {
	for _, object := range objects {
		if _, ok := object.(*appsv1.Deployment); ok {
			generations = append(generations, operatorv1.GenerationStatus{Group: appsv1.GroupName, Version: "v1", Resource: "deployments",
				Namespace: object.GetNamespace(), Name: object.GetName(), LastGeneration: object.GetGeneration()})
		}
	}
	return generations
}

// ValidFeatureGates is the condition of that type.
func ValidFeatureGates(values ...gates.Values) metav1.Condition {
	if unknown := gates.Unknown(values...); unknown != "" {
		return metav1.Condition{Type: fleet.ConditionValidFeatureGates, Status: metav1.ConditionFalse,
			Reason:  fleet.ReasonInvalidFeatureGatesExisting,
			Message: "There are feature gates that do not exist and are left out: " + unknown}
	}
	return metav1.Condition{Type: fleet.ConditionValidFeatureGates, Status: metav1.ConditionTrue, Reason: fleet.ReasonFeatureGatesAllValid,
		Message: "All feature gates exist"}
}
