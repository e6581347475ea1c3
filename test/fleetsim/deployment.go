package fleetsim

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// rollOut gives a Deployment the status of one whose pods all run.
func rollOut(o *unstructured.Unstructured) error {
	replicas, found, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if err != nil {
		return fmt.Errorf("deployment %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	if !found {
		replicas = 1
	}
	n := int32(replicas)
	status := appsv1.DeploymentStatus{
		ObservedGeneration: o.GetGeneration(), Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
		TerminatingReplicas: ptr.To[int32](0),
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", LastTransitionTime: metav1.Now()},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", LastTransitionTime: metav1.Now()},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	o.Object["status"] = content
	return nil
}
