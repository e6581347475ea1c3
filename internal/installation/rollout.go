package installation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/capstan-io/capstan/internal/apply/problem"
)

// AwaitRollout waits until all pods of a Deployment are the desired ones and ready. report is called with how far it is, and why pods
// cannot be created, whenever that changes. On a time-out the error says what the pods lack.
func (c *Cluster) AwaitRollout(ctx context.Context, namespace, name string, report func(string)) error {
	var state, reported string
	err := c.await(ctx, Reference{KindDeployment, namespace, name}, func(found []*unstructured.Unstructured) bool {
		uncreated, done := "", false
		state = "not created yet"
		if len(found) == 1 {
			state, uncreated, done = rolloutState(found[0])
		}
		if now := state + uncreated; now != reported {
			reported = now
			report(now)
		}
		return done
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("Deployment %s/%s: %w: %s%s", namespace, name, err, state, c.describeReasons(ctx, namespace, name))
}

// rolloutState says how many pods of a Deployment are ready, why some cannot be created, such as for a quota, and whether all are ready.
func rolloutState(object *unstructured.Unstructured) (state, uncreated string, done bool) {
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
		return err.Error(), "", false
	}
	desired := ptr.Deref(deployment.Spec.Replicas, 1)
	available := min(deployment.Status.AvailableReplicas, deployment.Status.UpdatedReplicas)
	if why := problem.Uncreated(deployment); why != "" {
		uncreated = "; " + cannotBeCreated + why
	}
	return fmt.Sprintf("%d of %d pods ready", available, desired), uncreated, problem.RolledOut(deployment)
}

// cannotBeCreated begins why there are no pods.
const cannotBeCreated = "its pods cannot be created: "

const (
	diagnosisTimeout = 10 * time.Second
	logLines         = 10
)

// describeReasons says in lines of their own what keeps the pods of a Deployment from being ready. It also reads that when the time to wait
// is over.
func (c *Cluster) describeReasons(ctx context.Context, namespace, name string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
	defer cancel()
	var text strings.Builder
	for _, reason := range c.Reasons(ctx, namespace, name) {
		text.WriteString("\n  " + strings.ReplaceAll(reason, "\n", "\n  "))
	}
	return text.String()
}

// Reasons are what keeps the pods of a Deployment from being ready: what cannot be created, scheduled, pulled, mounted or started.
func (c *Cluster) Reasons(ctx context.Context, namespace, name string) []string {
	object, err := c.Get(ctx, Reference{KindDeployment, namespace, name})
	if err != nil {
		return []string{err.Error()}
	}
	if object == nil {
		return nil
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
		return []string{err.Error()}
	}
	var reasons []string
	if uncreated := problem.Uncreated(deployment); uncreated != "" {
		reasons = append(reasons, cannotBeCreated+uncreated)
	}
	pods, err := c.List(ctx, KindPod, namespace, metav1.FormatLabelSelector(deployment.Spec.Selector))
	if err != nil {
		return append(reasons, err.Error())
	}
	for i := range pods {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pods[i].Object, pod); err != nil || pod.DeletionTimestamp != nil {
			continue
		}
		if reason := c.whyNotReady(ctx, pod); reason != "" && !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// whyNotReady says what a pod lacks; nothing if it is ready.
func (c *Cluster) whyNotReady(ctx context.Context, pod *corev1.Pod) string {
	if problem.Ready(pod) {
		return ""
	}
	found := problem.Of(pod)
	container := found.Container
	switch found.Kind {
	case problem.Unscheduled:
		return fmt.Sprintf("pod %s has no node: %s: %s", pod.Name, found.Reason, found.Message)
	case problem.Image:
		return fmt.Sprintf("pod %s: its image %s cannot be pulled: %s: %s\nCheck --image-registry and --bundle-version; "+
			"--image-pull-credential-file names the password of a registry.", pod.Name, container.Image, found.Reason, found.Message)
	case problem.Crash:
		return fmt.Sprintf("pod %s: its program ended %d times, the last time with exit code %d%s", pod.Name, container.RestartCount,
			found.ExitCode, c.logOf(ctx, pod, container.Name, true))
	case problem.Ended:
		return fmt.Sprintf("pod %s: its program ended with exit code %d%s", pod.Name, found.ExitCode, c.logOf(ctx, pod, container.Name, false))
	case problem.Creation:
		return fmt.Sprintf("pod %s: its container cannot be created: %s", pod.Name, found.Message)
	case problem.None, problem.Starting, problem.Waiting:
	}
	if warning := c.lastWarning(ctx, pod); warning != "" {
		return fmt.Sprintf("pod %s: %s", pod.Name, warning)
	}
	if container != nil {
		return fmt.Sprintf("pod %s: its container waits: %s %s", pod.Name, found.Reason, found.Message)
	}
	return fmt.Sprintf("pod %s is %s and not ready%s", pod.Name, strings.ToLower(string(pod.Status.Phase)), c.logOf(ctx, pod, "", false))
}

// lastWarning is the newest event of type Warning of a pod, such as a Secret that is missing.
func (c *Cluster) lastWarning(ctx context.Context, pod *corev1.Pod) string {
	events, err := c.List(ctx, KindEvent, pod.Namespace, "")
	if err != nil {
		return ""
	}
	newest := &corev1.Event{}
	for i := range events {
		event := &corev1.Event{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(events[i].Object, event)
		if err == nil && event.InvolvedObject.UID == pod.UID && event.Type == corev1.EventTypeWarning &&
			!event.LastTimestamp.Before(&newest.LastTimestamp) {
			newest = event
		}
	}
	if newest.Reason == "" {
		return ""
	}
	return newest.Reason + ": " + newest.Message
}

// logOf is the end of the log of a container, or of its previous run, as lines to append.
func (c *Cluster) logOf(ctx context.Context, pod *corev1.Pod, container string, previous bool) string {
	request := c.Raw().Get().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name, "log").
		Param("tailLines", fmt.Sprint(logLines))
	if container != "" {
		request.Param("container", container)
	}
	if previous {
		request.Param("previous", "true")
	}
	content, err := request.DoRaw(ctx)
	lines := strings.TrimSpace(string(content))
	if err != nil || lines == "" {
		return ""
	}
	return "; its log ends with\n  " + strings.ReplaceAll(lines, "\n", "\n  ")
}

// joinReasons puts several reasons into one sentence.
func joinReasons(reasons []string) string { return strings.Join(reasons, "; ") }

// Running is what a Deployment runs.
type Running struct {
	Exists      bool
	Available   bool // to do its work: a pod is ready
	Image       string
	Replicas    int64
	Args        []string
	Labels      map[string]string
	Annotations map[string]string
	// The settings of the pod that a user may have changed, as in the values of a chart.
	NodeSelector, Affinity, Resources map[string]any
	Tolerations                       []any

	// More of these. ServiceAccount, of the same namespace, may have pull secrets besides those of the pod.
	PodSecurityContext, SecurityContext             map[string]any
	PullSecrets, HostAliases, Volumes, VolumeMounts []any
	PullPolicy, PriorityClassName, ServiceAccount   string
}

// readPod reads settings of the spec of a pod.
func (r *Running) readPod(pod map[string]any) {
	r.PodSecurityContext, _, _ = unstructured.NestedMap(pod, "securityContext")
	r.PullSecrets, _, _ = unstructured.NestedSlice(pod, "imagePullSecrets")
	r.HostAliases, _, _ = unstructured.NestedSlice(pod, "hostAliases")
	r.Volumes, _, _ = unstructured.NestedSlice(pod, "volumes")
	r.PriorityClassName, _, _ = unstructured.NestedString(pod, "priorityClassName")
	r.ServiceAccount, _, _ = unstructured.NestedString(pod, "serviceAccountName")
}

// readContainer reads settings of the container of a pod.
func (r *Running) readContainer(container map[string]any) {
	r.SecurityContext, _, _ = unstructured.NestedMap(container, "securityContext")
	r.VolumeMounts, _, _ = unstructured.NestedSlice(container, "volumeMounts")
	r.PullPolicy, _, _ = unstructured.NestedString(container, "imagePullPolicy")
}

// Deployed reads what a Deployment runs.
func (c *Cluster) Deployed(ctx context.Context, namespace, name string) (Running, error) {
	object, err := c.Get(ctx, Reference{KindDeployment, namespace, name})
	if err != nil || object == nil {
		return Running{}, err
	}
	running := Running{Exists: true, Replicas: 1, Labels: object.GetLabels(), Annotations: object.GetAnnotations()}
	if replicas, found, err := unstructured.NestedInt64(object.Object, "spec", "replicas"); found && err == nil {
		running.Replicas = replicas
	}
	ready, _, _ := unstructured.NestedInt64(object.Object, "status", "availableReplicas")
	running.Available = ready > 0
	pod, _, _ := unstructured.NestedMap(object.Object, "spec", "template", "spec")
	running.NodeSelector, _, _ = unstructured.NestedMap(pod, "nodeSelector")
	running.Affinity, _, _ = unstructured.NestedMap(pod, "affinity")
	running.Tolerations, _, _ = unstructured.NestedSlice(pod, "tolerations")
	running.readPod(pod)
	containers, _, _ := unstructured.NestedSlice(pod, "containers")
	if len(containers) == 0 {
		return running, nil
	}
	if container, ok := containers[0].(map[string]any); ok {
		running.Image, _ = container["image"].(string)
		running.Resources, _ = container["resources"].(map[string]any)
		running.Args, _, _ = unstructured.NestedStringSlice(container, "args")
		running.readContainer(container)
	}
	return running, nil
}

// Release is the release of Helm that a Deployment is a part of.
func (r Running) Release() Release { return releaseOf(r.Annotations) }

// Installer is the tool that keeps what a Deployment is a part of.
func (r Running) Installer() Installer { return InstallerOf(r.Labels, r.Annotations) }

// marshal encodes what is known to be encodable.
func marshal(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return content
}
