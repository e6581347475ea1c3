package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	multiclusterv1alpha2 "github.com/capstan-io/capstan/api/multicluster/v1alpha2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-46 NX-02
func TestClusterProfiles(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "registration", "--feature-gates", "ClusterProfile=true")
	c := own.Client(t)
	const name = "profiled"
	profile := &multiclusterv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "profiles"}}
	binding.Spec.ClusterSet = "profiles"
	framework.Create(t, c, binding, framework.ClusterSet("profiles", clusterv1beta2.ExclusiveClusterSetLabel, nil))
	env.Join(t, own, framework.Managed, name)
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	move := func(set string) {
		t.Helper()
		framework.MergePatch(t, c, mc, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, fleet.LabelClusterSet, set))
	}
	await := func() {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			got := profile.DeepCopy()
			if err := c.Get(ctx, client.ObjectKeyFromObject(profile), got); err != nil {
				return err
			}
			want := map[string]string{
				"x-k8s.io/cluster-manager": "open-cluster-management", "open-cluster-management.io/cluster-name": name,
				"multicluster.x-k8s.io/clusterset": "profiles", "multicluster.x-k8s.io/inventory-member-id": name,
			}
			if fmt.Sprint(got.Labels) != fmt.Sprint(want) || got.Spec.ClusterManager.Name != "open-cluster-management" ||
				got.Spec.DisplayName != name {
				return fmt.Errorf("%+v", got)
			}
			if !meta.IsStatusConditionTrue(got.Status.Conditions, "ControlPlaneHealthy") ||
				!meta.IsStatusConditionTrue(got.Status.Conditions, "Joined") ||
				got.Status.Version.Kubernetes == "" {
				return fmt.Errorf("%+v", got.Status)
			}
			return nil
		})
	}
	move("profiles")
	await()
	testNewerProfile(t, c, profile)
	if err := c.Delete(t.Context(), profile.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	await()
	move("default")
	framework.AwaitGone(t, c, profile.DeepCopy())
	move("profiles")
	await()
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, profile.DeepCopy())
}

// NX-02: v1alpha2 has the same objects, which lose nothing when they are written as that, and who manages a cluster never changes.
func testNewerProfile(t *testing.T, c client.Client, older *multiclusterv1alpha1.ClusterProfile) {
	t.Helper()
	older = older.DeepCopy()
	framework.Get(t, c, client.ObjectKeyFromObject(older), older)
	providers := framework.Merge(`{"status":{"accessProviders":[{"name":"example.com","cluster":{"server":"https://192.0.2.1"}}],` +
		`"credentialProviders":[{"name":"former.example.com"}]}}`)
	if err := c.Status().Patch(t.Context(), older, providers); err != nil || len(older.Status.CredentialProviders) != 1 {
		t.Fatalf("write access providers as v1alpha1: %+v, %v", older.Status, err)
	}
	newer := &multiclusterv1alpha2.ClusterProfile{}
	framework.Get(t, c, client.ObjectKeyFromObject(older), newer)
	if newer.Spec != older.Spec || newer.Status.Version != older.Status.Version || len(newer.Status.AccessProviders) != 1 ||
		newer.Status.AccessProviders[0].Name != "example.com" || len(newer.Status.Conditions) != len(older.Status.Conditions) {
		t.Errorf("v1alpha2 has %+v, v1alpha1 %+v", newer, older)
	}
	for what, object := range map[string]client.Object{"v1alpha1": older, "v1alpha2": newer} {
		err := c.Patch(t.Context(), object, framework.Merge(`{"spec":{"clusterManager":{"name":"another"}}}`))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "clusterManager is immutable") {
			t.Errorf("%s: another cluster manager: %v", what, err)
		}
	}
	framework.MergePatch(t, c, newer, `{"metadata":{"annotations":{"example.com/by":"v1alpha2"}}}`)
	framework.Get(t, c, client.ObjectKeyFromObject(older), older)
	if older.Annotations["example.com/by"] != "v1alpha2" || len(older.Status.CredentialProviders) != 1 || len(older.Status.AccessProviders) != 1 {
		t.Errorf("after a write as v1alpha2 it is %+v", older)
	}
	twice := framework.Merge(`{"status":{"accessProviders":[{"name":"a"},{"name":"a"}]}}`)
	if err := c.Status().Patch(t.Context(), newer, twice); !apierrors.IsInvalid(err) {
		t.Errorf("two access providers of one name: %v", err)
	}
}
