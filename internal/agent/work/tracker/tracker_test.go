package tracker

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func named(name string) Object {
	return Object{GroupVersionResource: configMaps, NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

func live(name, version string, generation int64) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "1", ResourceVersion: version,
		Generation: generation}}
}

// newKind is a tracker, the store of its ConfigMaps, and what owners were notified of. The store is driven by hand: events come
// in the order that the test wants.
func newKind(t *testing.T) (*Tracker, *kind, func() []string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	tracker := New(t.Context(), fake.NewSimpleMetadataClient(scheme))
	k := &kind{tracker: tracker, resource: configMaps, objects: map[types.NamespacedName]*object{}, stop: func() {}}
	tracker.kinds[configMaps] = k
	var notified []string
	tracker.Listen(func(owner string, _ Object) { notified = append(notified, owner) })
	return tracker, k, func() []string {
		defer func() { notified = nil }()
		slices.Sort(notified)
		return notified
	}
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: owners %v were notified, want %v", what, got, want)
	}
}

// WK-17, gap W1: owners are notified of every change of theirs, and of nothing else.
func TestOwnersAreNotified(t *testing.T) {
	t.Parallel()
	tracker, k, notified := newKind(t)
	tracker.Track("one", named("a"))
	tracker.Track("two", named("a"))
	tracker.Track("two", named("b"))
	if _, known := tracker.Revision(named("a")); known {
		t.Error("an object is known before the first list")
	}
	must(t, k.Replace([]any{live("a", "5", 0), live("foreign", "3", 0)}, "7"))
	expect(t, "first list", notified(), "one", "two", "two")
	must(t, k.Update(live("a", "8", 0)))
	expect(t, "change", notified(), "one", "two")
	must(t, k.Update(live("foreign", "9", 0)))
	expect(t, "change of an object that is not tracked", notified())
	must(t, k.Delete(live("a", "10", 0)))
	expect(t, "deletion", notified(), "one", "two")
	if revision, known := tracker.Revision(named("a")); !known || revision != "" {
		t.Errorf("a deleted object has revision %q, known %t", revision, known)
	}
	tracker.Forget("one", named("a"))
	must(t, k.Add(live("a", "11", 0)))
	expect(t, "change after one owner let go", notified(), "two")
	tracker.Forget("two", named("a"))
	must(t, k.Update(live("a", "12", 0)))
	expect(t, "change after all let go", notified())
	if len(k.objects) != 1 {
		t.Errorf("%d objects are remembered, want b alone", len(k.objects))
	}
}

// What the agent itself has just written is no news, and events older than that are none either.
func TestOwnWritesAreNoNews(t *testing.T) {
	t.Parallel()
	tracker, k, notified := newKind(t)
	must(t, k.Replace(nil, "1"))
	tracker.Track("one", named("a"))
	tracker.Saw(named("a"), live("a", "5", 0))
	must(t, k.Add(live("a", "4", 0)))
	must(t, k.Add(live("a", "5", 0)))
	expect(t, "own write and what came before it", notified())
	must(t, k.Replace(nil, "4"))
	expect(t, "a list from before the write", notified())
	must(t, k.Replace(nil, "6"))
	expect(t, "a list from after it, without the object", notified(), "one")
}

// A deletion is notified even if the object was never seen before.
func TestDeletionOfUnseenObject(t *testing.T) {
	t.Parallel()
	tracker, k, notified := newKind(t)
	must(t, k.Replace(nil, "1"))
	tracker.Track("one", named("a"))
	must(t, k.Delete(live("a", "5", 0)))
	expect(t, "deletion", notified(), "one")
}

// WK-13: of objects that several works own, or that are being deleted, no work is notified that they are its alone.
func TestAlone(t *testing.T) {
	t.Parallel()
	work := func(uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "work.open-cluster-management.io/v1", Kind: "AppliedManifestWork", UID: uid}
	}
	tracker, k, _ := newKind(t)
	tracker.Track("one", named("a"))
	must(t, k.Replace(nil, "1"))
	version := 1
	expect := func(what, want string, change func(*metav1.PartialObjectMetadata)) {
		t.Helper()
		version++
		a := live("a", fmt.Sprint(version), 0)
		change(a)
		must(t, k.Update(a))
		if got, _ := tracker.Alone(named("a"), "1"); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("no owner", "", func(*metav1.PartialObjectMetadata) {})
	expect("the work", "3", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{work("1")} })
	expect("another work", "", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{work("2")} })
	expect("both", "", func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = []metav1.OwnerReference{work("1"), work("2")}
	})
	expect("another owner, too", "6", func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "3"}, work("1")}
	})
	expect("being deleted", "", func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences, o.DeletionTimestamp = []metav1.OwnerReference{work("1")}, &metav1.Time{}
	})
	expect("the work again", "8", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{work("1")} })
	must(t, k.Delete(live("a", "9", 0)))
	if got, _ := tracker.Alone(named("a"), "1"); got != "" {
		t.Errorf("gone: %q", got)
	}
	for _, owner := range []types.UID{"", "1"} {
		if got, _ := tracker.Alone(named("unknown"), owner); got != "" {
			t.Errorf("not tracked: %q", got)
		}
	}
}

