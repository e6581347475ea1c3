package frame

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// CM-24, KL-30: of several pods that do not run, the same one is named each time, in whatever order they are listed: a status that changes
// each time would be written for ever.
func TestWaitingNamesOnePod(t *testing.T) {
	t.Parallel()
	created := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	crashing := func(name string, age time.Duration) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, CreationTimestamp: metav1.NewTime(created.Add(-age))},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "agent",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}},
		}
	}
	pods := []corev1.Pod{crashing("a", time.Minute), crashing("b", time.Hour), crashing("c", time.Hour), {}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "agents"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
	for range pods {
		pods = append(pods[1:], pods[0])
		reader := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, _ ...client.ListOption) error {
				list, isPods := into.(*corev1.PodList)
				if !isPods {
					t.Errorf("%T is listed", into)
					return nil
				}
				list.Items = slices.Clone(pods)
				return nil
			}}).Build()
		const want = "pod b: container agent waits: CrashLoopBackOff"
		if got := Waiting(t.Context(), reader, deployment); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
