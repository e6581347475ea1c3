package scope

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/capstan-io/capstan/internal/fleet"
)

// CutOff refuses everything to whoever acts for a cluster that is cut off, whatever roles give them: those of add-ons may be anybody's, and the
// certificates that a compromised cluster has go on being valid. It is a beginning: the hub takes the rights of the cluster's agent away besides.
type CutOff struct {
	mu       sync.RWMutex
	clusters map[string]bool
	watches  *Watches
}

var _ authorizer.UnconditionalAuthorizer = (*CutOff)(nil)

// Authorize denies, or leaves it to others.
func (c *CutOff) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.clusters) == 0 || a.GetUser() == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	for _, cluster := range fleet.ClustersBehind(a.GetUser().GetName(), a.GetUser().GetGroups()) {
		if c.clusters[cluster] {
			return authorizer.DecisionDeny, fmt.Sprintf("cluster %q is cut off", cluster), nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// resync is never: the watch tells all there is.
const resync time.Duration = 0

// Run follows which clusters are cut off, until ctx ends. The API has to serve them.
func (c *CutOff) Run(ctx context.Context, client dynamic.Interface) error {
	clusters := schema.GroupVersionResource{Group: managedClusters.Group, Version: "v1", Resource: managedClusters.Resource}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, clusters, metav1.NamespaceAll, resync, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{fleet.LabelCutOff: fleet.LabelTrue}.String()
	}).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.note(o, true) },
		UpdateFunc: func(_, o any) { c.note(o, true) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			c.note(o, false)
		},
	})
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// note takes in a cluster with the label, or one that has lost it. One that is accepted is not cut off.
func (c *CutOff) note(o any, labelled bool) {
	cluster, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	accepted, _, _ := unstructured.NestedBool(cluster.Object, "spec", "hubAcceptsClient")
	c.set(cluster.GetName(), labelled && !accepted)
}

func (c *CutOff) set(cluster string, is bool) {
	c.mu.Lock()
	was := c.clusters[cluster]
	switch {
	case is && c.clusters == nil:
		c.clusters = map[string]bool{cluster: true}
	case is:
		c.clusters[cluster] = true
	default:
		delete(c.clusters, cluster)
	}
	c.mu.Unlock()
	if is && !was && c.watches != nil {
		c.watches.checkFor(cluster)
	}
}