// WK-14, WK-17: a busy status calls no owner: where generations are counted, they and the metadata decide.
func TestStatusIsNoNews(t *testing.T) {
	t.Parallel()
	tracker, k, notified := newKind(t)
	tracker.Track("one", named("a"))
	must(t, k.Replace([]any{live("a", "1", 3)}, "1"))
	notified()
	for version := 2; version < 10; version++ {
		must(t, k.Update(live("a", fmt.Sprint(version), 3)))
	}
	expect(t, "status", notified())
	must(t, k.Update(live("a", "11", 4)))
	expect(t, "generation", notified(), "one")
	for what, change := range map[string]func(*metav1.PartialObjectMetadata){
		"label":      func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{"a": "b"} },
		"annotation": func(o *metav1.PartialObjectMetadata) { o.Annotations = map[string]string{"a": "b"} },
		"owner":      func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{{UID: "2"}} },
		"finalizer":  func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"example.com/held"} },
		"deletion":   func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = &metav1.Time{} },
		"identity":   func(o *metav1.PartialObjectMetadata) { o.UID = "2" },
	} {
		before, after := live("a", "12", 4), live("a", "13", 4)
		change(after)
		if RevisionOf(configMaps.GroupResource(), before) == RevisionOf(configMaps.GroupResource(), after) {
			t.Errorf("a change of %s leaves the revision as it was", what)
		}
	}
}

// Gap W1: every write of a PriorityClass is news, for its generation stays as it is.
func TestPriorityClassesAreNotCounted(t *testing.T) {
	t.Parallel()
	priorityClasses := schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}
	if before, after := live("a", "12", 1), live("a", "13", 1); RevisionOf(priorityClasses, before) == RevisionOf(priorityClasses, after) {
		t.Error("a write leaves the revision as it was")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Gap W2: listeners are notified of every change of what is tracked once, that of a status as well; what the caller saw itself is none.
func TestListenersAreNotified(t *testing.T) {
	t.Parallel()
	tracker, k, notified := newKind(t)
	var changes []string
	tracker.ListenToChanges(func(o Object, version string, _ bool) {
		if o.GroupVersionResource != configMaps {
			t.Errorf("a change of %s", o.GroupVersionResource)
		}
		changes = append(changes, o.Name+" "+version)
	})
	changed := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(changes, want) {
			t.Errorf("%s: changes %q, want %q", what, changes, want)
		}
		changes = nil
	}
	tracker.Track("one", named("a"))
	must(t, k.Replace([]any{live("a", "5", 1), live("foreign", "3", 1)}, "7"))
	changed("first list", "a 5")
	notified()
	must(t, k.Update(live("a", "8", 1)))
	changed("a change of status", "a 8")
	expect(t, "a change of status", notified())
	tracker.Saw(named("a"), live("a", "9", 2))
	must(t, k.Update(live("a", "9", 2)))
	changed("a change that was seen already")
	must(t, k.Update(live("foreign", "10", 1)))
	changed("a change of an object that is not tracked")
	must(t, k.Delete(live("a", "11", 2)))
	changed("deletion", "a 11")
}

// The state of a cluster that was restored from a backup counts, although it is behind what was known of it. One that is behind only what
// the agent has written itself is not restored.
func TestRestored(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		list             []any
		version          string
		notified         []string
		changes, present []string
	}{
		"behind what the watch has told": {
			list: []any{live("a", "50", 0), live("b", "90", 0)}, version: "95", notified: []string{"one", "two"},
			changes: []string{"a 50 true", "b 90 true", "c 95 true"}, present: []string{"a 50", "b 90"},
		},
		"ahead, with objects that are behind": {
			list: []any{live("a", "50", 0), live("b", "90", 0)}, version: "1000", notified: []string{"one", "two"},
			changes: []string{"a 50 true", "c 1000 false"}, present: []string{"a 50", "b 90"},
		},
		"behind what the agent has written": {
			list: []any{live("a", "99", 0), live("b", "90", 0)}, version: "100",
			present: []string{"a 99", "b 90", "c 105"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracker, k, notified := newKind(t)
			tracker.Track("one", named("a"))
			tracker.Track("one", named("b"))
			tracker.Track("two", named("c"))
			must(t, k.Replace([]any{live("b", "90", 0)}, "92"))
			must(t, k.Update(live("a", "99", 0)))
			k.UpdateResourceVersion("99")
			tracker.Saw(named("c"), live("c", "105", 0))
			notified()
			var changes []string
			tracker.ListenToChanges(func(o Object, version string, restored bool) {
				changes = append(changes, fmt.Sprintf("%s %s %t", o.Name, version, restored))
			})
			must(t, k.Replace(test.list, test.version))
			if slices.Sort(changes); !slices.Equal(changes, test.changes) {
				t.Errorf("changes %q, want %q", changes, test.changes)
			}
			expect(t, "the list", slices.Compact(notified()), test.notified...)
			var present []string
			for _, name := range []string{"a", "b", "c"} {
				if revision, known := tracker.Revision(named(name)); known && revision != "" {
					present = append(present, fmt.Sprint(name, " ", revision))
				}
			}
			if !slices.Equal(present, test.present) {
				t.Errorf("there is %q, want %q", present, test.present)
			}
			must(t, k.Update(live("a", "101", 0)))
			if revision, _ := tracker.Revision(named("a")); revision != "101" {
				t.Errorf("after the next change the revision is %q", revision)
			}
		})
	}
}

// The owners of an object are those that track it in any version.
func TestOwnersOfAllVersions(t *testing.T) {
	t.Parallel()
	tracker, _, _ := newKind(t)
	other := named("a")
	other.Version = "v2"
	another := named("a")
	another.Resource = "secrets"
	tracker.Track("two", named("a"))
	tracker.Track("one", other)
	tracker.Track("three", another)
	tracker.Track("three", named("b"))
	if owners := tracker.Owners(configMaps.GroupResource(), named("a").NamespacedName); !slices.Equal(owners, []string{"one", "two"}) {
		t.Errorf("owners %v", owners)
	}
	if owners := tracker.Owners(configMaps.GroupResource(), named("c").NamespacedName); len(owners) > 0 {
		t.Errorf("owners %v of an object that nobody tracks", owners)
	}
}
