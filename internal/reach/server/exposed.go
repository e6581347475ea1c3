package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// exposed has the services of clusters that users of the hub may reach, as a ConfigMap of the hub lists them.
type exposed struct {
	// list names the ConfigMap; without a name there is none.
	list types.NamespacedName
	// current is nil before it is known whether there is a list.
	current  atomic.Pointer[access.Exposed]
	recorder events.EventRecorder
}

// run follows the ConfigMap until the context ends. It runs once.
func (e *exposed) run(ctx context.Context, config *rest.Config) error {
	if e.list.Name == "" {
		e.current.Store(&access.Exposed{})
		return nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("follow the list of exposed services: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events about the list of exposed services: %w", err)
	}
	e.recorder = broadcaster.NewRecorder(scheme.Scheme, fleet.AddOnClusterProxy)
	read := func(object any) {
		if configMap, is := object.(*corev1.ConfigMap); is {
			e.read(ctx, configMap)
		}
	}
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", e.list.Namespace,
			fields.OneTermEqualSelector("metadata.name", e.list.Name)),
		ObjectType: &corev1.ConfigMap{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: read, UpdateFunc: func(_, object any) { read(object) }, DeleteFunc: func(any) { e.current.Store(&access.Exposed{}) },
		},
	})
	go func() {
		select {
		case <-ctx.Done():
		case <-informer.HasSyncedChecker().Done():
			e.current.CompareAndSwap(nil, &access.Exposed{}) // there is no list
		}
	}()
	informer.RunWithContext(ctx)
	return nil
}

// read takes the list of a ConfigMap, all of it or, if any of it cannot be read, nothing.
func (e *exposed) read(ctx context.Context, configMap *corev1.ConfigMap) {
	all, err := parseExposed(configMap)
	if err == nil {
		e.current.Store(&all)
		klog.FromContext(ctx).Info("The list of exposed services has been read", "services", len(all))
		return
	}
	e.current.CompareAndSwap(nil, &access.Exposed{})
	klog.FromContext(ctx).Error(err, "The list of exposed services cannot be read; the one from before counts")
	e.recorder.Eventf(configMap, nil, corev1.EventTypeWarning, fleet.EventExposedServicesInvalid, "Read",
		"The list cannot be read, and the one from before counts: %v", err)
}

func parseExposed(configMap *corev1.ConfigMap) (all access.Exposed, err error) {
	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		some, keyErr := access.ParseExposed(configMap.Data[key])
		if keyErr != nil {
			err = errors.Join(err, fmt.Errorf("key %s: %w", key, keyErr))
		}
		all = append(all, some...)
	}
	return all, err
}

// check says why a service is not reached.
func (e *exposed) check(service *access.Service) error {
	current := e.current.Load()
	if current == nil {
		return apierrors.NewServiceUnavailable("the hub has just started and does not know yet which services it exposes; try again in a second")
	}
	if current.Allow(service) {
		return nil
	}
	why := "this hub exposes no services"
	if e.list.Name != "" {
		why = fmt.Sprintf("ConfigMap %s of the hub does not list it with protocol %s and port %d", e.list, service.Protocol, service.Port)
	}
	return failure(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("service %s is not in the exposed services allowlist; %s", service.Key(), why))
}
