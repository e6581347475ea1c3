// Package ownership knows which ManifestWorks belong to which add-ons. It is pure, and light enough for the command line.
package ownership

import (
	"cmp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Kind is that of the objects that own the works of add-ons.
const Kind = "ManagedClusterAddOn"

// Of returns the ManagedClusterAddOn that a ManifestWork belongs to. Its namespace is the cluster that it is for. ok is false for works
// of no add-on, even if they have the label. A user who may write works in one namespace must not be able to make a work look like one
// of an add-on in another, except on its possible hosting cluster, and a work that the hub or another controller creates for a user,
// such as that of a ManifestWorkReplicaSet, must not become one of an add-on by a name and labels of the user's choice. A work that has
// lost its owner reference still belongs to the add-on, and gets it back.
func Of(w metav1.Object) (key types.NamespacedName, ok bool) {
	key.Name = w.GetLabels()[fleet.LabelAddOnName]
	if key.Name == "" || controlledByOther(w, key.Name) {
		return types.NamespacedName{}, false
	}
	key.Namespace = cmp.Or(w.GetLabels()[fleet.LabelAddOnNamespace], w.GetNamespace())
	role, ok := Parse(w.GetName(), key)
	if !ok || !role.Hosting && w.GetNamespace() != key.Namespace {
		return types.NamespacedName{}, false
	}
	return key, true
}

// controlledByOther reports whether a work is controlled by another controller than the manager of an add-on of that name.
func controlledByOther(w metav1.Object, addOn string) bool {
	if _, ofSet := w.GetLabels()[fleet.LabelManifestWorkReplicaSet]; ofSet {
		return true
	}
	controller := metav1.GetControllerOfNoCopy(w)
	return controller != nil && (controller.Kind != Kind || controller.Name != addOn)
}

// Role is what the name of a work contains: whether it is for the hosting cluster, whether it has hooks, and its number otherwise.
type Role struct {
	Hosting, Hook bool
	Index         int
}

// Parse is the reverse of the names in package fleet.
func Parse(name string, owner types.NamespacedName) (Role, bool) {
	switch name {
	case fleet.AddOnPreDeleteWork(owner.Name):
		return Role{Hook: true}, true
	case fleet.AddOnHostingPreDeleteWork(owner.Name, owner.Namespace):
		return Role{Hook: true, Hosting: true}, true
	}
	number := name[strings.LastIndexByte(name, '-')+1:]
	index, err := strconv.Atoi(number)
	if err != nil || index < 0 {
		return Role{}, false
	}
	switch name {
	case fleet.AddOnDeployWork(owner.Name, index):
		return Role{Index: index}, true
	case fleet.AddOnHostingDeployWork(owner.Name, owner.Namespace, index):
		return Role{Hosting: true, Index: index}, true
	}
	return Role{}, false
}
