package tracker

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// The second handler of errors slows them down by the time of the last one, which may have been at another time than a bubble's.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// apiServer has one ConfigMap, and can refuse to say so.
type apiServer struct {
	metadata.ResourceInterface
	mu        sync.Mutex
	configMap *metav1.PartialObjectMetadata
	version   int
	lists     []metav1.ListOptions
	last      *watch.FakeWatcher
	refusal   error
}

func newAPIServer() *apiServer { return &apiServer{configMap: live("a", "40", 0), version: 50} }

func (s *apiServer) Resource(schema.GroupVersionResource) metadata.Getter { return s }

func (s *apiServer) Namespace(string) metadata.ResourceInterface { return s }

// IsWatchListSemanticsUnSupported has the reflector list.
func (s *apiServer) IsWatchListSemanticsUnSupported() bool { return true }

func (s *apiServer) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, o)
	if s.refusal != nil {
		return nil, s.refusal
	}
	if least, _ := strconv.Atoi(o.ResourceVersion); least > s.version {
		err := apierrors.NewTimeoutError("", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return nil, err
	}
	return &metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}, Items: []metav1.PartialObjectMetadata{*s.configMap},
	}, nil
}

func (s *apiServer) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return nil, s.refusal
	}
	s.last = watch.NewFake()
	return s.last, nil
}

// answer is what the API server says from now on.
func (s *apiServer) answer(refusal error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = refusal
	if refusal != nil {
		s.last.Stop()
	}
}

// pass lets time pass, in a bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A kind that is not served any more, or that the agent may not watch any more, is not known any more: what was seen of it
// last says nothing of now. The owners are notified once. When it is back, it is known again.
func TestKindsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"not served":  apierrors.NewGenericServerResponse(http.StatusNotFound, "list", configMaps.GroupResource(), "", "", 0, true),
		"not allowed": apierrors.NewForbidden(configMaps.GroupResource(), "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster := newAPIServer()
				tracker := New(t.Context(), cluster)
				var notified []string
				tracker.Listen(func(owner string, _ Object) { notified = append(notified, owner) })
				tracker.Track("one", named("a"))
				synctest.Wait()
				isKnown := func(want bool, when string) {
					t.Helper()
					if _, known := tracker.Revision(named("a")); known != want {
						t.Errorf("%s: known: %t", when, known)
					}
				}
				isKnown(true, "at first")
				expect(t, "at first", notified, "one")
				cluster.answer(refusal)
				synctest.Wait()
				isKnown(true, "refused for the first time")
				pass(time.Hour)
				isKnown(false, "refused for an hour")
				expect(t, "refused for an hour", notified, "one", "one")
				cluster.answer(nil)
				pass(time.Minute)
				isKnown(true, "back")
				cluster.answer(apierrors.NewServiceUnavailable("busy"))
				pass(time.Hour)
				isKnown(true, "an API server that is away")
				expect(t, "back and away", notified, "one", "one")
			})
		})
	}
}

// listOnly is one that grants no watch.
type listOnly struct{ *apiServer }

func (s listOnly) Resource(schema.GroupVersionResource) metadata.Getter { return s }

func (s listOnly) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, apierrors.NewForbidden(configMaps.GroupResource(), "", nil)
}

// What may be listed and not watched is not known: there is no event of its next change.
func TestKindsThatMayOnlyBeListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := listOnly{newAPIServer()}
		tracker := New(t.Context(), cluster)
		notified := 0
		tracker.Listen(func(string, Object) { notified++ })
		tracker.Track("one", named("a"))
		pass(time.Hour)
		if _, known := tracker.Revision(named("a")); known || notified != 2 {
			t.Errorf("known: %t; the owner was told %d times, want of the list and of the refusal", known, notified)
		}
	})
}

// A cluster that is restored from a backup is listed again as soon as it is back. A watch alone would wait in silence until the
// cluster has caught up with what it was.
func TestClustersThatAreRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer()
		tracker := New(t.Context(), cluster)
		tracker.Track("one", named("a"))
		pass(time.Minute)
		cluster.answer(syscall.ECONNREFUSED)
		pass(time.Minute)
		cluster.configMap, cluster.version = live("a", "20", 0), 30
		cluster.answer(nil)
		pass(time.Minute)
		if revision, known := tracker.Revision(named("a")); !known || revision != "20" {
			t.Errorf("revision %q, known: %t", revision, known)
		}
		cluster.last.Modify(live("a", "31", 0))
		synctest.Wait()
		if revision, known := tracker.Revision(named("a")); !known || revision != "31" {
			t.Errorf("after a change: revision %q, known: %t", revision, known)
		}
	})
}

// An API server that was away and has lost nothing is watched within seconds, however long it was away, and not listed again.
func TestClustersThatWereAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer()
		tracker := New(t.Context(), cluster)
		tracker.Track("one", named("a"))
		pass(time.Minute)
		cluster.answer(syscall.ECONNREFUSED)
		pass(75 * time.Second) // the pauses of client-go are long then
		cluster.lists = nil
		lost := cluster.last
		cluster.answer(nil)
		pass(12 * time.Second)
		if cluster.last == lost {
			t.Error("it is not watched")
		}
		if lists := cluster.lists; len(lists) != 1 || lists[0].Limit != 1 {
			t.Errorf("lists %+v", lists)
		}
	})
}
