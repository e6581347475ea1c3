package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// An object that was exported from a cluster carries what only that cluster has a use for: values that its controllers and its API server
// have set, and references to its own objects. They are no part of what the manifest requests, and applied to another cluster they are
// refused, or changed back again and again. Velero and Karmada leave out the same.

// ofClients are annotations that clients and controllers write for themselves. Those of a kind are on objects of that kind alone.
var ofClients = map[schema.GroupKind][]string{
	{}:                                  {"kubectl.kubernetes.io/last-applied-configuration"},
	{Group: "apps", Kind: "Deployment"}: {"deployment.kubernetes.io/revision"},
	{Group: "apps", Kind: "ReplicaSet"}: {"deployment.kubernetes.io/revision", "deployment.kubernetes.io/desired-replicas",
		"deployment.kubernetes.io/max-replicas"},
	{Group: "apps", Kind: "DaemonSet"}: {"deprecated.daemonset.template.generation"},
	{Kind: "PersistentVolume"}:         {"pv.kubernetes.io/bound-by-controller"},
	{Kind: "PersistentVolumeClaim"}:    {"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "volume.kubernetes.io/selected-node"},
	{Kind: "Secret"}:                   {"kubernetes.io/service-account.uid"},
}

// exports are of kinds with fields that another cluster has set.
var exports = map[schema.GroupKind]func(*export){
	{Group: "batch", Kind: "Job"}:   dropFromJob,
	{Kind: "Service"}:               dropFromService,
	{Kind: "Pod"}:                   dropFromPod,
	{Kind: "PersistentVolume"}:      dropFromVolume,
	{Kind: "PersistentVolumeClaim"}: dropFromClaim,
	{Kind: "ServiceAccount"}:        dropFromServiceAccount,
}

// DropExported drops from a manifest what only the cluster has a use for that it was exported from, and returns the paths of what it
// dropped, such as spec.clusterIP. Fields that users may mean, too, are dropped only if the API server of a cluster has written the
// manifest, by metadata.uid.
func DropExported(object *unstructured.Unstructured) (dropped []string) {
	e := &export{object: object.Object, isLive: object.GetUID() != ""}
	kind := object.GroupVersionKind().GroupKind()
	for _, annotation := range slices.Concat(ofClients[schema.GroupKind{}], ofClients[kind], ofWorks(object)) {
		e.drop("metadata", "annotations", annotation)
	}
	if of := exports[kind]; of != nil {
		of(e)
	}
	return e.dropped
}

// ofWorks are the annotations by which agents know what works have applied.
func ofWorks(object *unstructured.Unstructured) []string {
	isOfWork := func(annotation string) bool {
		return strings.HasPrefix(annotation, fleet.AnnotationAppliedFieldsPrefix)
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(object.GetAnnotations())), func(a string) bool { return !isOfWork(a) })
}

// export is a manifest from which fields are dropped.
type export struct {
	object  map[string]any
	isLive  bool
	dropped []string
}

// drop drops a field that is there. A map that is empty then goes, too.
func (e *export) drop(fields ...string) {
	parent, found, err := unstructured.NestedFieldNoCopy(e.object, fields[:len(fields)-1]...)
	within, isMap := parent.(map[string]any)
	if err != nil || !found || !isMap {
		return
	}
	name := fields[len(fields)-1]
	if _, found := within[name]; !found {
		return
	}
	delete(within, name)
	e.dropped = append(e.dropped, path(fields))
	if len(within) == 0 && len(fields) > 2 {
		unstructured.RemoveNestedField(e.object, fields[:len(fields)-1]...)
	}
}

// path names a field; keys with dots, as annotations have, are in brackets.
func path(fields []string) string {
	var b strings.Builder
	for i, field := range fields {
		switch {
		case strings.Contains(field, "."):
			fmt.Fprintf(&b, "[%s]", field)
		case i > 0:
			b.WriteString("." + field)
		default:
			b.WriteString(field)
		}
	}
	return b.String()
}

