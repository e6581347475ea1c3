package resources

import (
	"context"
	"encoding/json"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
)

// events are the events of Kubernetes that agents record in the namespaces of their clusters. Nobody subscribes to them.
type events struct{ Options }

// DataType implements broker.Service.
func (e *events) DataType() cloudevents.DataType { return cloudevents.Events }

// Prepare implements broker.Service.
func (e *events) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	sent := &eventsv1.Event{}
	if err := resource.Decode(event, sent); err != nil {
		return nil, unreadable(err)
	}
	if err := check(cloudevents.Events, cluster, sent.Namespace, sent.Name); err != nil {
		return nil, err
	}
	switch {
	case eventType.SubResource == cloudevents.Spec && eventType.Action == cloudevents.Create:
		return &broker.Write{Do: func(ctx context.Context, _ *access.Caller) error { return e.create(ctx, sent) }}, nil
	case eventType.SubResource == cloudevents.Spec && eventType.Action == cloudevents.Update:
		return &broker.Write{Name: sent.Name, Do: func(ctx context.Context, _ *access.Caller) error { return e.update(ctx, sent) }}, nil
	}
	return nil, unsupported(eventType, "create events, and update their series")
}

func (e *events) create(ctx context.Context, sent *eventsv1.Event) error {
	recorded := sent.DeepCopy()
	recorded.ObjectMeta = metav1.ObjectMeta{Namespace: sent.Namespace, Name: sent.Name, Labels: sent.Labels}
	return e.Client.Create(ctx, recorded)
}

// update writes how often the event has happened, and nothing else.
func (e *events) update(ctx context.Context, sent *eventsv1.Event) error {
	change, err := json.Marshal(map[string]any{"series": sent.Series})
	if err != nil {
		return err
	}
	recorded := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: sent.Namespace, Name: sent.Name}}
	return e.Client.Patch(ctx, recorded, client.RawPatch(types.MergePatchType, change))
}
