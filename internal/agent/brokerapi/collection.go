package brokerapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// How much of the past a collection remembers for watches, in changes and in bytes of objects. A watch that is further behind has to start
// again. Watches are in the same process and read on at once; only a client that does not is ever behind.
const (
	maxHistory      = 1024
	maxHistoryBytes = 4 << 20
	// maxDeleted is how many deleted objects a collection knows, so that an event that was late does not bring them back.
	maxDeleted = 4096
)

// record is an object as it was at one time. It never changes.
type record struct {
	key    types.NamespacedName
	uid    string
	labels labels.Set
	// version is the resource version in the store, hubVersion that of the hub.
	version    int64
	hubVersion string
	generation int64
	raw        []byte
	// ahead says that the hub has accepted a change since hubVersion that the record has, too.
	ahead bool
	// created says that the hub has accepted the object and has not sent it yet.
	created bool
}

// object decodes the record.
func (r *record) object() (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(r.raw, &o.Object); err != nil {
		return nil, fmt.Errorf("decode %s as it is in memory: %w", r.key, err)
	}
	return o, nil
}

// change is what happened to an object. before is nil for one that was added.
type change struct {
	kind        watch.EventType
	now, before *record
}

// collection has the objects of one kind.
type collection struct {
	api  *API
	kind *kind

	mu            sync.Mutex
	records       map[types.NamespacedName]*record
	byUID         map[string]types.NamespacedName
	deleted       map[string]bool // whether the agent has reported that the work has left the cluster
	deletionOrder []string
	version       int64    // of the last change
	history       []change // the last ones
	bytes         int      // of the objects in history
	trimmed       int64    // version of the last change that is not in history any more
	changed       chan struct{}
	refusals      int // how often the hub has refused the subscription

	connection
}

func newCollection(a *API, k *kind) *collection {
	c := &collection{api: a, kind: k, records: map[types.NamespacedName]*record{}, byUID: map[string]types.NamespacedName{},
		deleted: map[string]bool{}, changed: make(chan struct{}), version: a.versions.Load()}
	c.trimmed = c.version
	c.connection.init()
	return c
}

// notify wakes all who wait for a change. The caller holds the lock.
func (c *collection) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// newRecord makes a record of an object, of which it sets kind and resource version.
func (c *collection) newRecord(o *unstructured.Unstructured, version int64, hubVersion string) (*record, error) {
	o.SetGroupVersionKind(c.kind.group.WithKind(c.kind.name))
	o.SetManagedFields(nil)
	o.SetResourceVersion(strconv.FormatInt(version, 10))
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", c.kind.name, o.GetName(), err)
	}
	return &record{key: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, uid: string(o.GetUID()), labels: o.GetLabels(),
		version: version, hubVersion: hubVersion, generation: o.GetGeneration(), raw: raw}, nil
}

// put stores an object, and returns its record. An object that is the same as before keeps its version, and is no event. The caller
// holds the lock.
func (c *collection) put(o *unstructured.Unstructured, hubVersion string, marks func(*record)) (*record, error) {
	before := c.records[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}]
	if before != nil {
		same, err := c.newRecord(o, before.version, hubVersion)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(same.raw, before.raw) {
			marks(same)
			c.records[same.key] = same
			return same, nil
		}
	}
	now, err := c.newRecord(o, c.api.versions.Add(1), hubVersion)
	if err != nil {
		return nil, err
	}
	marks(now)
	c.records[now.key] = now
	if now.uid != "" {
		c.byUID[now.uid] = now.key
	}
	kind := watch.Modified
	if before == nil {
		kind = watch.Added
	}
	c.appendHistory(change{kind: kind, now: now, before: before})
	return now, nil
}

// drop removes a record, and returns it with the version of its removal. The caller holds the lock.
func (c *collection) drop(before *record) (*record, error) {
	o, err := before.object()
	if err != nil {
		return nil, err
	}
	gone, err := c.newRecord(o, c.api.versions.Add(1), before.hubVersion)
	if err != nil {
		return nil, err
	}
	delete(c.records, before.key)
	delete(c.byUID, before.uid)
	c.recordDeleted(before.uid)
	c.appendHistory(change{kind: watch.Deleted, now: gone, before: before})
	return gone, nil
}

func (c *collection) recordDeleted(uid string) {
	if uid == "" {
		return
	}
	delete(c.asked, uid)
	c.deleted[uid] = false
	c.deletionOrder = append(c.deletionOrder, uid)
	if len(c.deletionOrder) > maxDeleted {
		delete(c.deleted, c.deletionOrder[0])
		c.deletionOrder = c.deletionOrder[1:]
	}
}

