// Package tracker watches the objects that works have put on the managed cluster and notifies when one of them is no longer
// as it was left.
//
// There is one watch for each kind that is tracked, of metadata only, and only tracked objects are
// remembered: memory grows with what the agent manages, not with what the cluster holds.
package tracker

import (
	"context"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// linger is how long the watch of a kind goes on after its last object was forgotten, as works come and go.
const linger = time.Minute

// Object is an object of the managed cluster.
type Object struct {
	schema.GroupVersionResource
	types.NamespacedName
}

// Tracker tracks objects for owners. Its methods may be called at any time, from anywhere.
type Tracker struct {
	ctx    context.Context
	client metadata.Interface

	mu        sync.Mutex
	kinds     map[schema.GroupVersionResource]*kind
	listeners []func(owner string, o Object)
	changes   []func(o Object, version string, restored bool)
}

// kind is what is tracked of one resource. It is the store of the resource's reflector.
type kind struct {
	tracker  *Tracker
	resource schema.GroupVersionResource
	objects  map[types.NamespacedName]*object
	synced   bool
	// delivered is the resource version that the watch has come to.
	delivered string
	// refused is how often in a row it was not there, or not for the agent, since there was a watch.
	refused int
	stop    context.CancelFunc
	idle    *time.Timer
}

type object struct {
	owners   sets.Set[string]
	version  string // the newest resource version that is known of
	revision Revision
	known    bool // whether anything is known of it yet
	// soleWork is the only AppliedManifestWork that owns it in that version, if it is not being deleted.
	soleWork unique.Handle[types.UID]
}

// New returns a tracker that watches until the context ends.
func New(ctx context.Context, client metadata.Interface) *Tracker {
	return &Tracker{ctx: ctx, client: client, kinds: map[schema.GroupVersionResource]*kind{}}
}

// Listen has f called with an owner and one of its objects whenever that changes. f must return quickly and must not call the
// tracker. All listeners are added before the first object is tracked.
func (t *Tracker) Listen(f func(owner string, o Object)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listeners = append(t.listeners, f)
}

// ListenToChanges has f called with every change of a tracked object, of its status as well, and the resource version by which
// the change is known. What Saw has recorded is no change any more. An object that was restored may have an older version than was
// known before. The rules of Listen apply.
func (t *Tracker) ListenToChanges(f func(o Object, version string, restored bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = append(t.changes, f)
}

// Track starts to watch an object for an owner. Called before the object is written, it makes sure that no later change is
// missed.
func (t *Tracker) Track(owner string, o Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kinds[o.GroupVersionResource]
	if k == nil {
		k = t.watch(o.GroupVersionResource)
	}
	if k.idle != nil {
		k.idle.Stop()
		k.idle = nil
	}
	tracked := k.objects[o.NamespacedName]
	if tracked == nil {
		tracked = &object{owners: sets.New[string]()}
		k.objects[o.NamespacedName] = tracked
	}
	tracked.owners.Insert(owner)
}

// Forget ends the owner's interest in an object.
func (t *Tracker) Forget(owner string, o Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kinds[o.GroupVersionResource]
	if k == nil || k.objects[o.NamespacedName] == nil {
		return
	}
	tracked := k.objects[o.NamespacedName]
	tracked.owners.Delete(owner)
	if tracked.owners.Len() == 0 {
		delete(k.objects, o.NamespacedName)
	}
	if len(k.objects) == 0 && k.idle == nil {
		k.idle = time.AfterFunc(linger, func() { t.unwatch(o.GroupVersionResource) })
	}
}

// Saw records the state in which the caller read or left an object, ahead of the watch.
func (t *Tracker) Saw(o Object, live metav1.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.kinds[o.GroupVersionResource]; k != nil {
		if tracked := k.objects[o.NamespacedName]; tracked != nil && !IsOlder(live.GetResourceVersion(), tracked.version) {
			tracked.version, tracked.revision, tracked.known = live.GetResourceVersion(), RevisionOf(o.GroupResource(), live), true
			tracked.soleWork = soleWork(live)
		}
	}
}

// Revision is the state of a tracked object, empty if it does not exist. It is unknown while the watch of its kind has not
// caught up with the cluster, which may never happen where the agent must not watch the kind.
func (t *Tracker) Revision(o Object) (revision Revision, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kinds[o.GroupVersionResource]
	if k == nil || k.objects[o.NamespacedName] == nil {
		return "", false
	}
	return k.objects[o.NamespacedName].revision, k.synced && k.refused < maxRefusals && k.objects[o.NamespacedName].known
}

// Owners are those that an object is tracked for, whatever the version.
func (t *Tracker) Owners(resource schema.GroupResource, name types.NamespacedName) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	owners := sets.New[string]()
	for _, k := range t.kinds {
		if tracked := k.objects[name]; tracked != nil && k.resource.GroupResource() == resource {
			owners = owners.Union(tracked.owners)
		}
	}
	return sets.List(owners)
}

// Version is the newest resource version that is known of a tracked object, by the watch or by Saw; empty if none is.
func (t *Tracker) Version(o Object) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.kinds[o.GroupVersionResource]; k != nil && k.objects[o.NamespacedName] != nil {
		return k.objects[o.NamespacedName].version
	}
	return ""
}

