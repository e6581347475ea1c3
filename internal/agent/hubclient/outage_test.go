package hubclient

import (
	"context"
	"net"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// refused is what a request to a hub that is away ends with.
var refused = &url.Error{Op: "Get", URL: "https://hub", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}

// The second handler of errors slows them down by the time of the last one, which may have been at another time than a bubble's.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// After an outage, what a cache has is up to date within seconds, also if the hub ends the first watch, whose version it does not know.
func TestCacheAfterOutage(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]runtime.Object{"works": &workv1.ManifestWork{}, "others": &addonv1beta1.ManagedClusterAddOn{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const outage = 75 * time.Second // the pauses of client-go are long then; every two minutes, they begin to grow anew
				var away atomic.Bool
				lists, watches := make(chan bool, 10), make(chan *watch.FakeWatcher, 10)
				lw := &toolscache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						if away.Load() {
							return nil, refused
						}
						lists <- true
						return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						if away.Load() {
							return nil, refused
						}
						w := watch.NewFakeWithChanSize(1, false)
						watches <- w
						return w, nil
					},
				}
				options := &cluster.Options{}
				WorksByName(nil)(options)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go options.Cache.NewInformer(lw, kind, 0, toolscache.Indexers{}).RunWithContext(ctx)
				lost := <-watches
				<-lists
				away.Store(true)
				lost.Stop()
				<-time.After(outage)
				away.Store(false)
				back := time.Now()
				expired := apierrors.NewResourceExpired("too old resource version").ErrStatus
				(<-watches).Error(&expired)
				<-watches
				if late := time.Since(back); late > 20*time.Second || len(lists) == 0 {
					t.Errorf("it is watched %v after the outage, and was listed %d times", late, len(lists))
				}
			})
		})
	}
}
