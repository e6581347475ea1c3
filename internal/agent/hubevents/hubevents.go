// Package hubevents records the events of an agent about its cluster and its works on the hub.
package hubevents

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// Start returns what makes recorders of events on the API server of the config, which work until the context ends. An event that
// cannot be written is logged, but not as an error: the agent does its work without.
func Start(ctx context.Context, config *rest.Config, transport *http.Client) (events.EventBroadcaster, error) {
	sink, err := eventsv1client.NewForConfigAndClient(config, transport)
	if err != nil {
		return nil, fmt.Errorf("make a client for events on %s: %w", config.Host, err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: sink})
	if err := broadcaster.StartRecordingToSinkWithContext(demoteErrors(ctx)); err != nil {
		return nil, fmt.Errorf("begin to record events on %s: %w", config.Host, err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return broadcaster, nil
}

// Of refers to a ManagedCluster in events. Its namespace has the event written to the namespace of the cluster, the only one that an
// agent may write to; events about an object without a namespace go to namespace default.
func Of(cluster *clusterv1.ManagedCluster) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster", Namespace: cluster.Name, Name: cluster.Name, UID: cluster.UID,
	}
}

// demoteErrors returns a context whose logger logs errors at verbosity.
func demoteErrors(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	if logger.GetSink() == nil {
		return ctx // whose logger has nothing at all
	}
	return klog.NewContext(ctx, logger.WithSink(noErrors{logger.GetSink()}))
}

// verbosity is the level at which events that cannot be written are logged.
const verbosity = 1

// noErrors logs errors as information.
type noErrors struct{ logr.LogSink }

// Error implements logr.LogSink.
func (s noErrors) Error(err error, message string, keysAndValues ...any) {
	if s.Enabled(verbosity) {
		s.Info(verbosity, message, append(keysAndValues, "reason", err)...)
	}
}

// WithValues implements logr.LogSink.
func (s noErrors) WithValues(keysAndValues ...any) logr.LogSink {
	return noErrors{s.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (s noErrors) WithName(name string) logr.LogSink { return noErrors{s.LogSink.WithName(name)} }
