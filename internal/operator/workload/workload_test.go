package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

// KL-12, CM-08: the resources that a user sets are those of all containers of a pod. An init container keeps its own.
func TestResourcesOfAllContainers(t *testing.T) {
	t.Parallel()
	memory := func(quantity string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(quantity)}}
	}
	little := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2m"), corev1.ResourceMemory: resource.MustParse("16Mi")}}
	chosen := memory("64Mi")
	for name, test := range map[string]struct {
		set  *operatorv1.ResourceRequirement
		want corev1.ResourceRequirements
	}{
		"nothing":     {nil, little},
		"by default":  {&operatorv1.ResourceRequirement{Type: operatorv1.ResourceQosClassDefault}, little},
		"best effort": {&operatorv1.ResourceRequirement{Type: operatorv1.ResourceQosClassBestEffort}, corev1.ResourceRequirements{}},
		"in detail": {&operatorv1.ResourceRequirement{Type: operatorv1.ResourceQosClassResourceRequirement,
			ResourceRequirements: &chosen}, memory("64Mi")},
	} {
		c := Component{Name: "agent", InitContainers: []corev1.Container{{Name: "copy"}, {Name: "own", Resources: memory("1Gi")}}}
		pod := c.Deployment(Settings{Resources: test.set}).Spec.Template.Spec
		for i, want := range []corev1.ResourceRequirements{test.want, memory("1Gi")} {
			if got := pod.InitContainers[i].Resources; !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: init container %s has %v, want %v", name, pod.InitContainers[i].Name, got, want)
			}
		}
		if got := pod.Containers[0].Resources; !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("%s: the program has %v, want %v", name, got, test.want)
		}
		if own := c.InitContainers[0].Resources; !equality.Semantic.DeepEqual(own, corev1.ResourceRequirements{}) {
			t.Errorf("%s: the component was changed: %v", name, own)
		}
	}
}
