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
	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// pendingClusters counts the ManagedClusters that are not accepted, by their requester. It watches them from the first count on, and
// keeps only the labels for counting, so that many pending clusters take little memory.
type pendingClusters struct {
	client  dynamic.Interface
	stopped <-chan struct{}

	start    sync.Once
	informer cache.SharedIndexInformer
}

// byRequester and byCredential index clusters by the labels of their requester and its credential, which are removed on acceptance.
const (
	byRequester  = "requester"
	byCredential = "credential"
)

// syncTimeout is how long the first count may take.
const syncTimeout = 10 * time.Second

// count returns how many pending clusters a sender has requested, according to the cache.
func (p *pendingClusters) count(ctx context.Context, sender rules.Sender) (rules.Waiting, error) {
	p.start.Do(p.follow)
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return rules.Waiting{}, errors.New("the hub has not counted yet the clusters that wait to be accepted; try again")
	}
	return count(p.informer.GetIndexer(), byRequester, fleet.RequesterLabel(sender.Name), byCredential,
		fleet.RequesterLabel(sender.Credential))
}

// count returns how many objects the indexes have for a user and for a credential.
func count(in cache.Indexer, byUser, user, byCredential, credential string) (rules.Waiting, error) {
	ofUser, err := in.IndexKeys(byUser, user)
	ofCredential, errOfCredential := in.IndexKeys(byCredential, credential)
	return rules.Waiting{OfUser: len(ofUser), OfCredential: len(ofCredential)}, errors.Join(err, errOfCredential)
}

func (p *pendingClusters) follow() {
	by := func(label string) cache.IndexFunc {
		return func(object any) ([]string, error) {
			cluster, ok := object.(*metav1.PartialObjectMetadata)
			if !ok || cluster.Labels[label] == "" {
				return nil, nil
			}
			return []string{cluster.Labels[label]}, nil
		}
	}
	indexers := cache.Indexers{byRequester: by(fleet.LabelRequestedBy), byCredential: by(fleet.LabelRequestedWith)}
	const never = 0 // resyncs
	p.informer = dynamicinformer.NewFilteredDynamicInformer(p.client, clusterv1.GroupVersion.WithResource("managedclusters"),
		metav1.NamespaceAll, never,
		indexers, func(o *metav1.ListOptions) { o.LabelSelector = fleet.LabelRequestedBy }).Informer()
	_ = p.informer.SetTransform(requesterOnly) // fails once it has been started
	go p.informer.Run(p.stopped)
}

// requesterOnly strips clusters down to the labels by which they are counted.
func requesterOnly(object any) (any, error) {
	cluster, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: cluster.GetName(), UID: cluster.GetUID(), ResourceVersion: cluster.GetResourceVersion(),
		Labels: map[string]string{
			fleet.LabelRequestedBy:   cluster.GetLabels()[fleet.LabelRequestedBy],
			fleet.LabelRequestedWith: cluster.GetLabels()[fleet.LabelRequestedWith],
		},
	}}, nil
}
