package framework

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// Work makes a ManifestWork of manifests in JSON.
func Work(cluster, name string, manifests ...string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	w.Spec.Workload.Manifests = RawManifests(manifests...)
	return w
}

// RawManifests are manifests in JSON as a ManifestWork has them.
func RawManifests(manifests ...string) (list []workv1.Manifest) {
	for _, m := range manifests {
		list = append(list, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	return list
}

// AwaitCondition waits until the work's condition, at its present generation, has the status, and returns the work.
func AwaitCondition(t *testing.T, c client.Client, w *workv1.ManifestWork, kind string,
	status metav1.ConditionStatus) *workv1.ManifestWork {
	t.Helper()
	got := &workv1.ManifestWork{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), got); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(got.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.ObservedGeneration != got.Generation {
			return fmt.Errorf("ManifestWork %s at generation %d: want %s=%s, have %+v", got.Name, got.Generation, kind, status,
				got.Status.Conditions)
		}
		return nil
	})
	return got
}
