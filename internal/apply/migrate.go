package apply

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apply/stored"
)

// Migrations have what is stored in old versions stored in the version of the definitions. They record which definitions need none.
type Migrations struct {
	// done has the resource version that a definition, by its UID, had when nothing was stored in an old version.
	done sync.Map
}

// Pending returns the definitions on the cluster of which objects may be stored in another version than that in which they are now. Of the
// definitions, those count that [Cluster.ApplyCRDs] has applied: what a newer operator has applied is its own to migrate.
func (m *Migrations) Pending(ctx context.Context, cluster client.Reader, applied []*apiextensionsv1.CustomResourceDefinition) (
	pending []*apiextensionsv1.CustomResourceDefinition, err error,
) {
	for _, crd := range applied {
		if done, _ := m.done.Load(crd.UID); crd.ResourceVersion == "" || done == crd.ResourceVersion {
			continue
		}
		live := &apiextensionsv1.CustomResourceDefinition{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(crd), live); err != nil {
			return nil, fmt.Errorf("find out in which versions objects of %s are stored: %w", crd.Name, err)
		}
		if len(stored.Others(live)) > 0 {
			pending = append(pending, live)
			continue
		}
		m.done.Store(live.UID, live.ResourceVersion)
	}
	return pending, nil
}

// DescribePending says in which old versions objects of definitions may be stored.
func DescribePending(pending []*apiextensionsv1.CustomResourceDefinition) string {
	parts := make([]string, 0, len(pending))
	for _, crd := range pending {
		parts = append(parts, crd.Name+" ("+strings.Join(stored.Others(crd), ", ")+")")
	}
	return strings.Join(parts, ", ")
}

// MigrateCRD has the objects of a definition on the cluster stored in its storage version; see [stored.Migrate].
func MigrateCRD(ctx context.Context, cluster client.Client, live *apiextensionsv1.CustomResourceDefinition) error {
	return stored.Migrate(ctx, migrated{cluster}, live)
}

// migrated is a cluster with objects to migrate.
type migrated struct{ client client.Client }

func (m migrated) Definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	live := &apiextensionsv1.CustomResourceDefinition{}
	return live, m.client.Get(ctx, client.ObjectKey{Name: name}, live)
}

func (m migrated) MergeStatus(ctx context.Context, live *apiextensionsv1.CustomResourceDefinition, patch []byte) error {
	return m.client.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, patch))
}

func (m migrated) List(ctx context.Context, kind schema.GroupVersionKind, options metav1.ListOptions) (
	*unstructured.UnstructuredList, error,
) {
	page := &unstructured.UnstructuredList{}
	page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return page, m.client.List(ctx, page, client.Limit(options.Limit), client.Continue(options.Continue))
}

func (m migrated) Update(ctx context.Context, object *unstructured.Unstructured) error {
	return m.client.Update(ctx, object)
}
