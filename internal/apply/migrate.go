package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
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
		if len(otherVersions(live)) > 0 {
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
		parts = append(parts, crd.Name+" ("+strings.Join(otherVersions(crd), ", ")+")")
	}
	return strings.Join(parts, ", ")
}

// otherVersions are the versions other than the storage version in which objects may be stored.
func otherVersions(live *apiextensionsv1.CustomResourceDefinition) []string {
	storage := storageVersion(live)
	return slices.DeleteFunc(slices.Clone(live.Status.StoredVersions), func(version string) bool { return version == storage })
}

// storageVersion is the version in which objects of a definition are stored. The API server accepts none without one.
func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	version, _ := apihelpers.GetCRDStorageVersion(crd)
	return version
}

// MigrateCRD reads and writes each object of a definition unchanged, which stores it in the storage version, and only when all of them are
// takes the other versions off the status of the definition. An object that somebody else writes or deletes meanwhile needs no more.
func MigrateCRD(ctx context.Context, cluster client.Client, live *apiextensionsv1.CustomResourceDefinition) error {
	storage := storageVersion(live)
	kind := schema.GroupVersionKind{Group: live.Spec.Group, Version: storage, Kind: live.Spec.Names.Kind}
	if err := rewrite(ctx, cluster, kind); err != nil {
		return stored.Failed(live.Name, storage, otherVersions(live), err)
	}
	// With the resource version, because another storage version may have been chosen since.
	change := stored.Only(live.ResourceVersion, storage)
	if err := cluster.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, change)); err != nil {
		return fmt.Errorf("write down that all %s are stored in version %s: %w", live.Name, storage, err)
	}
	return nil
}

// rewrite writes all objects of the kind as they are.
func rewrite(ctx context.Context, cluster client.Client, kind schema.GroupVersionKind) error {
	return stored.Rewrite(ctx, stored.Objects{
		Kind: kind.Kind,
		List: func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			page := &unstructured.UnstructuredList{}
			page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			return page, cluster.List(ctx, page, client.Limit(options.Limit), client.Continue(options.Continue))
		},
		Update: func(ctx context.Context, object *unstructured.Unstructured) error { return cluster.Update(ctx, object) },
	})
}

// migrateFirst writes a definition. If the one on the cluster has versions that this one no longer has, in which objects may be stored,
// these are migrated, and it is written again: the API server could not read such objects any more.
func migrateFirst(ctx context.Context, cluster client.Client, crd *apiextensionsv1.CustomResourceDefinition, write func() error) error {
	err := write()
	if !stored.Refused(err) {
		return err
	}
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(crd), live); err != nil {
		return fmt.Errorf("find out in which versions objects of %s are stored: %w", crd.Name, err)
	}
	storage := storageVersion(live)
	if !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == storage }) {
		return stored.Gone(crd.Name, storage, storageVersion(crd), err)
	}
	if err := MigrateCRD(ctx, cluster, live); err != nil {
		return err
	}
	return write()
}
