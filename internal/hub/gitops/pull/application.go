package pull

import (
	"crypto/sha1" //nolint:gosec // what the label has in all hubs
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// crdName is the CRD of Applications.
	crdName   = "applications.argoproj.io"
	inCluster = "https://kubernetes.default.svc"
	// uidDigits is how much of the UID of an Application is in the name of its work.
	uidDigits = 5

	fieldSpec, fieldStatus, fieldOperation = "spec", "status", "operation"
)

var (
	applicationKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}
	listKind        = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "ApplicationList"}
)

// Values of an Application that its cluster reports, and where they are.
const (
	valueHealth    = "healthStatus"
	valueSync      = "syncStatus"
	valueStartedAt = "operationStateStartedAt"
	valuePhase     = "operationStatePhase"
	valueRevision  = "syncRevision"
)

var feedbackPaths = []workv1.JSONPath{
	{Name: valueHealth, Path: ".status.health.status"},
	{Name: valueSync, Path: ".status.sync.status"},
	{Name: valueStartedAt, Path: ".status.operationState.startedAt"},
	{Name: valuePhase, Path: ".status.operationState.phase"},
	{Name: valueRevision, Path: ".status.sync.revision"},
}

func newApplication() *unstructured.Unstructured {
	app := &unstructured.Unstructured{}
	app.SetGroupVersionKind(applicationKind)
	return app
}

// pulled reports whether an Application is one that a cluster pulls, and which cluster that is.
func pulled(app client.Object) (cluster string, ok bool) {
	cluster = app.GetAnnotations()[fleet.AnnotationArgoCluster]
	return cluster, cluster != "" && app.GetLabels()[fleet.LabelArgoPull] == fleet.LabelTrue
}

// isSkipped reports whether the Argo CD of the hub leaves an Application alone.
func isSkipped(app client.Object) bool {
	return app.GetAnnotations()[fleet.AnnotationArgoSkip] == fleet.LabelTrue
}

// setOf is the ApplicationSet that made an Application; empty if none did.
func setOf(app client.Object) types.NamespacedName {
	for _, owner := range app.GetOwnerReferences() {
		if owner.Kind == "ApplicationSet" && strings.HasPrefix(owner.APIVersion, applicationKind.Group+"/") {
			return types.NamespacedName{Namespace: app.GetNamespace(), Name: owner.Name}
		}
	}
	return types.NamespacedName{}
}

// applicationOf is the Application that a work was made for; empty for works of others.
func applicationOf(work client.Object) types.NamespacedName {
	annotations := work.GetAnnotations()
	key := types.NamespacedName{Namespace: annotations[fleet.AnnotationArgoHubNamespace], Name: annotations[fleet.AnnotationArgoHubName]}
	if work.GetLabels()[fleet.LabelArgoPull] != fleet.LabelTrue || key.Namespace == "" || key.Name == "" {
		return types.NamespacedName{}
	}
	return key
}

// workName is the name of the work of an Application.
func workName(app client.Object) string {
	uid := string(app.GetUID())
	return app.GetName() + "-" + uid[:min(uidDigits, len(uid))]
}

// workOf is the work that brings an Application to a cluster.
func workOf(app *unstructured.Unstructured, cluster string) (*workv1.ManifestWork, error) {
	manifest := onCluster(app)
	raw, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("encode Application %s/%s: %w", app.GetNamespace(), app.GetName(), err)
	}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster, Name: workName(app), Labels: map[string]string{fleet.LabelArgoPull: fleet.LabelTrue},
		Annotations: map[string]string{fleet.AnnotationArgoHubNamespace: app.GetNamespace(), fleet.AnnotationArgoHubName: app.GetName()},
	}}
	if set := setOf(app); set.Name != "" {
		sum := sha1.Sum([]byte(set.String())) //nolint:gosec // as above
		work.Annotations[fleet.AnnotationArgoSet] = set.String()
		work.Labels[fleet.LabelArgoSet], work.Labels[fleet.LabelArgoSetHash] = fleet.LabelTrue, hex.EncodeToString(sum[:])
	}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: applicationKind.Group, Resource: "applications",
			Namespace: manifest.GetNamespace(), Name: manifest.GetName()},
		FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JSONPaths: feedbackPaths}},
		FeedbackScrapeType: workv1.FeedbackWatchType,
		UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply,
			ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, FieldManager: "work-agent", IgnoreFields: []workv1.IgnoreField{
				{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".operation"}}}}},
	}}
	return work, nil
}

// onCluster is an Application as it is on its cluster, where its Argo CD deploys to that cluster itself.
func onCluster(app *unstructured.Unstructured) *unstructured.Unstructured {
	copied := newApplication()
	copied.SetName(app.GetName())
	copied.SetNamespace(namespaceOnCluster(app))
	copied.SetLabels(withoutHubMetadata(app.GetLabels()))
	copied.SetAnnotations(withoutHubMetadata(app.GetAnnotations()))
	copied.SetFinalizers(argoFinalizers(app.GetFinalizers()))
	for _, field := range []string{fieldSpec, fieldOperation} {
		if value, found := app.Object[field]; found {
			copied.Object[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	if destination, ok, _ := unstructured.NestedMap(copied.Object, fieldSpec, "destination"); ok {
		delete(destination, "name")
		destination["server"] = inCluster
		_ = unstructured.SetNestedMap(copied.Object, destination, fieldSpec, "destination") // it was a map
	} else {
		_ = unstructured.SetNestedField(copied.Object, inCluster, fieldSpec, "destination", "server") // what is no object, the cluster refuses
	}
	return copied
}

// argoFinalizers are the finalizers that the Argo CD on the cluster takes off: nobody there does those of others.
func argoFinalizers(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(finalizer string) bool { return !isArgoFinalizer(finalizer) })
}

func isArgoFinalizer(finalizer string) bool {
	domain, _, _ := strings.Cut(finalizer, "/")
	return strings.HasSuffix(domain, ".argocd.argoproj.io")
}

func namespaceOnCluster(app client.Object) string {
	for _, namespace := range []string{app.GetAnnotations()[fleet.AnnotationArgoNamespace], app.GetNamespace()} {
		if namespace != "" {
			return namespace
		}
	}
	return "argocd"
}

// withoutHubMetadata are the labels or annotations of an Application on its cluster: not those that say what is on the hub, or have the
// Argo CD there do something.
func withoutHubMetadata(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		switch key {
		case fleet.AnnotationArgoSkip, "argocd.argoproj.io/refresh", "argocd.argoproj.io/tracking-id", "app.kubernetes.io/instance",
			"kubectl.kubernetes.io/last-applied-configuration":
			return true
		}
		return strings.HasPrefix(key, "apps.open-cluster-management.io/")
	})
	return kept
}
