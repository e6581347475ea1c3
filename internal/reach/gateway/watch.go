package gateway

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

// gatewayWatch shows the Secrets of a watch as ClusterGateways. That of watch.Filter does not end when it is stopped with an event that
// nobody takes.
type gatewayWatch struct {
	secrets watch.Interface
	shown   chan watch.Event
	stopped chan struct{}
	stop    func()
}

func newGatewayWatch(secrets watch.Interface) *gatewayWatch {
	stopped := make(chan struct{})
	w := &gatewayWatch{secrets: secrets, shown: make(chan watch.Event), stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) })}
	go w.show()
	return w
}

func (w *gatewayWatch) show() {
	defer close(w.shown)
	for event := range w.secrets.ResultChan() {
		if secret, ok := event.Object.(*corev1.Secret); ok {
			event.Object = shownIn(event.Type, secret)
		}
		select {
		case w.shown <- event:
		case <-w.stopped:
			return
		}
	}
}

func shownIn(event watch.EventType, secret *corev1.Secret) runtime.Object {
	shown := clustersecret.Gateway(secret)
	if event == watch.Bookmark {
		shown.Annotations = secret.Annotations // they say that all there was has been sent
	}
	return shown
}

// ResultChan implements watch.Interface.
func (w *gatewayWatch) ResultChan() <-chan watch.Event { return w.shown }

// Stop implements watch.Interface.
func (w *gatewayWatch) Stop() {
	w.stop()
	w.secrets.Stop()
}
