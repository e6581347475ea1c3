package deletion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clientgotesting "k8s.io/client-go/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	owner     = &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hash-work", UID: "owner"}}
	errBroken = errors.New("broken")
)

// slow is a cluster that has every object that is requested, and takes a second to delete one.
type slow struct {
	metadata.ResourceInterface
	*deleteLog
	resource, namespace string
}

// deleteLog is of all deletions.
type deleteLog struct {
	mu      sync.Mutex
	deleted []string
	policy  []metav1.DeletionPropagation
	now     int
	most    int
}

func (s *slow) Resource(r schema.GroupVersionResource) metadata.Getter {
	return &slow{deleteLog: s.deleteLog, resource: r.Resource}
}

func (s *slow) Namespace(ns string) metadata.ResourceInterface {
	return &slow{deleteLog: s.deleteLog, resource: s.resource, namespace: ns}
}

// List and Watch are the tracker's, of which nothing is wanted here.
func (s *slow) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *slow) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *slow) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, UID: types.UID(name)}}
	o.OwnerReferences = []metav1.OwnerReference{appliedmanifestwork.OwnerReference(owner)}
	return o, nil
}

func (s *slow) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	s.start(1)
	<-time.After(time.Second) // of a bubble
	s.start(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted, s.policy = append(s.deleted, s.resource+"/"+name), append(s.policy, *options.PropagationPolicy)
	if name == "broken" {
		return errBroken
	}
	return nil
}

func (s *slow) start(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
}

func newSlow(t *testing.T) (*slow, *Cluster) {
	s := &slow{deleteLog: &deleteLog{}}
	return s, &Cluster{Objects: s, Tracked: tracker.New(t.Context(), s)}
}

func resource(group, name, object string) workv1.AppliedManifestResourceMeta {
	return workv1.AppliedManifestResourceMeta{Version: "v1", UID: object,
		ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: name, Namespace: "default", Name: object}}
}

// A work of many objects is deleted many at a time, but not all at once; those that are still there keep their order.
func TestRemoveManyAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := newSlow(t)
		var all []workv1.AppliedManifestResourceMeta
		for i := range 10 * atOnce {
			all = append(all, resource("", "configmaps", fmt.Sprintf("cm-%d", i)))
		}
		all[3].Name, all[3].UID = "broken", "broken"
		start := time.Now()
		remaining, err := c.removeAll(t.Context(), owner, all)
		if took := time.Since(start); took != 10*time.Second || cluster.most != atOnce {
			t.Errorf("%d deletions took %s, and %d were under way at once", len(all), took, cluster.most)
		}
		if !errors.Is(err, errBroken) || !slices.Equal(remaining, all) {
			t.Errorf("remaining: %v (%v)", remaining, err)
		}
	})
}

// WK-12 WK-14: what takes others with it goes after all that come before it, and every object with the policy of the work.
func TestNamespacesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := newSlow(t)
		foreground := owner.DeepCopy()
		foreground.Annotations = map[string]string{fleet.AnnotationPropagationPolicy: string(metav1.DeletePropagationForeground)}
		_, err := c.removeAll(t.Context(), foreground, []workv1.AppliedManifestResourceMeta{
			resource("apps", "deployments", "a"), resource("", "configmaps", "b"), resource("", "namespaces", "c"),
			resource("example.com", "widgets", "d"), resource("apiextensions.k8s.io", "customresourcedefinitions", "e"),
		})
		if err != nil {
			t.Fatal(err)
		}
		at := func(object string) int { return slices.Index(cluster.deleted, object) }
		if at("customresourcedefinitions/e") != 3 || at("namespaces/c") != 4 {
			t.Errorf("deleted in the order %v", cluster.deleted)
		}
		for i, policy := range cluster.policy {
			if policy != metav1.DeletePropagationForeground {
				t.Errorf("%s was deleted with policy %s", cluster.deleted[i], policy)
			}
		}
	})
}

