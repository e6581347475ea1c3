package apply

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// An owner in metadata.ownerReferences is an object with a UID, so a manifest that comes from another cluster names owners that do not
// exist here. The garbage collector removes references to such owners, or the object that has no other owner. They are not applied.

// leaveOutMissingOwners leaves out of what is applied the owners that the cluster does not have, and remembers them.
func (a *applier) leaveOutMissingOwners(ctx context.Context, t *task) {
	var kept []metav1.OwnerReference
	t.missingOwners = nil
	for _, owner := range t.required.GetOwnerReferences() {
		if owner.UID != t.owner.UID && a.isMissingOwner(ctx, t.identity.Namespace, owner) {
			t.missingOwners = append(t.missingOwners, fmt.Sprintf("%s %s with uid %s", owner.Kind, owner.Name, owner.UID))
		} else {
			kept = append(kept, owner)
		}
	}
	if len(t.missingOwners) > 0 {
		t.required.SetOwnerReferences(kept)
	}
}

// isMissingOwner reports whether an owner of an object in the namespace does not exist, as far as that can be found out.
func (a *applier) isMissingOwner(ctx context.Context, namespace string, owner metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || owner.UID == "" || strings.HasSuffix(string(owner.UID), manifest.RemovalSuffix) {
		return false // what is wrong, the API server says
	}
	kind := gv.WithKind(owner.Kind).GroupKind()
	mapping, err := a.mapper.RESTMapping(kind, gv.Version)
	if meta.IsNoMatchError(err) {
		mapping, err = a.mapper.RESTMapping(kind) // in another version it is the same object
	}
	if err != nil {
		return meta.IsNoMatchError(err)
	}
	switch {
	case mapping.Scope.Name() == meta.RESTScopeNameRoot:
		namespace = ""
	case namespace == "":
		return true // what is in a namespace cannot own what is in none
	}
	live, err := a.objects.Resource(mapping.Resource).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && live.GetUID() != owner.UID
}
