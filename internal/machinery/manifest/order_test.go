package manifest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// WK-04
func TestOrderByKind(t *testing.T) {
	t.Parallel()
	tiers := map[int][]string{
		0: {"PriorityClass", "Namespace", "CustomResourceDefinition", "StorageClass", "PersistentVolume", "PodSecurityPolicy"},
		1: {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
		2: {"NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount"},
		3: {"Secret", "ConfigMap", "PersistentVolumeClaim"},
		4: {"Service"},
		5: {"DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job",
			"CronJob"},
		6: {"APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy",
			"ValidatingAdmissionPolicyBinding"},
		1000: {"Widget", "Ingress", "namespace"},
	}
	for want, kinds := range tiers {
		for _, kind := range kinds {
			one := manifest.Decode(raw(fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"a"}}`, kind)))[0]
			if got := one.Rank(); got != want {
				t.Errorf("%s has rank %d, want %d", kind, got, want)
			}
		}
	}
	if got := manifest.Decode(raw(`{}`))[0].Rank(); got != 1001 {
		t.Errorf("an unreadable manifest has rank %d, want 1001", got)
	}
}

// WK-04: stable inside a rank, and the ordinals still point into the spec.
func TestOrderIsStable(t *testing.T) {
	t.Parallel()
	object := func(kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q}}`, kind, name)
	}
	manifests := manifest.Decode(raw(`{}`, object("Widget", "w"), object("Pod", "p"), object("Deployment", "d"),
		object("ConfigMap", "c"), object("Secret", "s"), object("Role", "r"), object("Namespace", "n")))
	manifest.Order(manifests)
	var got []int
	for _, m := range manifests {
		got = append(got, m.Ordinal)
	}
	if want := []int{7, 6, 4, 5, 2, 3, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("ordinals after ordering are %v, want %v", got, want)
	}
}

func TestHashIsOfContent(t *testing.T) {
	t.Parallel()
	decoded := manifest.Decode(raw(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"2"}}`,
		`{"data":{"y":"2","x":"1"},"kind":"ConfigMap","metadata":{"name":"a"},"apiVersion":"v1"}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"3"}}`,
	))
	if manifest.Hash(decoded[0].Object) != manifest.Hash(decoded[1].Object) {
		t.Error("the order of fields changes the hash")
	}
	if manifest.Hash(decoded[0].Object) == manifest.Hash(decoded[2].Object) {
		t.Error("another value does not change the hash")
	}
}
