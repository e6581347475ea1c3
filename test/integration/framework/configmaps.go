package framework

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
)

// ConfigMap is a ConfigMap in JSON, with a value under the key "key".
func ConfigMap(namespace, name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q},"data":{"key":%q}}`, namespace, name,
		value)
}

// AwaitConfigMap waits until a ConfigMap has the value under the key "key", and returns it.
func AwaitConfigMap(t *testing.T, c client.Client, namespace, name, value string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	env.Eventually(t, func(ctx context.Context) error {
		*cm = corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm); err != nil {
			return err
		}
		if cm.Data["key"] != value || len(cm.Data) != 1 {
			return fmt.Errorf("ConfigMap %s/%s holds %v, want key=%s alone", namespace, name, cm.Data, value)
		}
		return nil
	})
	return cm
}

// PatchData patches the data of a ConfigMap, as kubectl does.
func PatchData(t *testing.T, c client.Client, namespace, name, key, value string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:%q}}`, key, value))
	if err := c.Patch(t.Context(), cm, patch, client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
}

// AwaitData waits until a ConfigMap holds this data and no other.
func AwaitData(t *testing.T, c client.Client, namespace, name string, want map[string]string) *corev1.ConfigMap {
	t.Helper()
	return AwaitObject(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		func(cm *corev1.ConfigMap) error {
			if fmt.Sprint(cm.Data) != fmt.Sprint(want) {
				return fmt.Errorf("ConfigMap %s holds %v, want %v", name, cm.Data, want)
			}
			return nil
		})
}
