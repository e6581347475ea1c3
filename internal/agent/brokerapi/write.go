package brokerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
)

const (
	// suffixLength is that of names that the API server generates.
	suffixLength = 5
	// versionTimeout is how long a write waits for the version that the hub gave to the object with the write before it. Where the write
	// before it changed nothing on the hub, that never comes.
	versionTimeout = time.Second
)

func readObject(event *cloudevents.Event, into *unstructured.Unstructured) error {
	if err := utiljson.Unmarshal(event.Data, &into.Object); err != nil {
		return fmt.Errorf("the data of event %s: %w", event.ID, err)
	}
	if into.GetName() == "" || into.GetUID() == "" {
		return fmt.Errorf("event %s has an object without a name or a UID", event.ID)
	}
	return nil
}

// event is one about an object of the cluster.
func (a *API) event(k *kind, subResource cloudevents.SubResource, action cloudevents.Action,
	o *unstructured.Unstructured) (*cloudevents.Event, error) {
	eventType := cloudevents.Type{DataType: k.dataType, SubResource: subResource, Action: action}
	return resource.Encode(a.Source, eventType, a.Cluster, o, a.Clock.Now())
}

// named gives an object to be created the name that the API server would.
func named(o *unstructured.Unstructured, r *request) error {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + utilrand.String(suffixLength))
	}
	if o.GetName() == "" {
		return apierrors.NewBadRequest("metadata.name is not set, and neither is metadata.generateName")
	}
	if r.kind.namespaced {
		o.SetNamespace(r.namespace)
	}
	o.SetResourceVersion("")
	return nil
}

// create has the hub create an object. Its answer has no UID until the hub has sent one.
func (a *API) create(r *request, c *collection) (*http.Response, error) {
	o, err := r.object()
	if err != nil {
		return nil, err
	}
	if err := named(o, r); err != nil {
		return nil, err
	}
	if r.kind.resource == resourceClusters && o.GetName() != a.Cluster {
		return nil, r.elsewhere(a.Cluster)
	}
	if err := c.await(r.Context()); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	defer a.lockWrites(r.kind.resource, key)()
	if c.get(key) != nil {
		return nil, apierrors.NewAlreadyExists(r.groupResource(), key.Name)
	}
	event, err := a.event(r.kind, cloudevents.Spec, cloudevents.Create, o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := a.publish(r.Context(), event); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.records[key]
	if made == nil {
		o.SetCreationTimestamp(metav1.NewTime(a.Clock.Now()))
		if made, err = c.put(o, "", func(r *record) { r.ahead, r.created = true, true }); err != nil {
			return nil, err
		}
	}
	return respond(r.Request, http.StatusCreated, made.raw), nil
}

// update answers to put and to patch.
func (a *API) update(r *request, c *collection) (*http.Response, error) {
	modify, err := r.modification()
	if err != nil {
		return nil, err
	}
	if err := c.await(r.Context()); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: r.namespace, Name: r.name}
	defer a.lockWrites(r.kind.resource, key)()
	base, err := c.awaitVersion(r.Context(), key)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return nil, apierrors.NewNotFound(r.groupResource(), r.name)
	}
	current, err := base.object()
	if err != nil {
		return nil, err
	}
	next, err := r.modified(current, base, modify)
	if err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(current.Object, next.Object) {
		return respond(r.Request, http.StatusOK, base.raw), nil
	}
	if r.kind.resource == resourceWorks {
		return a.updateWork(r, c, base, current, next)
	}
	if err := a.publishUpdate(r, base, next); err != nil {
		return nil, err
	}
	now, err := c.accepted(base, next)
	if err != nil {
		return nil, err
	}
	return respond(r.Request, http.StatusOK, now.raw), nil
}

