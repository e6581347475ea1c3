package tracker

import (
	"encoding/json"
	"hash/fnv"
	"strconv"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Revision stands for those parts of an object that a manifest may determine: two states of equal revision differ in their
// status, at most. The revision of an object that does not exist is empty.
type Revision string

// uncounted are resources whose objects have a generation that the API server never raises.
var uncounted = sets.New(schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"})

// RevisionOf is the revision of a live object of a resource. Where the API server counts generations, a change of status alone
// leaves the revision as it is, so a busy workload causes no pass; elsewhere every write is a new one.
func RevisionOf(resource schema.GroupResource, o metav1.Object) Revision {
	if o.GetGeneration() == 0 || uncounted.Has(resource) {
		return Revision(o.GetResourceVersion())
	}
	h := fnv.New64a()
	// Encoding sorts the keys of maps, so equal metadata has equal bytes. These types always encode.
	_ = json.NewEncoder(h).Encode(struct {
		UID         types.UID
		Generation  int64
		Deleting    bool
		Labels      map[string]string
		Annotations map[string]string
		Owners      []metav1.OwnerReference
		Finalizers  []string
	}{o.GetUID(), o.GetGeneration(), o.GetDeletionTimestamp() != nil, o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences(),
		o.GetFinalizers()})
	return Revision(strconv.FormatUint(h.Sum64(), 36))
}

// soleWork is the UID of the AppliedManifestWork that owns an object, if it is one and the object is not being deleted.
func soleWork(o metav1.Object) (sole unique.Handle[types.UID]) {
	if o.GetDeletionTimestamp() != nil {
		return unique.Handle[types.UID]{}
	}
	for _, owner := range o.GetOwnerReferences() {
		if !IsWork(owner) {
			continue
		}
		if sole != (unique.Handle[types.UID]{}) {
			return unique.Handle[types.UID]{}
		}
		sole = unique.Make(owner.UID)
	}
	return sole
}

// IsWork reports whether an owner is an AppliedManifestWork, of any version.
func IsWork(owner metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == workv1.GroupVersion.Group && owner.Kind == "AppliedManifestWork"
}
