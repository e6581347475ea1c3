package works

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// WK-01, WK-17: of the owners that a manifest names, those are applied that the cluster has under their uid. The garbage collector does not
// delete the object for the others, also when an owner goes later, and whether the work owns the object or not.
func TestMissingOwners(t *testing.T) {
	t.Parallel()
	for _, policy := range []workv1.DeletePropagationPolicyType{
		workv1.DeletePropagationPolicyTypeOrphan, workv1.DeletePropagationPolicyTypeForeground,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			name := "missing-owners-" + strings.ToLower(string(policy))
			env.Join(t, framework.Hub, framework.Managed, name)
			h, m := framework.Hub.Client(t), framework.Managed.Client(t)
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Namespace(t, m, name), Name: "here"}}
			framework.Create(t, m, owner)
			w := framework.Work(name, name, ownedBy(owner, "gone", "00000000-0000-0000-0000-000000000001"))
			w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: policy}
			framework.Create(t, h, w)
			awaitMissingOwners(t, h, w, "ConfigMap gone with uid 00000000-0000-0000-0000-000000000001")
			if got := framework.AwaitConfigMap(t, m, owner.Namespace, "web", "1"); !isOwnedBy(got, "here") || isOwnedBy(got, "gone") {
				t.Errorf("the owners are %v", got.OwnerReferences)
			}
			if err := m.Delete(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
			awaitMissingOwners(t, h, w, fmt.Sprintf("ConfigMap here with uid %s, ConfigMap gone with uid", owner.UID))
			framework.AwaitObject(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: "web"}},
				func(got *corev1.ConfigMap) error {
					if isOwnedBy(got, "here") || got.DeletionTimestamp != nil {
						return fmt.Errorf("it is still owned by what has gone: %v", got.OwnerReferences)
					}
					return nil
				})
		})
	}
}

// ownedBy is a manifest of a ConfigMap that names an owner, and another one.
func ownedBy(owner client.Object, name string, uid types.UID) string {
	const reference = `{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}`
	return strings.Replace(framework.ConfigMap(owner.GetNamespace(), "web", "1"), `"name"`,
		fmt.Sprintf(`"ownerReferences":[`+reference+`,`+reference+`],"name"`, owner.GetName(), owner.GetUID(), name, uid), 1)
}

func isOwnedBy(object client.Object, name string) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Name == name })
}

// awaitMissingOwners waits until the manifest is applied, and says which owners are left out.
func awaitMissingOwners(t *testing.T, h client.Client, w *workv1.ManifestWork, owners string) {
	t.Helper()
	want := "Apply manifest complete, without the owners in metadata.ownerReferences that do not exist on this cluster: " + owners
	awaitWork(t, h, w, func(got *workv1.ManifestWork) error {
		for _, m := range got.Status.ResourceStatus.Manifests {
			for _, cond := range m.Conditions {
				if cond.Type == fleet.ConditionApplied && cond.Status == metav1.ConditionTrue && strings.HasPrefix(cond.Message, want) {
					return nil
				}
			}
		}
		return fmt.Errorf("the manifests are %+v, want one with %q", got.Status.ResourceStatus.Manifests, want)
	})
}
