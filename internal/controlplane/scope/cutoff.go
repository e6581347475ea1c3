package scope

import (
	"context"
	"errors"
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

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CutOff refuses everything to agents and add-ons of a cluster that is cut off, whatever roles give them: those of add-ons may be given
// by any user, and the certificates that a compromised cluster has go on being valid. It is a beginning: the hub takes the rights of the
// cluster's agent away, too. Until it is known which clusters are cut off, all of them wait, and in the end fail; so nobody is
// let in by a restart.
type CutOff struct {
	// known is closed when clusters has all there are.
	known chan struct{}
	// over is closed when nobody waits for that any longer.
	over     <-chan struct{}
	mu       sync.RWMutex
	clusters map[string]bool
	watches  *Watches
}

// NewCutOff returns a CutOff that has to be run.
func NewCutOff() *CutOff { return &CutOff{known: make(chan struct{}), clusters: map[string]bool{}} }

var _ authorizer.UnconditionalAuthorizer = (*CutOff)(nil)

// Authorize denies, or leaves it to others.
func (c *CutOff) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	clusters := fleet.ClustersBehind(a.GetUser().GetName(), a.GetUser().GetGroups())
	if len(clusters) == 0 {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if !await(ctx, c.known, c.over) {
		return authorizer.DecisionDeny, "", errors.New("the hub does not know yet which clusters are cut off")
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, cluster := range clusters {
		if c.clusters[cluster] {
			return authorizer.DecisionDeny, fmt.Sprintf("cluster %q is cut off", cluster), nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// resync is never: the watch has all events.
const resync time.Duration = 0

// Run follows which clusters are cut off, until ctx ends. The API has to serve them. It is called once.
func (c *CutOff) Run(ctx context.Context, client dynamic.Interface) error {
	clusters := schema.GroupVersionResource{Group: managedClusters.Group, Version: "v1", Resource: managedClusters.Resource}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, clusters, metav1.NamespaceAll, resync, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{fleet.LabelCutOff: fleet.LabelTrue}.String()
		}).Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.observe(o, true) },
		UpdateFunc: func(_, o any) { c.observe(o, true) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			c.observe(o, false)
		},
	})
	if err != nil {
		return err
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			close(c.known)
		}
	}()
	informer.RunWithContext(ctx)
	return nil
}

// observe takes in a cluster with the label, or one that has lost it. One that is accepted is not cut off.
func (c *CutOff) observe(o any, labelled bool) {
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
	if is {
		c.clusters[cluster] = true
	} else {
		delete(c.clusters, cluster)
	}
	c.mu.Unlock()
	if is && !was && c.watches != nil {
		c.watches.checkFor(cluster)
	}
}
