package objecthealth

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Gaps W5 and W6: the health of every known kind.
func TestHealth(t *testing.T) {
	t.Parallel()
	for kind, tests := range map[string][]struct {
		content string
		want    Phase
		message string
	}{
		"apps/v1 Deployment": {
			{"{}", InProgress, "not seen it yet"},
			{"{metadata: {generation: 2}, spec: {replicas: 1}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas: 1}}", InProgress, "not seen the latest change"},
			{"{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 2, availableReplicas: 3}}", InProgress, "2 of 3 replicas are updated"},
			{"{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 4, updatedReplicas: 3, availableReplicas: 3}}", InProgress, "1 old replicas"},
			{"{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, availableReplicas: 1}}", InProgress, "1 of 3 replicas are available"},
			{"{metadata: {generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, availableReplicas: 3}}", Current, "3 of 3"},
			{"{metadata: {generation: 1}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1}}", InProgress, "0 of 1"},
			{"{metadata: {generation: 1}, spec: {replicas: 0}, status: {observedGeneration: 1}}", Current, ""},
			{"{spec: {paused: true}, status: {observedGeneration: 1}}", Current, "it is paused; 0 of 1"},
			{"{spec: {paused: true, replicas: 2}, status: {observedGeneration: 1, replicas: 2, availableReplicas: 2}}", Current, "it is paused; 2 of 2"},
			{"{spec: {paused: false}, status: {observedGeneration: 1}}", InProgress, "0 of 1"},
			{`{spec: {paused: true}, status: {observedGeneration: 1, conditions: [{type: ReplicaFailure, status: "True", message: quota}]}}`, Failed,
				"quota"},
			{`{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: too slow}]}}`, Failed, "too slow"},
			{`{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota}]}}`, Failed, "quota"},
			{`{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {observedGeneration: 1}}`, InProgress,
				"being deleted since 2026-01-01T00:00:00Z"},
			{`{spec: wrong, status: {observedGeneration: 1, replicas: "many", conditions: [1, {}]}}`, InProgress, "0 of 1"},
		},
		"apps/v1 StatefulSet": {
			{"{}", InProgress, "not seen it yet"},
			{"{spec: {replicas: 2}, status: {observedGeneration: 1, readyReplicas: 1}}", InProgress, "1 of 2 replicas are ready"},
			{"{spec: {replicas: 2}, status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}}", InProgress, "1 of 2 replicas are updated"},
			{"{spec: {replicas: 2, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}, status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}}", Current, ""},
			{"{spec: {replicas: 2, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, currentRevision: a, updateRevision: b}}", Current, ""},
			{"{spec: {replicas: 2}, status: {observedGeneration: 1, replicas: 3, readyReplicas: 3, updatedReplicas: 3, currentRevision: a, updateRevision: a}}", InProgress, "1 replicas too many"},
			{"{spec: {replicas: 2}, status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, currentRevision: a, updateRevision: a}}", Current,
				"2 of 2"},
		},
		"apps/v1 DaemonSet": {
			{"{}", InProgress, "not seen it yet"},
			{"{status: {observedGeneration: 1, desiredNumberScheduled: 2, updatedNumberScheduled: 1, numberAvailable: 2}}", InProgress,
				"1 of 2 nodes are updated"},
			{"{status: {observedGeneration: 1, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}}", InProgress,
				"1 of 2 nodes are available"},
			{"{status: {observedGeneration: 1, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2}}", Current, ""},
			{"{spec: {updateStrategy: {type: OnDelete}}, status: {observedGeneration: 1, desiredNumberScheduled: 2, numberAvailable: 2}}", Current,
				""},
			{"{status: {observedGeneration: 1}}", Current, "0 of 0"},
		},
		"apps/v1 ReplicaSet": {
			{"{}", InProgress, "not seen it yet"},
			{"{status: {observedGeneration: 1, replicas: 1}}", InProgress, "0 of 1"},
			{"{status: {observedGeneration: 1, replicas: 2, availableReplicas: 1}}", InProgress, "too many"},
			{"{status: {observedGeneration: 1, replicas: 1, availableReplicas: 1}}", Current, ""},
			{`{status: {observedGeneration: 1, conditions: [{type: ReplicaFailure, status: "True", message: quota}]}}`, Failed, "quota"},
		},
		"batch/v1 Job": {
			{"{}", InProgress, "0 pods are active"},
			{"{status: {active: 2, failed: 1}}", InProgress, "2 pods are active, 0 succeeded, 1 failed"},
			{`{status: {conditions: [{type: Complete, status: "True"}]}}`, Current, "complete"},
			{`{status: {conditions: [{type: Suspended, status: "True"}]}}`, Current, "suspended"},
			{`{status: {conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded}]}}`, Failed, "BackoffLimitExceeded"},
		},
		"batch/v1 CronJob": {{"{}", Current, ""}, {"{spec: {suspend: true}}", Current, ""}},
		"v1 Pod": {
			{"{}", InProgress, "not ready"},
			{`{status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: no node}]}}`, InProgress,
				"no node"},
			{`{status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`, InProgress, "not ready"},
			{`{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, Current, "ready"},
			{"{status: {phase: Succeeded}}", Current, "succeeded"},
			{"{status: {phase: Failed, reason: Evicted}}", Failed, "Evicted"},
			{"{status: {phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff, message: again and again}}}]}}",
				Failed, "the container c waits: again and again"},
			{"{status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: ImagePullBackOff}}}]}}", Failed,
				"the container i waits: ImagePullBackOff"},
			{"{status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}}", InProgress, "not ready"},
		},
		"v1 Service": {
			{"{spec: {type: ClusterIP}}", Current, ""},
			{"{spec: {type: LoadBalancer}}", InProgress, "no address"},
			{"{spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}", Current, ""},
		},
		"v1 PersistentVolumeClaim": {
			{"{}", InProgress, "no volume"}, {"{status: {phase: Pending}}", InProgress, "no volume"},
			{"{status: {phase: Bound}}", Current, ""}, {"{status: {phase: Lost}}", Failed, "lost"},
		},
		"v1 Namespace":                 {{"{status: {phase: Active}}", Current, ""}, {"{status: {phase: Terminating}}", InProgress, "deleted"}},
		"networking.k8s.io/v1 Ingress": {{"{}", Current, ""}},
		"apiextensions.k8s.io/v1 CustomResourceDefinition": {
			{"{}", InProgress, "not served yet"},
			{`{status: {conditions: [{type: Established, status: "True"}, {type: NamesAccepted, status: "True"}]}}`, Current, ""},
			{`{status: {conditions: [{type: NamesAccepted, status: "False", message: taken}]}}`, Failed, "taken"},
		},
		"apiregistration.k8s.io/v1 APIService": {
			{"{}", InProgress, "not served yet"},
			{`{status: {conditions: [{type: Available, status: "False", message: no endpoints}]}}`, InProgress, "no endpoints"},
			{`{status: {conditions: [{type: Available, status: "True"}]}}`, Current, ""},
		},
		"autoscaling/v2 HorizontalPodAutoscaler": {
			{"{}", Current, ""},
			{`{status: {conditions: [{type: AbleToScale, status: "False", message: no target}]}}`, InProgress, "no target"},
			{`{status: {conditions: [{type: ScalingActive, status: "False", reason: FailedGetResourceMetric, message: no metrics}]}}`, InProgress,
				"no metrics"},
			{`{status: {conditions: [{type: ScalingActive, status: "False", reason: ScalingDisabled}]}}`, Current, ""},
		},
		"policy/v1 PodDisruptionBudget": {
			{"{metadata: {generation: 2}, status: {observedGeneration: 1}}", InProgress, "latest change"},
			{`{status: {conditions: [{type: DisruptionAllowed, status: "False", reason: InsufficientPods}]}}`, Current, ""},
			{`{status: {conditions: [{type: DisruptionAllowed, status: "False", reason: SyncFailed, message: found no controllers}]}}`, Failed,
				"no controllers"},
		},
		"example.com/v1 Thing": {
			{"{}", Current, ""},
			{"{metadata: {generation: 2}, status: {observedGeneration: 1}}", InProgress, "latest change"},
			{`{status: {conditions: [{type: Ready, status: "Unknown", reason: Waiting}]}}`, InProgress, "Waiting"},
			{`{status: {conditions: [{type: Ready, status: "True"}]}}`, Current, ""},
			{`{status: {conditions: [{type: Ready, status: "True"}, {type: Reconciling, status: "True"}]}}`, InProgress,
				"the condition Reconciling is True"},
			{`{status: {conditions: [{type: Ready, status: "False"}, {type: Stalled, status: "True", message: gave up}]}}`, Failed, "gave up"},
		},
	} {
		apiVersion, name, _ := strings.Cut(kind, " ")
		for _, test := range tests {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(test.content), &o.Object); err != nil {
				t.Fatalf("%s: %v", test.content, err)
			}
			integers(o.Object)
			o.SetAPIVersion(apiVersion)
			o.SetKind(name)
			got := Of(o)
			if got.Phase != test.want || !strings.Contains(got.Message, test.message) || got.Message == "" {
				t.Errorf("%s %s: %+v, want %s %q", kind, test.content, got, test.want, test.message)
			}
			if !Known(o.GroupVersionKind().GroupKind()) {
				t.Errorf("%s is not known", kind)
			}
		}
	}
}

// integers makes numbers what they are in objects of an API server.
func integers(value any) any {
	switch value := value.(type) {
	case float64:
		return int64(value)
	case map[string]any:
		for key, element := range value {
			value[key] = integers(element)
		}
	case []any:
		for i, element := range value {
			value[i] = integers(element)
		}
	}
	return value
}

// What only has to exist is not evaluated.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range []schema.GroupKind{
		{Kind: "ConfigMap"}, {Kind: "Secret"}, {Kind: "ServiceAccount"}, {Group: "rbac.authorization.k8s.io", Kind: "Role"},
		{Group: "coordination.k8s.io", Kind: "Lease"},
	} {
		if Known(kind) {
			t.Errorf("%s is known", kind)
		}
	}
	if !Known(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}) {
		t.Error("custom resources of Kubernetes projects are not known")
	}
}
