package hubclient

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

type noHub struct{}

func (noHub) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

// RG-54: an agent leaves a hub that is gone at once, for another or for good, although its caches are about to try it again.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, err := NewCluster(&rest.Config{Host: "https://hub.invalid", Transport: noHub{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- hub.Start(ctx) }()
		if _, err := hub.GetCache().GetInformer(ctx, &workv1.ManifestWork{}, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Minute)
		synctest.Wait()
		cancel()
		at := time.Now()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took > 0 {
			t.Errorf("the end took %s", took)
		}
		<-time.After(5 * time.Minute) // until the cache has looked up
	})
}
