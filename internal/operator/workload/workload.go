// Package workload makes the Deployments of what the operators install: all of them alike in how they are secured, probed and spread, and
// with what users configure for all of them.
package workload

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// LabelApp is the label by which Services, policies and tools find the pods of a component.
const LabelApp = fleet.LabelApp

// HealthPort is the port at which controllers and agents serve /healthz over HTTPS.
const HealthPort = 8443

// Settings are those of all components of an installation.
type Settings struct {
	Namespace   string
	Replicas    int32
	Placement   operatorv1.NodePlacement
	Resources   *operatorv1.ResourceRequirement
	PullSecret  string
	Priority    string
	HostAliases []corev1.HostAlias
	PodLabels   map[string]string
}

// Component is a program that runs as a Deployment.
type Component struct {
	Name string
	// App is the value of LabelApp on the pods, and the name of the container.
	App            string
	Image          string
	Args           []string
	Env            []corev1.EnvVar
	ServiceAccount string
	Volumes        []Volume
	Ports          []corev1.ContainerPort
	// InitContainers run before the program.
	InitContainers []corev1.Container
	// Liveness and Readiness are the probes of the kubelet; nil means /healthz at HealthPort.
	Liveness, Readiness *corev1.HTTPGetAction
	// Unprobed switches the probes off.
	Unprobed    bool
	HostNetwork bool
	// Replicas, if set, go before those of the settings.
	Replicas *int32
	// PodAnnotations are those of the pods, besides those that all have.
	PodAnnotations map[string]string
}

// Volume is a volume with the path at which the container sees it.
type Volume struct {
	Name, Path string
	Source     corev1.VolumeSource
	Writable   bool
}

// SecretVolume shows the content of a Secret. With optional, pods start without it, and see it once it exists.
func SecretVolume(name, path, secret string, optional bool) Volume {
	source := &corev1.SecretVolumeSource{SecretName: secret}
	if optional {
		source.Optional = ptr.To(true)
	}
	return Volume{Name: name, Path: path, Source: corev1.VolumeSource{Secret: source}}
}

// ConfigMapVolume shows the content of a ConfigMap.
func ConfigMapVolume(name, path, configMap string) Volume {
	return Volume{Name: name, Path: path, Source: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}
}

// MemoryVolume is a folder in memory that ends with the pod: for keys, which should not reach a disk.
func MemoryVolume(name, path string) Volume {
	return Volume{Name: name, Path: path, Writable: true,
		Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}
}

// Deployment runs the component.
func (c Component) Deployment(s Settings) *appsv1.Deployment {
	labels := map[string]string{LabelApp: c.App}
	podLabels := maps.Clone(labels)
	maps.Copy(podLabels, s.PodLabels)
	podLabels[LabelApp] = c.App
	replicas := s.Replicas
	if c.Replicas != nil {
		replicas = *c.Replicas
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: c.Name, Labels: maps.Clone(labels)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: c.strategy(replicas),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels, Annotations: c.annotations()},
				Spec:       c.podSpec(s),
			},
		},
	}
}

// annotations mark the pods as management workload for OpenShift, and have those of the component.
func (c Component) annotations() map[string]string {
	annotations := map[string]string{"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`}
	maps.Copy(annotations, c.PodAnnotations)
	return annotations
}

// strategy gives the port of a node back before another pod wants it.
func (c Component) strategy(replicas int32) appsv1.DeploymentStrategy {
	rolling := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	if !c.HostNetwork {
		return rolling
	}
	unavailable := intstr.FromInt32(1)
	if replicas >= 4 {
		unavailable = intstr.FromString("25%")
	}
	rolling.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: &unavailable}
	return rolling
}

