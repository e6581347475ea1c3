package klusterlet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// KL-30, CA-41: an agent whose new pods do not start is degraded, though those of before are available, and one whose rollout goes on is
// not. Its version is not recorded as installed before it runs.
func TestRollout(t *testing.T) {
	t.Parallel()
	const name = "Deployment open-cluster-management-agent/klusterlet-agent"
	const runs = "False DeploymentsFunctional All 1 pods of " + name + " are available"
	const notRolledOut, reason = "True UnavailablePods " + name + " has not rolled out: ", "pod new: container agent waits: ImagePullBackOff"
	overdue := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse,
		Reason: "ProgressDeadlineExceeded", Message: "it has timed out progressing"}
	// of is the status of a Deployment that has one pod of before, or its replacement, and one that is on top.
	of := func(observed int64, replicas, available int32, conditions ...appsv1.DeploymentCondition) appsv1.DeploymentStatus {
		return appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: 1, AvailableReplicas: available,
			Conditions: conditions}
	}
	const starts, fails = "ContainerCreating", "ImagePullBackOff"
	for what, test := range map[string]struct {
		uid        types.UID
		generation int64
		status     appsv1.DeploymentStatus
		// waits is what the new pod waits for, and ends reports whether it is being deleted.
		waits               string
		ends                bool
		degraded            string
		available, recorded bool
	}{
		"it runs":            {uid: "a", generation: 2, status: of(2, 1, 1), waits: fails, degraded: runs, available: true, recorded: true},
		"the new pod starts": {uid: "a", generation: 2, status: of(2, 2, 1), waits: starts, degraded: runs, available: true},
		"the new pod does not start": {uid: "a", generation: 2, status: of(2, 2, 1), waits: fails,
			degraded: notRolledOut + reason, available: true},
		"the pod of before ends": {uid: "a", generation: 2, status: of(2, 2, 2), waits: fails, ends: true, degraded: runs, available: true},
		"the new pod starts for too long": {uid: "a", generation: 2, status: of(2, 2, 1, overdue), waits: starts,
			degraded: notRolledOut + overdue.Message, available: true},
		"its controller has not seen it": {uid: "a", generation: 2, status: of(1, 1, 1, overdue), waits: starts, degraded: runs, available: true},
		"its controller has not seen what mends it": {uid: "a", generation: 2, status: of(1, 1, 1), waits: fails,
			degraded: notRolledOut + reason, available: true},
		"no pod runs": {uid: "a", generation: 2, status: of(2, 1, 0), waits: fails,
			degraded: "True UnavailablePods 1 of 1 pods of " + name + " are unavailable: " + reason},
		"the operator has not seen what it has applied": {uid: "a", generation: 1, status: of(1, 1, 1), waits: fails,
			degraded: runs, available: true},
		"the operator has not seen that it is another one": {uid: "b", generation: 3, status: of(3, 1, 1), waits: fails,
			degraded: runs, available: true},
	} {
		k := klusterletWith(operatorv1.InstallModeSingleton)
		l := layoutOf(k)
		p := planFor(l, plainInputs)
		applied, isDeployment := p.deployments[0].(*appsv1.Deployment)
		if !isDeployment {
			t.Fatalf("%T comes first", p.deployments[0])
		}
		applied.UID, applied.Generation = "a", 2
		live := applied.DeepCopy()
		live.UID, live.Generation, live.Status = test.uid, test.generation, test.status
		get := func(context.Context, types.NamespacedName) (*appsv1.Deployment, error) { return live, nil }
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: "new", Labels: applied.Spec.Template.Labels},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "agent",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: test.waits}}}}}}
		if test.ends {
			pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"a.test/stay"}
		}
		c := &Controller{Operator: &frame.Operator{Client: clusterWith(k.DeepCopy(), pod), Options: frame.Options{Version: "v1.5.0"}}}

		newReport(k).deployments(t.Context(), c.Client, get, l)
		for _, kind := range []string{fleet.ConditionRegistrationDesiredDegraded, fleet.ConditionWorkDesiredDegraded} {
			condition := meta.FindStatusCondition(k.Status.Conditions, kind)
			if got := fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message); got != test.degraded {
				t.Errorf("%s: %s is %s, want %s", what, kind, got, test.degraded)
			}
		}
		if got := meta.IsStatusConditionTrue(k.Status.Conditions, fleet.ConditionAvailable); got != test.available {
			t.Errorf("%s: available: %t", what, got)
		}
		err := c.recordInstalled(t.Context(), k, p, get)
		if recorded := k.Annotations[upgrade.AnnotationVersion] == "v1.5.0"; err != nil || recorded != test.recorded {
			t.Errorf("%s: recorded: %t, %v", what, recorded, err)
		}
	}
}

// KL-31: the operator reads what the agent says of its connection where the agent runs, in all modes.
func TestAgentReport(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		l := layoutOf(klusterletWith(mode))
		read := func(objects ...client.Object) *corev1.ConfigMap {
			t.Helper()
			c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()}}
			report, err := c.agentReport(t.Context(), l)
			if err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			return report
		}
		if report := read(); report != nil {
			t.Errorf("%s: the report is %v", mode, report)
		}
		stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: fleet.ConfigMapHubConnection}}
		if report := read(stored); report == nil {
			t.Errorf("%s: there is no report", mode)
		}
	}
}

// KL-31: that the agent does not reach the hub is logged when it starts and when it ends, and not in between.
func TestAgentFailureIsLogged(t *testing.T) {
	t.Parallel()
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	ctx := log.IntoContext(t.Context(), logger)
	works := &metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionFalse,
		Reason: fleet.ReasonHubConnectionFunctional}
	fails := hubaccess.WithAgent(works, &corev1.ConfigMap{Data: map[string]string{fleet.KeyHubConnectionMessage: "i/o timeout"}})
	k := klusterletWith(operatorv1.InstallModeDefault)
	for _, condition := range []*metav1.Condition{nil, works, fails, fails, works, works} {
		newReport(k).connection(ctx, condition)
	}
	said := func(text string) int {
		return len(slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, text) }))
	}
	if len(lines) != 2 || said("i/o timeout") != 1 || said("reaches its hub again") != 1 {
		t.Errorf("the log is %q", lines)
	}
}
