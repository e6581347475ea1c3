// Package apiclient makes clients of API servers that need no cache, for the command line and for the hub that imports clusters. It
// discovers the resource of a kind by what is served of its version alone, and waits by watches.
package apiclient

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// Client sends requests to an API server.
type Client struct {
	// Config is what it was made of.
	Config *rest.Config
	// HTTP sends all requests, with the credential.
	HTTP *http.Client
	// Objects is for objects of any kind.
	Objects dynamic.Interface
}

// New returns a client of the server that a config leads to, by its proxy if it names one. Nothing is sent yet. A credential that would be
// sent in clear text is an error. The config is changed, and used from then on.
func New(config *rest.Config) (*Client, error) {
	config.QPS = -1 // the API server's priority and fairness is the throttle
	if err := forwardproxy.CheckCredential(config); err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	if err := forwardproxy.Use(config); err != nil {
		return nil, err
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(config, transport)
	return &Client{Config: config, HTTP: transport, Objects: objects}, err
}

// Until watches objects until done is true for those that there are. Lost connections are made again, and so are refused ones: list the
// objects first, to find what is refused.
func Until[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, source cache.ListerWatcher, done func([]P) bool) error {
	var store cache.Store
	isDone := func() (bool, error) {
		var objects []P
		for _, item := range store.List() {
			object, ok := item.(P)
			if !ok {
				return false, fmt.Errorf("watch sent a %T", item)
			}
			objects = append(objects, object)
		}
		return done(objects), nil
	}
	synced := func(objects cache.Store) (bool, error) {
		store = objects
		return isDone()
	}
	_, err := watchtools.UntilWithSync(ctx, source, P(new(T)), synced, func(watch.Event) (bool, error) { return isDone() })
	return err
}
