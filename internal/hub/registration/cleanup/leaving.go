package cleanup

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// leaving watches the namespaces of the clusters that are being deleted, and no others: watching every object of the fleet would cost
// more than it saves.
type leaving struct {
	objects metadata.Interface
	changes chan<- event.GenericEvent

	mu       sync.Mutex
	ctx      context.Context
	awaiting map[string]bool
}

func newLeaving(objects metadata.Interface, changes chan<- event.GenericEvent) *leaving {
	return &leaving{objects: objects, changes: changes, ctx: context.Background(), awaiting: map[string]bool{}}
}

// Start ends the watches with the manager.
func (l *leaving) Start(ctx context.Context) error {
	l.mu.Lock()
	l.ctx = ctx
	l.mu.Unlock()
	<-ctx.Done()
	return nil
}

// await sends one event for the cluster when an object of the resource is deleted from its namespace after the resource version.
func (l *leaving) await(cluster string, resource schema.GroupVersionResource, since string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaiting[cluster] {
		return
	}
	l.awaiting[cluster] = true
	go l.watch(l.ctx, cluster, resource, since)
}

func (l *leaving) watch(ctx context.Context, cluster string, resource schema.GroupVersionResource, since string) {
	w, err := l.objects.Resource(resource).Namespace(cluster).Watch(ctx, metav1.ListOptions{ResourceVersion: since})
	if err == nil {
		untilDeleted(ctx, w)
	}
	l.mu.Lock()
	delete(l.awaiting, cluster)
	l.mu.Unlock()
	if err != nil {
		return // the timer of the cluster enqueues it
	}
	o := &clusterv1.ManagedCluster{}
	o.Name = cluster
	select {
	case l.changes <- event.GenericEvent{Object: o}:
	case <-ctx.Done():
	}
}

func untilDeleted(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Deleted || e.Type == watch.Error {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
