package scope

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// retrySeconds is when agents are to retry.
const retrySeconds = 10

// worksHeld is the ConfigMap by which a hub is held.
const worksHeld = fleet.NamespaceHub + "/" + fleet.ConfigMapWorksHeld

// goesOn are the kinds that agents list and watch also during a suspension: with them they register, report and renew certificates, and
// change nothing that is applied on their clusters.
var goesOn = []schema.GroupResource{managedClusters, certificateRequests, coordinationv1.Resource("leases")}

// Suspension keeps from agents, and from those of add-ons, what they change their clusters by, as long as there is the ConfigMap works-held
// in the hub's namespace, as on a hub that was restored from a backup and that nobody has checked yet. Agents remove what they do not
// find on the hub. During a suspension, the hub answers them as if it were not available for works, nor for lists and watches of all kinds
// but those of goesOn: that shows them no object as missing, and they leave their clusters as they are. Until it is known whether
// there is the ConfigMap, agents wait.
type Suspension struct {
	// known is closed when suspended is right.
	known chan struct{}
	// over is closed when nobody waits for that any longer.
	over      <-chan struct{}
	suspended atomic.Bool
}

// NewSuspension returns a Suspension that has to be run.
func NewSuspension() *Suspension { return &Suspension{known: make(chan struct{})} }

// Run follows the ConfigMap, and logs whether the hub is held, until ctx ends. It is called once.
func (s *Suspension) Run(ctx context.Context, client dynamic.Interface) error {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, configMaps, fleet.NamespaceHub, resync, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, fleet.ConfigMapWorksHeld).String()
		}).Informer()
	logger := klog.FromContext(ctx)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			s.suspended.Store(true)
			logger.Info("This hub is held: agents leave their clusters as they are until the ConfigMap is deleted", "configMap", worksHeld)
		},
		DeleteFunc: func(any) {
			s.suspended.Store(false)
			logger.Info("This hub is not held any more: agents do what it says", "configMap", worksHeld)
		},
	})
	if err != nil {
		return err
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			close(s.known)
		}
	}()
	informer.RunWithContext(ctx)
	return nil
}

// Handler hands on what does not have to wait.
func (s *Suspension) Handler(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !changesClusters(r) {
			next.ServeHTTP(w, r)
			return
		}
		if !await(r.Context(), s.known, s.over) {
			retryLater(w, r, codecs, "This hub does not know yet whether it holds what agents would change their clusters by")
			return
		}
		if !s.suspended.Load() {
			next.ServeHTTP(w, r)
			return
		}
		retryLater(w, r, codecs, "This hub holds what agents would change their clusters by; an administrator lets them have it by deleting "+
			"ConfigMap "+worksHeld)
	})
}

// retryLater answers who is to retry.
func retryLater(w http.ResponseWriter, r *http.Request, codecs runtime.NegotiatedSerializer, why string) {
	refused := apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "", schema.GroupResource{}, "", why, retrySeconds, true)
	responsewriters.ErrorNegotiated(refused, codecs, workv1.GroupVersion, w, r)
}

// changesClusters reports whether an agent, or the agent of an add-on, reads or writes works, or learns which objects of a kind there are.
// Service accounts in the namespaces of their own are taken for add-ons that use tokens.
func changesClusters(r *http.Request) bool {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest {
		return false
	}
	who, found := request.UserFrom(r.Context())
	if !found || !isAgent(info.Namespace, who) {
		return false
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	switch {
	case isProbe(r, info):
		return false
	case resource.Group == workv1.GroupVersion.Group:
		return true
	}
	return (info.Verb == "list" || info.Verb == "watch") && !slices.Contains(goesOn, resource)
}

func isAgent(namespace string, who user.Info) bool {
	if fleet.ReservedClusterName(namespace) {
		namespace = "" // none of a cluster: service accounts there are managers
	}
	return fleet.IsAgentOn(namespace, who.GetName(), who.GetGroups())
}

// isProbe reports whether a list is of one object at most, by which agents of works alone, and all agents of earlier versions, find out
// whether the hub lets them work.
func isProbe(r *http.Request, info *request.RequestInfo) bool {
	query := r.URL.Query()
	return info.Verb == "list" && query.Get("limit") == "1" && !query.Has("continue")
}
