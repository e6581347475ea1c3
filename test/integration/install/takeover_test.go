package install

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// storedOld is an object that is stored in an old version of its kind.
type storedOld struct {
	crd, from, to string
	object        *unstructured.Unstructured
	// before is the resource version of the object as it was stored.
	before string
}

// CM-26, CM-17, O7: an operator takes over a hub of an earlier version: what is stored in old versions, also in one that is no more, is
// stored in that of now, and the Services of webhooks that are named after the ClusterManager are replaced. Until then the status says that
// something is stored in an old version, also when the rest cannot be applied.
func TestTakeover(t *testing.T) {
	t.Parallel()
	i := withOperator(t, env.StartSandbox(t), "--deployment-replicas", "1")
	framework.Create(t, i, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceHub}})
	set, config := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	set.SetName("kept")
	config.SetNamespace(metav1.NamespaceDefault)
	config.SetName("kept")
	config.Object["spec"] = map[string]any{"agentInstallNamespace": "kept"}
	all := []*storedOld{
		{crd: "managedclustersets.cluster.open-cluster-management.io", from: "v1beta1", to: "v1beta2", object: set},
		{crd: "addondeploymentconfigs.addon.open-cluster-management.io", from: "v1beta1", to: "v1alpha1", object: config},
	}
	for _, stored := range all {
		i.store(t, stored)
	}
	former := i.formerServices(t, "indigo")
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo"}}
	await := func(conditions ...string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := i.Get(ctx, client.ObjectKeyFromObject(cm), cm); err != nil {
				return err
			}
			return checkConditions(cm.Status.Conditions, cm.Generation, conditions)
		})
	}
	inTheWay := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "indigo-registration-controller",
		Finalizers: []string{"example.com/kept"}}, Spec: minimalDeployment()}
	framework.Create(t, i, inTheWay, cm)
	await("Applied=False/RuntimeResourceApplyFailed", "MigrationSucceeded=False/StorageVersionMigrationProcessing")
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
	if err := i.Patch(t.Context(), inTheWay, release); err != nil {
		t.Fatal(err)
	}
	await(append(slices.Clone(hubIsUp), "MigrationSucceeded=True/StorageVersionMigrationSucceed")...)
	for _, stored := range all {
		i.checkMigrated(t, stored)
	}
	i.awaitGone(t, former...)
	i.checkServices(t)
}

// store makes the CRD of an earlier version and an object, and then has later objects stored in the version of now.
func (i *installed) store(t *testing.T, stored *storedOld) {
	t.Helper()
	all := crds.Hub()
	crd := all[slices.IndexFunc(all, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == stored.crd })]
	if len(crd.Spec.Versions) == 1 {
		crd.Spec.Versions = append(crd.Spec.Versions, *crd.Spec.Versions[0].DeepCopy())
		crd.Spec.Versions[1].Name = stored.from
	}
	storeIn := func(version string) {
		for at := range crd.Spec.Versions {
			crd.Spec.Versions[at].Storage = crd.Spec.Versions[at].Name == version
		}
	}
	storeIn(stored.from)
	framework.Create(t, i, crd)
	stored.object.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: stored.from, Kind: crd.Spec.Names.Kind})
	env.Eventually(t, func(ctx context.Context) error { return i.Create(ctx, stored.object) })
	stored.before = stored.object.GetResourceVersion()
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		storeIn(stored.to)
		return i.Update(ctx, crd)
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil || len(crd.Status.StoredVersions) != 2 {
			return fmt.Errorf("%s is stored in %v: %w", crd.Name, crd.Status.StoredVersions, err)
		}
		return nil
	})
}

func (i *installed) checkMigrated(t *testing.T, stored *storedOld) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := i.Get(t.Context(), types.NamespacedName{Name: stored.crd}, crd); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(crd.Status.StoredVersions, []string{stored.to}) {
		t.Errorf("%s may be stored in %v", stored.crd, crd.Status.StoredVersions)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(stored.object.GroupVersionKind().GroupKind().WithVersion(stored.to))
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(stored.object), live); err != nil {
		t.Fatal(err)
	}
	if live.GetResourceVersion() == stored.before || live.GetUID() != stored.object.GetUID() {
		t.Errorf("%s was not stored again: %v", stored.crd, live)
	}
	before, _, _ := unstructured.NestedString(stored.object.Object, "spec", "agentInstallNamespace")
	if after, _, _ := unstructured.NestedString(live.Object, "spec", "agentInstallNamespace"); after != before {
		t.Errorf("%s is %v now", stored.crd, live)
	}
}

// formerServices makes the Services of webhooks as an earlier version named them.
func (i *installed) formerServices(t *testing.T, manager string) (services []client.Object) {
	t.Helper()
	for _, webhook := range []string{"registration-webhook", "work-webhook", "addon-webhook"} {
		services = append(services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: manager + "-" + webhook,
				Labels: map[string]string{fleet.LabelCreatedByClusterManager: manager}},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": manager + "-" + webhook}, Ports: []corev1.ServicePort{{Port: 9443}}}})
	}
	framework.Create(t, i, services...)
	return services
}

// checkServices checks that the API server reaches webhooks and conversions at the Services that clients know, and that these are there.
func (i *installed) checkServices(t *testing.T) {
	t.Helper()
	asked := map[string]bool{}
	validators := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := i.List(t.Context(), validators, client.HasLabels{fleet.LabelCreatedByClusterManager}); err != nil {
		t.Fatal(err)
	}
	for _, configuration := range validators.Items {
		for _, webhook := range configuration.Webhooks {
			asked[webhook.ClientConfig.Service.Name] = true
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := i.Get(t.Context(), types.NamespacedName{Name: "managedclusteraddons.addon.open-cluster-management.io"}, crd); err != nil {
		t.Fatal(err)
	}
	asked[crd.Spec.Conversion.Webhook.ClientConfig.Service.Name] = true
	if len(asked) != 3 {
		t.Errorf("asked are %v", asked)
	}
	for name := range asked {
		service := &corev1.Service{}
		if err := i.Get(t.Context(), types.NamespacedName{Namespace: fleet.NamespaceHub, Name: name}, service); err != nil {
			t.Errorf("asked is %s: %v", name, err)
		}
	}
	for _, webhook := range []string{"registration", "work", "addon"} {
		if !asked["cluster-manager-"+webhook+"-webhook"] {
			t.Errorf("clients look for the Service of the %s webhook, but asked are %v", webhook, asked)
		}
	}
}
