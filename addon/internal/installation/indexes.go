package installation

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Indexes keep the cost of an event proportional to the add-ons that it affects.
const (
	// indexOwner maps works and permissions to their ManagedClusterAddOn.
	indexOwner = "installation.owner"
	// indexName maps ManagedClusterAddOns to their name without the namespace.
	indexName = "installation.name"
	// indexConfig maps ManagedClusterAddOns to the configurations that they refer to.
	indexConfig = "installation.config"
)

func (c *Controller) index(indexer client.FieldIndexer) error {
	type index struct {
		of      client.Object
		name    string
		extract client.IndexerFunc
	}
	indexes := []index{
		{&workv1.ManifestWork{}, indexOwner, ownerOfWork},
		{&addonv1beta1.ManagedClusterAddOn{}, indexName, func(o client.Object) []string { return []string{o.GetName()} }},
		{&addonv1beta1.ManagedClusterAddOn{}, indexConfig, configurations},
	}
	for _, kind := range permissionKinds() {
		indexes = append(indexes, index{kind, indexOwner, c.ownerOfPermission})
	}
	for _, i := range indexes {
		if err := indexer.IndexField(context.Background(), i.of, i.name, i.extract); err != nil {
			return fmt.Errorf("index %T by %s: %w; a manager of controller-runtime runs add-ons once: give it all of them together", i.of, i.name,
				err)
		}
	}
	return nil
}

func permissionKinds() []client.Object {
	return []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}}
}

func ownerOfWork(o client.Object) []string {
	if key, ok := ownership.Of(o); ok {
		return []string{key.String()}
	}
	return nil
}

func (c *Controller) ownerOfPermission(o client.Object) []string {
	if c.applied(o) {
		return []string{keyOf(o).String()}
	}
	return nil
}

// applied reports whether an object is a permission that this manager has applied.
func (c *Controller) applied(o client.Object) bool {
	key := keyOf(o)
	return o.GetLabels()[fleet.LabelAddOnManager] == c.Manager && key.Name != "" && key.Namespace != ""
}

func configurations(o client.Object) (keys []string) {
	addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn)
	if !ok {
		return nil
	}
	for _, ref := range addOn.Status.ConfigReferences {
		if ref.DesiredConfig != nil {
			resource := schema.GroupResource{Group: ref.Group, Resource: ref.Resource}
			keys = append(keys, configKey(resource, types.NamespacedName{Namespace: ref.DesiredConfig.Namespace, Name: ref.DesiredConfig.Name}))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func configKey(resource schema.GroupResource, name types.NamespacedName) string {
	return resource.String() + "/" + name.String()
}
