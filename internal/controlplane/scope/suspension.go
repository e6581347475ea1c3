package scope

import (
	"context"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// retrySuspended is when agents are told to try again, in seconds.
const retrySuspended = 10

// WorkSuspension keeps works from agents as long as there is the ConfigMap works-held in the hub's namespace, as on a hub that was
// restored from a backup and that nobody has looked at yet. Agents then leave their clusters as they are: the hub is not available to
// them for works, which is no news of any work. Until it is known whether there is the ConfigMap, agents wait.
type WorkSuspension struct {
	// known is closed when suspended is right.
	known     chan struct{}
	suspended atomic.Bool
}

// NewWorkSuspension returns a WorkSuspension that has to be run.
func NewWorkSuspension() *WorkSuspension { return &WorkSuspension{known: make(chan struct{})} }

// Run follows the ConfigMap, until ctx ends. It is called once.
func (s *WorkSuspension) Run(ctx context.Context, client dynamic.Interface) error {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, configMaps, fleet.NamespaceHub, resync, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, fleet.ConfigMapWorksHeld).String()
		}).Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.suspended.Store(true) },
		DeleteFunc: func(any) { s.suspended.Store(false) },
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
func (s *WorkSuspension) Handler(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isAboutWorksOfAgents(r) {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case <-s.known:
		case <-r.Context().Done():
			return
		}
		if !s.suspended.Load() {
			next.ServeHTTP(w, r)
			return
		}
		refused := apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "", schema.GroupResource{}, "",
			"The works of this hub are held; an administrator lets agents have them by deleting ConfigMap "+fleet.NamespaceHub+"/"+
				fleet.ConfigMapWorksHeld, retrySuspended, true)
		responsewriters.ErrorNegotiated(refused, codecs, workv1.GroupVersion, w, r)
	})
}

// isAboutWorksOfAgents tells whether an agent reads or writes works.
func isAboutWorksOfAgents(r *http.Request) bool {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || info.APIGroup != workv1.GroupVersion.Group {
		return false
	}
	user, found := request.UserFrom(r.Context())
	return found && len(fleet.ClustersBehind(user.GetName(), user.GetGroups())) > 0
}