// contested is a cluster with one object, of which another writer changes something just before each of the first deletions.
func contested(t *testing.T, changes int, change func(*metav1.PartialObjectMetadata)) (*metadatafake.FakeMetadataClient, *Cluster) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	live := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm", UID: "cm", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{appliedmanifestwork.OwnerReference(owner)}},
	}
	objects := metadatafake.NewSimpleMetadataClient(scheme, live)
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	version := 1
	objects.PrependReactor("delete", "configmaps", func(action clientgotesting.Action) (bool, runtime.Object, error) {
		if version <= changes {
			version++
			live = live.DeepCopy()
			live.ResourceVersion = fmt.Sprint(version)
			change(live)
			if err := objects.Tracker().Update(configMaps, live, "default"); err != nil {
				t.Error(err)
			}
		}
		p := action.(clientgotesting.DeleteActionImpl).DeleteOptions.Preconditions
		if p.ResourceVersion != nil && *p.ResourceVersion != live.ResourceVersion {
			return true, nil, apierrors.NewConflict(configMaps.GroupResource(), "cm", errBroken)
		}
		return false, nil, nil
	})
	return objects, &Cluster{Objects: objects, Tracked: tracker.New(t.Context(), objects)}
}

// WK-13: an object that another work takes over while this one is about to delete it stays, and is the other's alone.
func TestMovedWhileBeingRemoved(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"to an agent that has applied it": true, "after a restart": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hash-other", UID: "other"}}
			objects, c := contested(t, 1, func(live *metav1.PartialObjectMetadata) {
				live.OwnerReferences = append(live.OwnerReferences, appliedmanifestwork.OwnerReference(other))
			})
			r, configMaps := resource("", "configmaps", "cm"),
				objects.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
			if known {
				live, err := configMaps.Get(t.Context(), "cm", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				c.Tracked.Track(owner.Name, appliedmanifestwork.Object(r))
				c.Tracked.Saw(appliedmanifestwork.Object(r), live)
			}
			remaining, err := c.removeAll(t.Context(), owner, []workv1.AppliedManifestResourceMeta{r})
			if err != nil || len(remaining) > 0 {
				t.Errorf("remaining: %v (%v)", remaining, err)
			}
			live, err := configMaps.Get(t.Context(), "cm", metav1.GetOptions{})
			if err != nil || owns(owner, live) || !owns(other, live) {
				t.Errorf("the object is now %+v (%v)", live, err)
			}
		})
	}
}

// The reasons of a delay are what failed, and then what is left; a few of them will do.
func TestExplain(t *testing.T) {
	t.Parallel()
	c := &Cluster{}
	var left []workv1.AppliedManifestResourceMeta
	for i, finalizers := range [][]string{nil, {"a", metav1.FinalizerDeleteDependents}, {metav1.FinalizerDeleteDependents}, nil, nil} {
		r := resource("apps", "deployments", fmt.Sprint(i))
		left = append(left, r)
		if i > 0 {
			c.requested.Store(r.UID, request{finalizers: finalizers})
		}
	}
	want := &conditions.Delay{Left: 5, Dependents: true, Reasons: []string{
		"could not delete deployments default/0: broken",
		"deployments.apps default/1 has the finalizers a",
		"deployments.apps default/2 waits for the garbage collector of the cluster to delete its dependents (finalizer foregroundDeletion)",
	}}
	failed := errors.Join(fmt.Errorf("delete deployments default/0: %w", errBroken))
	if diff := cmp.Diff(want, c.explain(t.Context(), left, failed)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An object that does not keep still is tried again a few times, and then left to the next pass; it is not taken for gone.
func TestBusyWhileBeingRemoved(t *testing.T) {
	t.Parallel()
	all := []workv1.AppliedManifestResourceMeta{resource("", "configmaps", "cm")}
	_, c := contested(t, 2, func(*metav1.PartialObjectMetadata) {})
	if _, err := c.removeAll(t.Context(), owner, all); err != nil {
		t.Errorf("an object that changed twice: %v", err)
	}
	_, c = contested(t, 1000, func(*metav1.PartialObjectMetadata) {})
	if remaining, err := c.removeAll(t.Context(), owner, all); !apierrors.IsConflict(err) || !slices.Equal(remaining, all) {
		t.Errorf("an object that never stops changing: remaining %v (%v)", remaining, err)
	}
}
