package reach

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/capstan-io/capstan/api/apps/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// AR-06 AR-07: once the hub has the kind of Argo CD, a cluster gets the Application that is for it. What it reports is in the Application
// and in the report of the ApplicationSet. The Application moves to another cluster with its annotation, and with it, its work goes.
func TestApplicationsThatClustersPull(t *testing.T) {
	t.Parallel()
	on := env.StartHub(t, "", "--feature-gates", "GitOpsCluster=true")
	h := on.Client(t)
	argo := framework.Namespace(t, h, "argocd")
	framework.Create(t, h, framework.AcceptedCluster("paris"), framework.AcceptedCluster("rome"),
		framework.SetBinding(argo, "global", "global"))
	for _, cluster := range []string{"paris", "rome"} {
		framework.AwaitHubAccepted(t, h, cluster, metav1.ConditionTrue, "HubClusterAdminAccepted")
	}
	framework.Create(t, h, applicationKind())
	app := pulledBy("paris", argo)
	// The API server serves a kind a moment before it tells clients of it.
	env.Eventually(t, func(ctx context.Context) error { return h.Create(ctx, app) })
	name := app.GetName() + "-" + string(app.GetUID())[:5]
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "paris", Name: name}}
	framework.AwaitObject(t, h, work, func(*workv1.ManifestWork) error { return nil })
	reportHealth(t, h, work)
	framework.AwaitObject(t, h, app, func(app *unstructured.Unstructured) error {
		if health, _, _ := unstructured.NestedString(app.Object, "status", "health", "status"); health != "Healthy" {
			return fmt.Errorf("the status is %v", app.Object["status"])
		}
		return nil
	})
	report := &appsv1alpha1.MulticlusterApplicationSetReport{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	framework.AwaitObject(t, h, report, func(report *appsv1alpha1.MulticlusterApplicationSetReport) error {
		if s := report.Statuses.Summary; s.Clusters != "1" || s.Healthy != "1" {
			return fmt.Errorf("the report is %+v", report.Statuses)
		}
		return nil
	})

	framework.MergePatch(t, h, app, `{"metadata":{"annotations":{"apps.open-cluster-management.io/ocm-managed-cluster":"rome"}}}`)
	framework.AwaitGone(t, h, work)
	work = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: name}}
	framework.AwaitObject(t, h, work, func(*workv1.ManifestWork) error { return nil })
	if err := h.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, work)
	framework.AwaitGone(t, h, report)
	framework.AwaitGone(t, h, app)
}

// applicationKind is the CRD of Applications, as far as the hub needs it.
func applicationKind() *unstructured.Unstructured {
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "argoproj.io", "scope": "Namespaced",
		"names": map[string]any{"kind": "Application", "listKind": "ApplicationList", "plural": "applications", "singular": "application"},
		"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
	}}}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName("applications.argoproj.io")
	return crd
}

// pulledBy is an Application of ApplicationSet web.
func pulledBy(cluster, namespace string) *unstructured.Unstructured {
	app := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"project": "default"}}}
	app.SetGroupVersionKind(schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"})
	app.SetNamespace(namespace)
	app.SetName("web-" + cluster)
	app.SetFinalizers([]string{"resources-finalizer.argocd.argoproj.io"})
	app.SetLabels(map[string]string{"apps.open-cluster-management.io/pull-to-ocm-managed-cluster": "true"})
	app.SetAnnotations(map[string]string{"apps.open-cluster-management.io/ocm-managed-cluster": cluster,
		"argocd.argoproj.io/skip-reconcile": "true"})
	app.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "ApplicationSet", Name: "web", UID: "web"}})
	return app
}

// reportHealth has the cluster of a work report that its Application is healthy.
func reportHealth(t *testing.T, h client.Client, work *workv1.ManifestWork) {
	t.Helper()
	value := "Healthy"
	before := work.DeepCopy()
	work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
		ResourceMeta: workv1.ManifestResourceMeta{Group: "argoproj.io", Kind: "Application"}, Conditions: []metav1.Condition{},
		StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
			{Name: "healthStatus", Value: workv1.FieldValue{Type: workv1.String, String: &value}}}},
	}}
	if err := h.Status().Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
