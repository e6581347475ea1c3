package scope

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/fleet"
)

// Watches are those that agents have open. A watch is authorized when it begins, and may then go on for an hour; these end
// as soon as the agent has lost the right to them, so that a denied cluster learns of no work that is made after that.
type Watches struct {
	authorizer authorizer.UnconditionalAuthorizer

	mu   sync.Mutex
	open map[string]map[*watch]struct{}
}

type watch struct {
	attributes authorizer.Attributes
	end        context.CancelFunc
}

// NewWatches returns Watches that ask the authorizer whether they may go on.
func NewWatches(a authorizer.UnconditionalAuthorizer) *Watches {
	return &Watches{authorizer: a, open: map[string]map[*watch]struct{}{}}
}

// Handler hands requests on, and ends watches of agents that have lost their rights.
func (w *Watches) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		who, _ := request.UserFrom(r.Context())
		if info == nil || who == nil || info.Verb != "watch" {
			next.ServeHTTP(rw, r)
			return
		}
		clusters := fleet.AgentClusters(who.GetGroups())
		attributes, err := filters.GetAuthorizerAttributes(r.Context())
		if len(clusters) == 0 || err != nil {
			next.ServeHTTP(rw, r)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		for _, cluster := range clusters {
			defer w.add(cluster, &watch{attributes: attributes, end: end})()
		}
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

// add keeps a watch until the returned function is called. The right to it may have gone since it was authorized.
func (w *Watches) add(cluster string, added *watch) (remove func()) {
	w.mu.Lock()
	if w.open[cluster] == nil {
		w.open[cluster] = map[*watch]struct{}{}
	}
	w.open[cluster][added] = struct{}{}
	w.mu.Unlock()
	w.check(added)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.open[cluster], added); len(w.open[cluster]) == 0 {
			delete(w.open, cluster)
		}
	}
}

func (w *Watches) check(one *watch) {
	decision, _, _ := w.authorizer.Authorize(context.Background(), one.attributes)
	if decision != authorizer.DecisionAllow {
		one.end()
	}
}

// Follow looks at the watches of a cluster whenever roles or bindings with its label change. The informers have to be those
// that the authorizer decides by.
func (w *Watches) Follow(shared informers.SharedInformerFactory) error {
	rbac := shared.Rbac().V1()
	for _, informer := range []cache.SharedIndexInformer{
		rbac.ClusterRoles().Informer(), rbac.ClusterRoleBindings().Informer(), rbac.RoleBindings().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, after any) {
				if versionOf(before) != versionOf(after) {
					w.changed(before)
				}
			},
			DeleteFunc: func(last any) {
				if unknown, ok := last.(cache.DeletedFinalStateUnknown); ok {
					last = unknown.Obj
				}
				w.changed(last)
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func versionOf(object any) string {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}

// changed checks the watches of the cluster that a role or binding is for.
func (w *Watches) changed(object any) {
	m, err := meta.Accessor(object)
	if err != nil {
		klog.Background().Error(err, "Watches of an agent whose rights change go on until they end by themselves")
		return
	}
	w.mu.Lock()
	var affected []*watch
	for one := range w.open[m.GetLabels()[fleet.LabelClusterName]] {
		affected = append(affected, one)
	}
	w.mu.Unlock()
	for _, one := range affected {
		w.check(one)
	}
}
