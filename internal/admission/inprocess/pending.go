package inprocess

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// pendingClusters counts the ManagedClusters that nobody has accepted by who asked for them. It follows them from the first time that it
// is asked, and keeps no more of each than that: whoever asks for many is not to cost the more for it.
type pendingClusters struct {
	client  dynamic.Interface
	stopped <-chan struct{}

	begin    sync.Once
	informer cache.SharedIndexInformer
}

// byRequester indexes clusters by the label that says who asked for them, which acceptance takes off.
const byRequester = "requester"

// syncTimeout is how long the first count may take.
const syncTimeout = 10 * time.Second

// count is how many a user has asked for, as far as the cache knows.
func (p *pendingClusters) count(ctx context.Context, user string) (int, error) {
	p.begin.Do(p.follow)
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return 0, errors.New("the hub has not counted yet the clusters that wait to be accepted; try again")
	}
	keys, err := p.informer.GetIndexer().IndexKeys(byRequester, fleet.RequesterLabel(user))
	return len(keys), err
}

func (p *pendingClusters) follow() {
	requester := func(object any) ([]string, error) {
		cluster, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return nil, nil
		}
		return []string{cluster.Labels[fleet.LabelRequestedBy]}, nil
	}
	const never = 0 // resyncs
	p.informer = dynamicinformer.NewFilteredDynamicInformer(p.client, clusterv1.GroupVersion.WithResource("managedclusters"), metav1.NamespaceAll, never,
		cache.Indexers{byRequester: requester}, func(o *metav1.ListOptions) { o.LabelSelector = fleet.LabelRequestedBy }).Informer()
	_ = p.informer.SetTransform(requesterOnly) // fails once it has been started
	go p.informer.Run(p.stopped)
}

// requesterOnly keeps what clusters are counted by.
func requesterOnly(object any) (any, error) {
	cluster, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: cluster.GetName(), UID: cluster.GetUID(), ResourceVersion: cluster.GetResourceVersion(),
		Labels: map[string]string{fleet.LabelRequestedBy: cluster.GetLabels()[fleet.LabelRequestedBy]},
	}}, nil
}