// forgetDeleted forgets which objects were deleted. A new subscription brings nothing that was late in the earlier one, and what the hub
// has of these objects now, it has: what it said before may have come from a cache that lagged behind.
func (c *collection) forgetDeleted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted, c.deletionOrder = map[string]bool{}, nil
}

// isReported reports whether the agent has reported that a work has left the cluster.
func (c *collection) isReported(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleted[uid]
}

// appendHistory adds a change to the history. The caller holds the lock.
func (c *collection) appendHistory(what change) {
	c.version = what.now.version
	c.history = append(c.history, what)
	c.bytes += len(what.now.raw)
	for len(c.history) > maxHistory || c.bytes > maxHistoryBytes && len(c.history) > 1 {
		c.trimmed = c.history[0].now.version
		c.bytes -= len(c.history[0].now.raw)
		c.history[0] = change{}
		c.history = c.history[1:]
	}
	c.notify()
}

// since returns the changes after a version, and reports false if they are not known any more. The caller holds the lock.
func (c *collection) since(version int64) ([]change, bool) {
	if version < c.trimmed || version > c.api.versions.Load() {
		return nil, false
	}
	first := len(c.history)
	for first > 0 && c.history[first-1].now.version > version {
		first--
	}
	return c.history[first:], true
}

// receive stores what the hub says of an object. keep carries over what its events do not have from the object as it is known. again
// reports that the event contradicts what the hub said before, so that the hub has to be asked what it has.
func (c *collection) receive(o *unstructured.Unstructured, action cloudevents.Action,
	keep func(o, current *unstructured.Unstructured) error) (again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, hubVersion := string(o.GetUID()), o.GetResourceVersion()
	before := c.records[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}]
	if news, again := c.isNews(o, before, action); !news {
		return again, nil
	}
	delete(c.asked, uid)
	delete(c.deleted, uid)
	switch {
	case before == nil || before.uid == "":
	case before.uid != uid:
		// It was deleted and created again.
		if _, err := c.drop(before); err != nil {
			return false, err
		}
	case keep != nil:
		current, err := before.object()
		if err != nil {
			return false, err
		}
		if err := keep(o, current); err != nil {
			return false, err
		}
	}
	_, err = c.put(o, hubVersion, func(*record) {})
	c.notify() // who waits for the hub's version of an object that stays the same
	return false, err
}

// isNews reports whether an event changes what is known. One that is older than that, or about an object that was deleted, is late, or
// from a hub that was restored: the hub has to be asked again. Its answer counts, unless a later event has overtaken it. The caller holds
// the lock.
func (c *collection) isNews(o *unstructured.Unstructured, before *record, action cloudevents.Action) (news, again bool) {
	uid := string(o.GetUID())
	answers := action == cloudevents.ResyncResponse && c.asked[uid]
	if _, gone := c.deleted[uid]; gone {
		deleting := o.GetDeletionTimestamp() != nil
		return answers && !deleting, !answers && !deleting
	}
	if before == nil || before.uid != uid {
		return true, false
	}
	switch order := compareVersions(o.GetResourceVersion(), before.hubVersion); {
	case order == 0:
		delete(c.asked, uid)
		return false, false
	case order < 0:
		return answers, !answers
	default:
		return true, false
	}
}

// unversioned is the version of works whose source counts none.
const unversioned = "0"

// compareVersions compares versions of the hub, which are numbers in order. What has no version is taken to be newer.
func compareVersions(version, other string) int {
	a, err := strconv.ParseUint(version, 10, 64)
	b, err2 := strconv.ParseUint(other, 10, 64)
	if err != nil || err2 != nil || version == unversioned {
		return 1
	}
	return cmp.Compare(a, b)
}

// remove forgets an object that the hub does not have any more.
func (c *collection) remove(uid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, known := c.byUID[uid]
	if !known {
		c.recordDeleted(uid)
		return nil
	}
	_, err := c.drop(c.records[key])
	return err
}

// confirm removes what the hub accepted before a version of the store, and does not have: it was deleted meanwhile.
func (c *collection) confirm(version int64) error {
	for _, r := range c.records {
		if r.created && r.version <= version {
			if _, err := c.drop(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// get returns a record, or nil.
func (c *collection) get(key types.NamespacedName) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[key]
}

func bookmarkOf(k *kind, version int64, annotations map[string]string) ([]byte, error) {
	return json.Marshal(&metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: k.group.String(), Kind: k.name},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(version, 10), Annotations: annotations},
	})
}