func (c Component) podSpec(s Settings) corev1.PodSpec {
	spec := corev1.PodSpec{
		ServiceAccountName: c.ServiceAccount,
		NodeSelector:       s.Placement.NodeSelector,
		Tolerations:        s.Placement.Tolerations,
		PriorityClassName:  s.Priority,
		HostAliases:        s.HostAliases,
		Affinity:           antiAffinity(c.App),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		InitContainers: c.initContainers(s),
		Containers:     []corev1.Container{c.container(s)},
	}
	for _, volume := range c.volumes() {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume.Name, VolumeSource: volume.Source})
	}
	if s.PullSecret != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: s.PullSecret}}
	}
	if c.HostNetwork {
		spec.HostNetwork, spec.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
	}
	return spec
}

// volumes are those of the component, and /tmp, as the root file system is read-only.
func (c Component) volumes() []Volume {
	tmp := Volume{Name: "tmpdir", Path: "/tmp", Writable: true, Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	return append([]Volume{tmp}, c.Volumes...)
}

// initContainers are those of the component. One that names no resources has those of the program: a quota may require some of all.
func (c Component) initContainers(s Settings) []corev1.Container {
	containers := slices.Clone(c.InitContainers)
	for i := range containers {
		if own := containers[i].Resources; len(own.Limits) == 0 && len(own.Requests) == 0 && len(own.Claims) == 0 {
			containers[i].Resources = resources(s.Resources)
		}
	}
	return containers
}

func (c Component) container(s Settings) corev1.Container {
	container := corev1.Container{
		Name: c.App, Image: c.Image, ImagePullPolicy: corev1.PullIfNotPresent, Args: c.Args, Env: c.Env, Ports: c.Ports,
		Resources:       resources(s.Resources),
		SecurityContext: Restricted(),
	}
	for _, volume := range c.volumes() {
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: volume.Name, MountPath: volume.Path, ReadOnly: !volume.Writable})
	}
	if !c.Unprobed {
		container.StartupProbe = probe(c.Liveness)
		container.StartupProbe.PeriodSeconds, container.StartupProbe.FailureThreshold = 1, startSeconds
		container.LivenessProbe = probe(c.Liveness)
		container.ReadinessProbe = probe(c.Readiness)
		if c.Readiness != nil {
			container.ReadinessProbe.PeriodSeconds = 2 // it lives before it is ready, and somebody waits for it
		}
	}
	return container
}

// Restricted is the security context of all containers.
func Restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Privileged: ptr.To(false), RunAsNonRoot: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// startSeconds is how long a program may take to start, which is long on a node where all others start, too. Until then it is probed every
// second, so that nobody waits for the first of the other probes.
const startSeconds = 300

func probe(get *corev1.HTTPGetAction) *corev1.Probe {
	if get == nil {
		get = &corev1.HTTPGetAction{Path: "/healthz", Scheme: corev1.URISchemeHTTPS, Port: intstr.FromInt32(HealthPort)}
	}
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}, PeriodSeconds: 10}
}

// antiAffinity prefers other zones, and other nodes less.
func antiAffinity(app string) *corev1.Affinity {
	term := func(weight int32, topology string) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: topology,
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: LabelApp, Operator: metav1.LabelSelectorOpIn, Values: []string{app}}}}}}
	}
	preferred := []corev1.WeightedPodAffinityTerm{term(70, corev1.LabelTopologyZone), term(30, corev1.LabelHostname)}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}
}

func resources(r *operatorv1.ResourceRequirement) corev1.ResourceRequirements {
	switch {
	case r != nil && r.Type == operatorv1.ResourceQosClassBestEffort:
		return corev1.ResourceRequirements{}
	case r != nil && r.Type == operatorv1.ResourceQosClassResourceRequirement && r.ResourceRequirements != nil:
		return *r.ResourceRequirements
	default:
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2m"), corev1.ResourceMemory: resource.MustParse("16Mi")}}
	}
}

// DisruptionBudget keeps all pods but one of a component while nodes are drained. A component with one pod has none: it would keep its
// node.
func (c Component) DisruptionBudget(s Settings) *policyv1.PodDisruptionBudget {
	if s.Replicas < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: c.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelApp: c.App}}},
	}
}
