package feedback

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WellKnown is what a rule of type WellKnownStatus reports of a kind. The names for Deployments, DaemonSets, Jobs and
// Pods are those of the original; what other kinds report follows their fields.
func WellKnown(kind schema.GroupVersionKind) (paths []workv1.JSONPath, ok bool) {
	paths, ok = wellKnown[kind]
	return paths, ok
}

var wellKnown = map[schema.GroupVersionKind][]workv1.JSONPath{
	kind("apps", "v1", "Deployment"): {
		{Name: "ReadyReplicas", Path: ".status.readyReplicas"},
		{Name: "Replicas", Path: ".status.replicas"},
		{Name: "AvailableReplicas", Path: ".status.availableReplicas"},
	},
	kind("apps", "v1", "DaemonSet"): {
		{Name: "NumberReady", Path: ".status.numberReady"},
		{Name: "DesiredNumberScheduled", Path: ".status.desiredNumberScheduled"},
		{Name: "NumberAvailable", Path: ".status.numberAvailable"},
	},
	kind("batch", "v1", "Job"): {
		condition("JobComplete", "Complete"),
		{Name: "JobSucceeded", Path: ".status.succeeded"},
	},
	kind("", "v1", "Pod"): {
		condition("PodReady", "Ready"),
		{Name: "PodPhase", Path: ".status.phase"},
	},
	kind("apps", "v1", "StatefulSet"): {
		{Name: "ReadyReplicas", Path: ".status.readyReplicas"},
		{Name: "Replicas", Path: ".status.replicas"},
		{Name: "AvailableReplicas", Path: ".status.availableReplicas"},
		{Name: "UpdatedReplicas", Path: ".status.updatedReplicas"},
	},
	kind("apps", "v1", "ReplicaSet"): {
		{Name: "ReadyReplicas", Path: ".status.readyReplicas"},
		{Name: "Replicas", Path: ".status.replicas"},
		{Name: "AvailableReplicas", Path: ".status.availableReplicas"},
	},
	kind("batch", "v1", "CronJob"): {
		{Name: "LastScheduleTime", Path: ".status.lastScheduleTime"},
		{Name: "LastSuccessfulTime", Path: ".status.lastSuccessfulTime"},
		{Name: "Suspended", Path: ".spec.suspend"},
	},
	kind("", "v1", "Service"): {
		{Name: "ClusterIP", Path: ".spec.clusterIP"},
		{Name: "LoadBalancerIP", Path: ".status.loadBalancer.ingress[0].ip"},
		{Name: "LoadBalancerHostname", Path: ".status.loadBalancer.ingress[0].hostname"},
	},
	kind("networking.k8s.io", "v1", "Ingress"): {
		{Name: "LoadBalancerIP", Path: ".status.loadBalancer.ingress[0].ip"},
		{Name: "LoadBalancerHostname", Path: ".status.loadBalancer.ingress[0].hostname"},
	},
	kind("", "v1", "PersistentVolumeClaim"): {
		{Name: "Phase", Path: ".status.phase"},
		{Name: "Capacity", Path: ".status.capacity.storage"},
		{Name: "VolumeName", Path: ".spec.volumeName"},
	},
	kind("", "v1", "Namespace"): {
		{Name: "Phase", Path: ".status.phase"},
	},
	kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition"): {
		condition("Established", "Established"),
		condition("NamesAccepted", "NamesAccepted"),
	},
	kind("apiregistration.k8s.io", "v1", "APIService"): {
		condition("Available", "Available"),
	},
	kind("autoscaling", "v2", "HorizontalPodAutoscaler"): {
		{Name: "CurrentReplicas", Path: ".status.currentReplicas"},
		{Name: "DesiredReplicas", Path: ".status.desiredReplicas"},
		condition("ScalingActive", "ScalingActive"),
	},
	kind("autoscaling", "v1", "HorizontalPodAutoscaler"): {
		{Name: "CurrentReplicas", Path: ".status.currentReplicas"},
		{Name: "DesiredReplicas", Path: ".status.desiredReplicas"},
	},
	kind("policy", "v1", "PodDisruptionBudget"): {
		{Name: "CurrentHealthy", Path: ".status.currentHealthy"},
		{Name: "DesiredHealthy", Path: ".status.desiredHealthy"},
		{Name: "DisruptionsAllowed", Path: ".status.disruptionsAllowed"},
		{Name: "ExpectedPods", Path: ".status.expectedPods"},
	},
}

func kind(group, version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

// condition is the status of one of the object's conditions.
func condition(name, conditionType string) workv1.JSONPath {
	return workv1.JSONPath{Name: name, Path: `.status.conditions[?(@.type=="` + conditionType + `")].status`}
}
