package brokerapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// maxRecorded is how many Events are remembered, for their next occurrence. One that is not is recorded as a new one.
const maxRecorded = 256

// recorded has the last Events that the hub has accepted.
type recorded struct {
	mu     sync.Mutex
	byName map[string]*unstructured.Unstructured
	names  []string
}

func newRecorded() *recorded { return &recorded{byName: map[string]*unstructured.Unstructured{}} }

func (e *recorded) set(o *unstructured.Unstructured) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byName[o.GetName()] == nil {
		e.names = append(e.names, o.GetName())
	}
	e.byName[o.GetName()] = o
	if len(e.names) > maxRecorded {
		delete(e.byName, e.names[0])
		e.names = e.names[1:]
	}
}

func (e *recorded) get(name string) *unstructured.Unstructured {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byName[name]
}

func (a *API) createEvent(r *request) (*http.Response, error) {
	o, err := r.object()
	if err != nil {
		return nil, err
	}
	if err := named(o, r); err != nil {
		return nil, err
	}
	return a.sendEvent(r, cloudevents.Create, o, http.StatusCreated)
}

// patchEvent counts another occurrence of an Event.
func (a *API) patchEvent(r *request) (*http.Response, error) {
	current := a.events.get(r.name)
	if current == nil || r.Method != http.MethodPatch {
		return nil, apierrors.NewNotFound(r.groupResource(), r.name)
	}
	patch, err := r.body()
	if err != nil {
		return nil, err
	}
	before, err := current.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode Event %s: %w", r.name, err)
	}
	if given := r.Header.Get("Content-Type"); !strings.HasPrefix(given, string(types.StrategicMergePatchType)) {
		return nil, unsupportedMediaType(given, string(types.StrategicMergePatchType))
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, eventsv1.Event{})
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the patch: %v", err))
	}
	o := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(after, &o.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the patch: %v", err))
	}
	return a.sendEvent(r, cloudevents.Update, o, http.StatusOK)
}

func (a *API) sendEvent(r *request, action cloudevents.Action, o *unstructured.Unstructured, code int) (*http.Response, error) {
	o.SetGroupVersionKind(r.kind.group.WithKind(r.kind.name))
	event, err := a.event(r.kind, cloudevents.Spec, action, o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := a.publish(r.Context(), event); err != nil {
		return nil, err
	}
	a.events.set(o)
	body, err := o.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode Event %s: %w", o.GetName(), err)
	}
	return respond(r.Request, code, body), nil
}
