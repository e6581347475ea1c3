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

// PatchData patches the data of a ConfigMap, as kubectl does.
func PatchData(t *testing.T, c client.Client, namespace, name, key, value string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:%q}}`, key, value))
	if err := c.Patch(t.Context(), cm, patch, client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
}

// AwaitObject waits until an object is as the check wants it.
func AwaitObject[T client.Object](t *testing.T, c client.Client, o T, check func(T) error) T {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return check(o)
	})
	return o
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
