package direct

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// spareGrowth is by how much a change may make an object larger that the reserve is not for: enough for a label or a condition.
const spareGrowth = 4 << 10

// goOn are the groups without whose objects the hub does not start, or agents lose their access: kinds, priorities, rights, Leases and
// certificate requests. The reserve is for them, too.
var goOn = sets.New("apiextensions.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "rbac.authorization.k8s.io",
	"coordination.k8s.io", "certificates.k8s.io")

// startsWith are the keys of other objects without which the hub does not start: its namespaces, and what withholds works after a restore.
var startsWith = sets.New(
	"/namespaces/"+metav1.NamespaceDefault, "/namespaces/"+metav1.NamespaceSystem, "/namespaces/"+metav1.NamespacePublic,
	"/namespaces/"+fleet.NamespaceHub, "/configmaps/"+fleet.NamespaceHub+"/"+fleet.ConfigMapWorksHeld,
)

// reserving keeps the rest of a storage that is nearly full for what makes room: objects are deleted by changing them until their last
// finalizer is gone. It refuses to create objects, except those of startsWith, and to let them grow, except those that are being deleted.
type reserving struct {
	storage.Interface
	codec runtime.Codec
	// inReserve reports whether only the rest is left.
	inReserve func() bool
}

// Create implements storage.Interface.
func (s reserving) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	if s.inReserve() && !startsWith.Has(key) {
		return errFull()
	}
	return s.Interface.Create(ctx, key, object, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (s reserving) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, existing runtime.Object) error {
	if s.inReserve() {
		update = s.sparing(update)
	}
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, existing)
}

// sparing fails where the update would take from the reserve.
func (s reserving) sparing(update storage.UpdateFunc) storage.UpdateFunc {
	return func(before runtime.Object, found storage.ResponseMeta) (runtime.Object, *uint64, error) {
		most, err := s.mostOf(before, found) // first, as the update may change it
		if err != nil {
			return nil, nil, err
		}
		after, ttl, err := update(before, found)
		if err != nil || isBeingDeleted(after) {
			return after, ttl, err
		}
		size, err := s.sizeOf(after)
		if err != nil {
			return nil, nil, err
		}
		if size > most {
			return nil, nil, errFull()
		}
		return after, ttl, nil
	}
}

// mostOf is how large an object may become. One that does not exist yet may not.
func (s reserving) mostOf(object runtime.Object, found storage.ResponseMeta) (int, error) {
	if found.ResourceVersion == 0 {
		return 0, nil
	}
	size, err := s.sizeOf(object)
	return size + spareGrowth, err
}

func (s reserving) sizeOf(object runtime.Object) (int, error) {
	data, err := runtime.Encode(s.codec, object)
	return len(data), err
}

func isBeingDeleted(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && accessor.GetDeletionTimestamp() != nil
}