func (e *export) text(fields ...string) string {
	value, _, _ := unstructured.NestedString(e.object, fields...)
	return value
}

// dropFromJob drops the selector and the labels by which the Job knew its pods, unless the user has chosen them.
func dropFromJob(e *export) {
	if manual, _, _ := unstructured.NestedBool(e.object, "spec", "manualSelector"); manual {
		return
	}
	if _, generated, _ := unstructured.NestedString(e.object, "spec", "selector", "matchLabels", "batch.kubernetes.io/controller-uid"); !generated {
		if _, generated, _ = unstructured.NestedString(e.object, "spec", "selector", "matchLabels", "controller-uid"); !generated {
			return
		}
	}
	e.drop("spec", "selector")
	for _, labels := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"} {
			e.drop(append(slices.Clone(labels), label)...)
		}
	}
}

// dropFromService drops addresses that the cluster has assigned, and ports of nodes where the type of the Service has none.
func dropFromService(e *export) {
	if e.isLive && e.text("spec", "clusterIP") != "None" {
		e.drop("spec", "clusterIP")
		e.drop("spec", "clusterIPs")
		e.drop("spec", "healthCheckNodePort")
	}
	kind := e.text("spec", "type")
	if kind == "NodePort" || kind == "LoadBalancer" {
		return
	}
	ports, _, _ := unstructured.NestedFieldNoCopy(e.object, "spec", "ports")
	list, _ := ports.([]any)
	for i, entry := range list {
		if port, ok := entry.(map[string]any); ok && port["nodePort"] != nil {
			delete(port, "nodePort")
			e.dropped = append(e.dropped, fmt.Sprintf("spec.ports[%d].nodePort", i))
		}
	}
}

// tokenVolume is how the names of volumes with the token of a service account start, which the API server adds to each pod.
const tokenVolume = "kube-api-access-"

func dropFromPod(e *export) {
	if !e.isLive {
		return
	}
	e.drop("spec", "nodeName")
	e.dropNamed(tokenVolume, "spec", "volumes")
	for _, containers := range []string{"containers", "initContainers", "ephemeralContainers"} {
		list, _, _ := unstructured.NestedFieldNoCopy(e.object, "spec", containers)
		entries, _ := list.([]any)
		for i, entry := range entries {
			if container, ok := entry.(map[string]any); ok {
				of := &export{object: container}
				of.dropNamed(tokenVolume, "volumeMounts")
				for _, field := range of.dropped {
					e.dropped = append(e.dropped, fmt.Sprintf("spec.%s[%d].%s", containers, i, field))
				}
			}
		}
	}
}

// dropNamed drops the elements of a list whose names start with the prefix.
func (e *export) dropNamed(prefix string, fields ...string) {
	value, _, _ := unstructured.NestedFieldNoCopy(e.object, fields...)
	list, isList := value.([]any)
	if !isList {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(list), func(entry any) bool {
		element, _ := entry.(map[string]any)
		name, _ := element["name"].(string)
		return strings.HasPrefix(name, prefix)
	})
	if len(kept) == len(list) {
		return
	}
	e.dropped = append(e.dropped, path(fields)+"["+prefix+"*]")
	if len(kept) == 0 {
		unstructured.RemoveNestedField(e.object, fields...)
	} else {
		_ = unstructured.SetNestedField(e.object, kept, fields...) // its parents are there
	}
}

// dropFromVolume drops which object the claim was; the volume stays reserved for a claim of that name.
func dropFromVolume(e *export) {
	e.drop("spec", "claimRef", "uid")
	e.drop("spec", "claimRef", "resourceVersion")
}

func dropFromClaim(e *export) {
	if e.isLive {
		e.drop("spec", "volumeName")
	}
}

func dropFromServiceAccount(e *export) {
	if e.isLive {
		e.drop("secrets")
	}
}
