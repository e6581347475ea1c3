package fleetsim

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// selection is what a list or a watch is of.
type selection struct {
	metav1.ListOptions
	labels labels.Selector
	fields fields.Selector
	call   *call
}

func (r *call) selection() (*selection, error) {
	s := &selection{call: r}
	query := r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &s.ListOptions, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var err error
	if s.labels, err = labels.Parse(s.LabelSelector); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(s.FieldSelector); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

func (s *selection) covers(k key) bool {
	return k.GroupVersionResource == s.call.kind.GroupVersionResource && k.in(s.call.namespace())
}

func (s *selection) matches(o *unstructured.Unstructured) bool {
	return s.labels.Matches(labels.Set(o.GetLabels())) &&
		s.fields.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
}

func (s *selection) wantsAll() bool { return s.SendInitialEvents != nil && *s.SendInitialEvents }

func (s *selection) wants(k key, o *unstructured.Unstructured) bool {
	return s.covers(k) && s.matches(o)
}

// represent is the object, or its metadata if that is all that the client asks for.
func (r *call) represent(o *unstructured.Unstructured) *unstructured.Unstructured {
	if !r.metadataOnly() {
		return o
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": metav1.SchemeGroupVersion.String(), "kind": "PartialObjectMetadata", "metadata": o.Object["metadata"],
	}}
}

func (r *call) metadataOnly() bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func (c *Cluster) list(w http.ResponseWriter, r *call) {
	s, err := r.selection()
	if err != nil {
		writeError(w, err)
		return
	}
	found, at := c.store.list(s.wants)
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	items := make([]any, 0, len(found))
	for _, o := range found {
		items = append(items, r.represent(o).Object)
	}
	list := map[string]any{
		"apiVersion": r.kind.GroupVersion().String(), "kind": r.kind.name + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(at)}, "items": items,
	}
	if r.metadataOnly() {
		list["apiVersion"], list["kind"] = metav1.SchemeGroupVersion.String(), "PartialObjectMetadataList"
	}
	writeJSON(w, http.StatusOK, list)
}

// watch sends what there is, if that is asked for, and then what changes.
func (c *Cluster) watch(w http.ResponseWriter, r *call) {
	s, err := r.selection()
	if err != nil {
		writeError(w, err)
		return
	}
	from, err := parseVersion(s.ResourceVersion)
	if err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	ctx := r.Context()
	if s.TimeoutSeconds != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*s.TimeoutSeconds)*time.Second)
		defer cancel()
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	stream := &stream{selection: s, encoder: json.NewEncoder(w)}
	if from == 0 || s.wantsAll() {
		from = c.sendAll(stream)
	}
	for ctx.Err() == nil && stream.err == nil {
		changes, more := c.store.since(from)
		for _, change := range changes {
			stream.send(change)
		}
		from += len(changes)
		select {
		case <-more:
		case <-ctx.Done():
		}
	}
}

// sendAll sends what there is, and that this was all. It returns the resource version of it.
func (c *Cluster) sendAll(s *stream) (at int) {
	found, at := c.store.list(s.wants)
	for _, o := range found {
		s.event(watch.Added, o)
	}
	if !s.wantsAll() {
		return at
	}
	end := &unstructured.Unstructured{}
	end.SetGroupVersionKind(s.call.kind.gvk())
	end.SetResourceVersion(strconv.Itoa(at))
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	s.event(watch.Bookmark, end)
	return at
}

// stream is the answer to a watch.
type stream struct {
	*selection
	encoder *json.Encoder
	err     error
}

// send sends a change. What a label has taken out of the selection is gone, for those who watch it.
func (s *stream) send(c change) {
	switch {
	case !s.covers(c.key):
	case s.matches(c.object):
		s.event(c.kind, c.object)
	case c.kind == watch.Modified && s.labels.String() != "":
		s.event(watch.Deleted, c.object)
	}
}

func (s *stream) event(kind watch.EventType, o *unstructured.Unstructured) {
	if s.err == nil {
		s.err = s.encoder.Encode(map[string]any{"type": kind, "object": s.call.represent(o).Object})
	}
}
