package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}
}

func template(app string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"app": app}
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}
}

// deployWeb makes the Deployment web and waits until it is available.
func deployWeb(t *testing.T, client kubernetes.Interface, ns string, replicas int32) {
	t.Helper()
	const name = "web"
	selector, pods := template(name)
	_, err := client.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: pods},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		d, err := client.AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if d.Status.AvailableReplicas != replicas {
			return fmt.Sprintf("%d of %d available", d.Status.AvailableReplicas, replicas)
		}
		return ""
	})
}

// runningApart checks that count pods are Running and Ready, each at an address of its own.
func runningApart(ctx context.Context, client kubernetes.Interface, ns, selector string, count int) string {
	pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err.Error()
	}
	ips := sets.New[string]()
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && podReady(&pod) {
			ips.Insert(pod.Status.PodIP)
		}
	}
	if ips.Has("") || len(ips) != count || len(pods.Items) != count {
		return fmt.Sprintf("%d pods, ready at %v; want %d", len(pods.Items), sets.List(ips), count)
	}
	return ""
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return pod.Status.Phase == corev1.PodRunning && c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestDeployment(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	deployWeb(t, client, ns, 3)
	eventually(t, func(ctx context.Context) string { return runningApart(ctx, client, ns, "app=web", 3) })

	scale, err := client.AppsV1().Deployments(ns).GetScale(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 1
	if _, err := client.AppsV1().Deployments(ns).UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string { return runningApart(ctx, client, ns, "app=web", 1) })

	// Its ReplicaSet and pods go with it.
	if err := client.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string { return runningApart(ctx, client, ns, "app=web", 0) })
}

func TestStatefulSet(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	selector, pods := template("db")
	_, err := client.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2), ServiceName: "db", Selector: selector, Template: pods},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string { return runningApart(ctx, client, ns, "app=db", 2) })
	if _, err := client.CoreV1().Pods(ns).Get(t.Context(), "db-1", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A DaemonSet has a pod on each node; on the host's network it has the node's address.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	selector, pods := template("agent")
	pods.Spec.HostNetwork = true
	pods.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	_, err := client.AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: pods},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string { return runningApart(ctx, client, ns, "app=agent", 2) })
	list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		if pod.Status.PodIP != pod.Status.HostIP {
			t.Errorf("pod %s on the host's network: address %s, want %s", pod.Name, pod.Status.PodIP, pod.Status.HostIP)
		}
	}
}

func jobSpec() batchv1.JobSpec {
	spec := podSpec()
	spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Completions: ptr.To[int32](2), Template: corev1.PodTemplateSpec{Spec: spec}}
}

func jobComplete(job *batchv1.Job) string {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return fmt.Sprintf("Job %s is not complete: %+v", job.Name, job.Status)
}

func TestJobCompletes(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	_, err := client.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: jobSpec()},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		job, err := client.BatchV1().Jobs(ns).Get(ctx, "once", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return jobComplete(job)
	})
}

// A CronJob whose last run is long ago runs at once.
func TestCronJobRuns(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	cron, err := client.BatchV1().CronJobs(ns).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "often"},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec()}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		cron, err = client.BatchV1().CronJobs(ns).Get(ctx, "often", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if cron.Status.LastScheduleTime == nil {
			cron.Status.LastScheduleTime = ptr.To(metav1.NewTime(time.Now().Add(-10 * time.Minute)))
			if _, err := client.BatchV1().CronJobs(ns).UpdateStatus(ctx, cron, metav1.UpdateOptions{}); err != nil {
				return err.Error()
			}
		}
		jobs, err := client.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(jobs.Items) == 0 {
			return fmt.Sprintf("%d jobs, error %v", len(jobs.Items), err)
		}
		return jobComplete(&jobs.Items[0])
	})
}

// The pod of the first example of the documentation runs, although it would end if it were executed, and its logs say
// why there are none.
func TestHelloPod(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	_, err := client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyOnFailure,
			Containers: []corev1.Container{{
				Name: "hello", Image: "busybox", Command: []string{"sh", "-c", `echo "Hello, Kubernetes!" && sleep 3600`},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		pod, err := client.CoreV1().Pods(ns).Get(ctx, "hello", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !podReady(pod) || len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Sprintf("not Running 1/1: %+v", pod.Status)
		}
		return ""
	})
	_, err = client.CoreV1().Pods(ns).GetLogs("hello", &corev1.PodLogOptions{}).Stream(t.Context())
	if err == nil || !strings.Contains(err.Error(), "containers do not execute") {
		t.Errorf("logs: got error %v, want one that says that containers do not execute", err)
	}
}