// publishUpdate sends the object with the hub's version of what it is based on.
func (a *API) publishUpdate(r *request, base *record, next *unstructured.Unstructured) error {
	sent := next.DeepCopy()
	sent.SetResourceVersion(base.hubVersion)
	subResource := cloudevents.Spec
	if r.subresource == "status" {
		subResource = cloudevents.Status
	}
	event, err := a.event(r.kind, subResource, cloudevents.Update, sent)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return a.publish(r.Context(), event)
}

// accepted stores what the hub has accepted, unless the hub has sent what it made of it already.
func (c *collection) accepted(base *record, next *unstructured.Unstructured) (*record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.records[base.key]
	switch {
	case now == nil:
		return c.newRecord(next, base.version, base.hubVersion)
	case now.uid != base.uid && base.uid != "", now.hubVersion != base.hubVersion:
		return now, nil
	}
	return c.put(next, base.hubVersion, func(r *record) { r.ahead, r.created = true, base.created })
}

// awaitVersion is the object, with the version that the hub gave to it with the last write, if that comes in time.
func (c *collection) awaitVersion(ctx context.Context, key types.NamespacedName) (*record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, errVersionPending)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		now := c.records[key]
		if now == nil || !now.ahead {
			return now, nil
		}
		err := c.waitForChange(ctx)
		if errors.Is(err, errVersionPending) {
			if current := c.records[key]; current == now && !now.created {
				stays := *now
				stays.ahead = false
				c.records[key] = &stays
			}
			return c.records[key], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

var errVersionPending = errors.New("the hub has not sent the object again")

// modification is what a client wants an object to be.
type modification func(current *unstructured.Unstructured) (*unstructured.Unstructured, error)

func (r *request) modification() (modification, error) {
	if r.Method == http.MethodPut {
		o, err := r.object()
		return func(*unstructured.Unstructured) (*unstructured.Unstructured, error) { return o, nil }, err
	}
	patch, err := r.body()
	if err != nil {
		return nil, err
	}
	if given := r.Header.Get("Content-Type"); !strings.HasPrefix(given, string(types.MergePatchType)) {
		return nil, unsupportedMediaType(given, string(types.MergePatchType))
	}
	return func(current *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		before, err := json.Marshal(current.Object)
		if err != nil {
			return nil, err
		}
		after, err := jsonpatch.MergePatch(before, patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the patch: %v", err))
		}
		o := &unstructured.Unstructured{}
		return o, utiljson.Unmarshal(after, &o.Object)
	}, nil
}

// modified is the object after the request: of the status alone, or without the status. It fails with a conflict if the client has not seen
// the current one.
func (r *request) modified(current *unstructured.Unstructured, base *record, modify modification) (*unstructured.Unstructured, error) {
	desired, err := modify(current)
	if err != nil {
		return nil, err
	}
	if seen := desired.GetResourceVersion(); seen != "" && seen != strconv.FormatInt(base.version, 10) {
		return nil, apierrors.NewConflict(r.groupResource(), r.name,
			errors.New("the object has been modified; apply the change to the latest version"))
	}
	if uid := string(desired.GetUID()); uid != "" && base.uid != "" && uid != base.uid {
		return nil, apierrors.NewConflict(r.groupResource(), r.name,
			fmt.Errorf("the object has the UID %s, and the change is of %s", base.uid, uid))
	}
	from, into := desired, current.DeepCopy()
	if r.subresource == "" {
		from, into = current, desired.DeepCopy()
		for _, field := range []string{"uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion"} {
			carry(current, into, "metadata", field)
		}
		into.SetName(r.name)
		into.SetNamespace(current.GetNamespace())
		into.SetGroupVersionKind(current.GroupVersionKind())
	}
	carry(from, into, "status")
	return into, nil
}

// carry makes a field what it is in another object.
func carry(from, into *unstructured.Unstructured, path ...string) {
	value, found, err := unstructured.NestedFieldNoCopy(from.Object, path...)
	if err != nil || !found {
		unstructured.RemoveNestedField(into.Object, path...)
		return
	}
	_ = unstructured.SetNestedField(into.Object, value, path...)
}
