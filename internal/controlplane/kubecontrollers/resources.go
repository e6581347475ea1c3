package kubecontrollers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

const (
	// debounce gathers the events of one change, such as the installation of a set of CRDs, and lets the API server
	// publish them in its discovery.
	debounce = 500 * time.Millisecond

	// discoveryResync is a safety net: what is served changes only with a CRD or an APIService, and those are watched.
	discoveryResync = 10 * time.Minute
)

// resourceChanges notifies when the set of served resources may have changed, so that nobody has to poll discovery.
type resourceChanges struct {
	events      chan struct{}
	mu          sync.Mutex
	subscribers []func()
}

func newResourceChanges() *resourceChanges {
	return &resourceChanges{events: make(chan struct{}, 1)}
}

// watch shares the garbage collector's informers on the two types. What is there at the start counts as a change: its
// follower may have read them just before it came.
func (r *resourceChanges) watch(objects metadatainformer.SharedInformerFactory) error {
	for _, resource := range []schema.GroupVersionResource{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	} {
		_, err := objects.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { r.notice() },
			UpdateFunc: func(any, any) { r.notice() },
			DeleteFunc: func(any) { r.notice() },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *resourceChanges) notice() {
	select {
	case r.events <- struct{}{}:
	default:
	}
}

// subscribe calls back, from one goroutine, after each debounced change. Only before run.
func (r *resourceChanges) subscribe(callback func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers = append(r.subscribers, callback)
}

func (r *resourceChanges) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.events:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(debounce):
		}
		// Events that came meanwhile are part of this change.
		select {
		case <-r.events:
		default:
		}
		r.mu.Lock()
		for _, callback := range r.subscribers {
			callback()
		}
		r.mu.Unlock()
	}
}

// follow keeps sync, a loop that compares discovery with what it knows every period, in step with the changes: each
// change starts it again, which makes it read them at once.
func (r *resourceChanges) follow(sync func(ctx context.Context, period time.Duration)) func(context.Context) {
	changed := make(chan struct{}, 1)
	r.subscribe(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			round, stop := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				sync(round, discoveryResync)
			}()
			select {
			case <-ctx.Done():
			case <-changed:
			}
			stop()
			<-done
		}
	}
}

// objectInformers serves the garbage collector and the quota count: metadata is all they need of most objects. Of
// workloads the quota count reads the content. What another controller reads in full is watched once, for all.
type objectInformers struct {
	typed    informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory
}

var contentCounted = map[schema.GroupResource]bool{
	{Resource: "pods"}:                                     true,
	{Resource: "services"}:                                 true,
	{Resource: "persistentvolumeclaims"}:                   true,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}: true,
}

// readInFull are the resources that the controllers here, and those that turn workloads into pods, have typed informers
// on where they are served.
var readInFull = map[schema.GroupResource]bool{
	{Resource: "namespaces"}:                                                         true,
	{Resource: "serviceaccounts"}:                                                    true,
	{Resource: "resourcequotas"}:                                                     true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                   true,
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:           true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}: true,
	{Resource: "nodes"}:                                                              true,
	{Resource: "endpoints"}:                                                          true,
	{Resource: "replicationcontrollers"}:                                             true,
	{Resource: "persistentvolumes"}:                                                  true,
	{Group: "discovery.k8s.io", Resource: "endpointslices"}:                          true,
	{Group: "apps", Resource: "deployments"}:                                         true,
	{Group: "apps", Resource: "replicasets"}:                                         true,
	{Group: "apps", Resource: "statefulsets"}:                                        true,
	{Group: "apps", Resource: "daemonsets"}:                                          true,
	{Group: "apps", Resource: "controllerrevisions"}:                                 true,
	{Group: "batch", Resource: "jobs"}:                                               true,
	{Group: "batch", Resource: "cronjobs"}:                                           true,
	{Group: "policy", Resource: "poddisruptionbudgets"}:                              true,
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                            true,
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                  true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                true,
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:                      true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                         true,
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                           true,
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:                            true,
}

// ForResource implements informerfactory.InformerFactory.
func (o objectInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	if contentCounted[resource.GroupResource()] || readInFull[resource.GroupResource()] {
		return o.typed.ForResource(resource)
	}
	return o.metadata.ForResource(resource), nil
}

// Start implements informerfactory.InformerFactory.
func (o objectInformers) Start(stop <-chan struct{}) {
	o.typed.Start(stop)
	o.metadata.Start(stop)
}