// Alone is the resource version, and the revision, in which an object that is not being deleted has the AppliedManifestWork as an
// owner and no other; empty if that is not known. Who acts on it makes the version a precondition: there may be a newer one.
func (t *Tracker) Alone(o Object, work types.UID) (version string, revision Revision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kinds[o.GroupVersionResource]
	if k == nil || k.objects[o.NamespacedName] == nil {
		return "", ""
	}
	if tracked := k.objects[o.NamespacedName]; tracked.soleWork == unique.Make(work) {
		return tracked.version, tracked.revision
	}
	return "", ""
}

// watch starts the reflector of a kind.
func (t *Tracker) watch(resource schema.GroupVersionResource) *kind {
	ctx, cancel := context.WithCancel(t.ctx)
	k := &kind{tracker: t, resource: resource, objects: map[types.NamespacedName]*object{}, stop: cancel}
	t.kinds[resource] = k
	from := &source{kind: k, client: t.client.Resource(resource)}
	listWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: from.list, WatchFuncWithContext: from.watch},
		t.client)
	reflector := cache.NewReflectorWithOptions(listWatch, &metav1.PartialObjectMetadata{}, k, cache.ReflectorOptions{
		Name: "applied " + resource.String(), TypeDescription: resource.String(),
	})
	go reflector.RunWithContext(ctx)
	return k
}

// unwatch stops the reflector of a kind, unless something is tracked again.
func (t *Tracker) unwatch(resource schema.GroupVersionResource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.kinds[resource]; k != nil && len(k.objects) == 0 {
		k.stop()
		delete(t.kinds, resource)
	}
}

// Add is called by the reflector.
func (k *kind) Add(obj any) error { return k.Update(obj) }

// Update is called by the reflector.
func (k *kind) Update(obj any) error {
	k.tracker.mu.Lock()
	defer k.tracker.mu.Unlock()
	if live, ok := obj.(metav1.Object); ok {
		k.observe(nameOf(live), live.GetResourceVersion(), live)
	}
	return nil
}

// Delete is called by the reflector.
func (k *kind) Delete(obj any) error {
	k.tracker.mu.Lock()
	defer k.tracker.mu.Unlock()
	if gone, ok := obj.(metav1.Object); ok {
		k.observe(nameOf(gone), gone.GetResourceVersion(), nil)
	}
	return nil
}

// Replace is called by the reflector with everything there is at a resource version. What the agent has written may be ahead of
// that, but what the watch has delivered may not: if it is, the cluster was restored from a backup, and all that is known is out of date.
// The same goes for an object with a lower version than the known one in a list of a later version: a restored cluster may go on with
// higher versions.
func (k *kind) Replace(all []any, version string) error {
	k.tracker.mu.Lock()
	defer k.tracker.mu.Unlock()
	present := make(map[types.NamespacedName]metav1.Object, len(k.objects))
	for _, obj := range all {
		if live, ok := obj.(metav1.Object); ok && k.objects[nameOf(live)] != nil {
			present[nameOf(live)] = live
		}
	}
	restored := IsOlder(version, k.delivered)
	for name, tracked := range k.objects {
		if !restored && IsOlder(version, tracked.version) {
			continue
		}
		if live := present[name]; live != nil {
			k.take(name, live.GetResourceVersion(), live, restored)
		} else {
			k.take(name, version, nil, restored)
		}
	}
	k.synced, k.delivered = true, version
	return nil
}

// UpdateResourceVersion is called by the reflector with the version of each event, of bookmarks as well.
func (k *kind) UpdateResourceVersion(version string) {
	k.tracker.mu.Lock()
	defer k.tracker.mu.Unlock()
	k.delivered = version
}

// Resync is called by the reflector; there is nothing to do again.
func (k *kind) Resync() error { return nil }

// observe takes in what the watch says of a change, unless something newer is known.
func (k *kind) observe(name types.NamespacedName, version string, live metav1.Object) {
	if tracked := k.objects[name]; tracked != nil && !IsOlder(version, tracked.version) {
		k.take(name, version, live, false)
	}
}

// take takes in the state of a tracked object, nil if it has gone, and returns whom it concerns if it is news.
func (k *kind) take(name types.NamespacedName, version string, live metav1.Object, restored bool) {
	var revision Revision
	var sole unique.Handle[types.UID]
	if live != nil {
		revision, sole = RevisionOf(k.resource.GroupResource(), live), soleWork(live)
	}
	tracked := k.objects[name]
	restored = restored || IsOlder(version, tracked.version)
	changed, touched := !tracked.known || tracked.revision != revision, tracked.version != version || restored
	tracked.version, tracked.revision, tracked.soleWork, tracked.known = version, revision, sole, true
	if touched {
		for _, listener := range k.tracker.changes {
			listener(Object{k.resource, name}, version, restored)
		}
	}
	if changed {
		k.notifyOwners(name, tracked)
	}
}

func (k *kind) notifyOwners(name types.NamespacedName, tracked *object) {
	for owner := range tracked.owners {
		for _, listener := range k.tracker.listeners {
			listener(owner, Object{k.resource, name})
		}
	}
}

// IsOlder reports whether resource version a comes before b. Versions that cannot be compared are taken to be news: a is not older.
func IsOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
