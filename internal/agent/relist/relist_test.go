package relist

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// The second handler of errors slows them down by the time of the last one, which may have been at another time than a bubble's.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// apiServer has no objects, and counts how often it is asked.
type apiServer struct {
	away     atomic.Bool
	requests atomic.Int32
	// listsOnly has it fail when a watch is to take the place of a list.
	listsOnly bool
	watches   chan *watch.FakeWatcher
}

func (s *apiServer) answer() error {
	s.requests.Add(1)
	if s.away.Load() {
		return syscall.ECONNREFUSED
	}
	return nil
}

func (s *apiServer) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, s.answer()
}

// watch sends what is there, which is nothing, and then the bookmark that says so, if it takes the place of a list.
func (s *apiServer) watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := s.answer(); err != nil {
		return nil, err
	}
	if s.listsOnly && options.SendInitialEvents != nil {
		return nil, apierrors.NewInternalError(errors.New("there are no initial events"))
	}
	w := watch.NewFakeWithChanSize(1, false)
	if options.SendInitialEvents != nil {
		w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5",
			Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	}
	s.watches <- w
	return w, nil
}

// withoutWatchList is a client whose lists do not come as watches.
type withoutWatchList struct{}

func (withoutWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// After an outage, a cache is up to date within seconds, whether it lists or has a watch in place of a list. It asks few times meanwhile.
func TestAfterOutage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		client    any
		listsOnly bool
	}{
		"lists":                     {client: withoutWatchList{}},
		"watches in place of lists": {},
		"watches that fail":         {listsOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const outage = 75 * time.Second // the pauses of client-go are long then
				server := &apiServer{listsOnly: test.listsOnly, watches: make(chan *watch.FakeWatcher, 10)}
				source := cache.ToListWatcherWithWatchListSemantics(
					&cache.ListWatch{ListWithContextFunc: server.list, WatchFuncWithContext: server.watch}, test.client)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go NewInformer(source, &corev1.ConfigMap{}, 0, cache.Indexers{}).RunWithContext(ctx)
				lost := <-server.watches
				synctest.Wait()
				server.away.Store(true)
				before := server.requests.Load()
				lost.Stop()
				<-time.After(outage)
				if asked := server.requests.Load() - before; asked > 30 {
					t.Errorf("it was asked %d times meanwhile", asked)
				}
				server.away.Store(false)
				back := time.Now()
				<-server.watches
				if late := time.Since(back); late > 15*time.Second {
					t.Errorf("it is watched %v after the outage", late)
				}
			})
		})
	}
}