// A deleted pod goes at once; one with a finalizer stays until that is gone, with its containers ended.
func TestPodDeletion(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	pods := client.CoreV1().Pods(ns)
	for _, pod := range []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "free"}, Spec: podSpec()},
		{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}, Spec: podSpec()},
	} {
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func(ctx context.Context) string {
			got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil || !podReady(got) {
				return fmt.Sprintf("pod %s is not ready, error %v", pod.Name, err)
			}
			return ""
		})
		if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) {
		eventually(t, func(ctx context.Context) string {
			if _, err := pods.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("pod %s: got error %v, want not found", name, err)
			}
			return ""
		})
	}
	gone("free")
	eventually(t, func(ctx context.Context) string {
		held, err := pods.Get(ctx, "held", metav1.GetOptions{})
		if err != nil || held.Status.Phase != corev1.PodFailed {
			return fmt.Sprintf("the pod with a finalizer: phase %s, error %v; want Failed", held.Status.Phase, err)
		}
		return ""
	})
	if _, err := pods.Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	gone("held")
}

func TestServiceHasEndpoints(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	deployWeb(t, client, ns, 2)
	_, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		slices, err := client.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil || len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 2 {
			return fmt.Sprintf("endpoint slices: %+v, error %v; want one with two endpoints", slices.Items, err)
		}
		endpoints, err := client.CoreV1().Endpoints(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil || len(endpoints.Subsets) != 1 || len(endpoints.Subsets[0].Addresses) != 2 {
			return fmt.Sprintf("endpoints: %+v, error %v; want two addresses", endpoints.Subsets, err)
		}
		return ""
	})
}

// A PodDisruptionBudget lets one pod be evicted and refuses the next.
func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	selector, _ := template("web")
	_, err := client.PolicyV1().PodDisruptionBudgets(ns).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: selector},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployWeb(t, client, ns, 2)
	eventually(t, func(ctx context.Context) string {
		budget, err := client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil || budget.Status.CurrentHealthy != 2 {
			return fmt.Sprintf("budget: %+v, error %v; want two healthy", budget.Status, err)
		}
		return ""
	})
	pods, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = client.PolicyV1().Evictions(ns).Evict(t.Context(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pods.Items[0].Name}})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("evict below the budget: got %v, want too many requests", err)
	}
}

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	deployWeb(t, client, ns, 2)
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		if _, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("namespace: got error %v, want not found", err)
		}
		return ""
	})
}

func TestOwnedObjectsFollow(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	owner, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := metav1.ObjectMeta{Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}
	if _, err := client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: owned}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		if _, err := client.CoreV1().Secrets(ns).Get(ctx, "owned", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("owned secret: got error %v, want not found", err)
		}
		return ""
	})
}

// Claims and volumes, which have a finalizer each as long as something may use them, go when they are deleted.
func TestVolumesAreDeleted(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	ns := namespace(t, client)
	capacity := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claims, volumes := client.CoreV1().PersistentVolumeClaims(ns), client.CoreV1().PersistentVolumes()
	_, claimErr := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: capacity}},
	}, metav1.CreateOptions{})
	_, volumeErr := volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: corev1.PersistentVolumeSpec{AccessModes: modes, Capacity: capacity, PersistentVolumeSource: corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}},
	}, metav1.CreateOptions{})
	if err := errors.Join(claimErr, volumeErr); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(claims.Delete(t.Context(), ns, metav1.DeleteOptions{}), volumes.Delete(t.Context(), ns, metav1.DeleteOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		_, claimErr := claims.Get(ctx, ns, metav1.GetOptions{})
		_, volumeErr := volumes.Get(ctx, ns, metav1.GetOptions{})
		if !apierrors.IsNotFound(claimErr) || !apierrors.IsNotFound(volumeErr) {
			return fmt.Sprintf("claim: %v, volume: %v; want both not found", claimErr, volumeErr)
		}
		return ""
	})
}

// A node that is deleted comes back, and its pods with it.
func TestNodeComesBack(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared)
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) string {
		again, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil || again.UID == node.UID || !nodeReady(again) {
			return fmt.Sprintf("node %s: error %v; want a new one that is Ready", node.Name, err)
		}
		return ""
	})
}
