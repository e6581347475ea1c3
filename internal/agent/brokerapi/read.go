package brokerapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkPeriod is how often a watch that requests bookmarks gets one.
const bookmarkPeriod = time.Minute

// selection is which objects a reader wants.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (s *selection) matches(r *record) bool {
	return r != nil && (s.namespace == "" || r.key.Namespace == s.namespace) && s.labels.Matches(r.labels) &&
		s.fields.Matches(fields.Set{"metadata.name": r.key.Name, "metadata.namespace": r.key.Namespace})
}

func (r *request) selection() (*selection, error) {
	query := r.URL.Query()
	s := &selection{namespace: r.namespace}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	for _, one := range s.fields.Requirements() {
		if one.Field != "metadata.name" && one.Field != "metadata.namespace" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %q cannot be selected by gRPC; select by metadata.name", one.Field))
		}
	}
	return s, nil
}

func (r *request) flag(name string) bool {
	on, err := strconv.ParseBool(r.URL.Query().Get(name))
	return on && err == nil
}

// read answers to get, list and watch. Who gets the ManagedCluster by its name wants to know whether the hub is there: it is asked first.
func (c *collection) read(r *request) (*http.Response, error) {
	if !acceptsJSON(r.Header) {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
			Reason: metav1.StatusReasonNotAcceptable, Message: "what comes by gRPC is " + mediaType + " alone"}}
	}
	if err := c.await(r.Context()); err != nil {
		return nil, err
	}
	if r.name != "" && c.kind.resource == resourceClusters {
		if err := c.askHub(r.Context()); err != nil {
			return nil, err
		}
	}
	if r.name != "" {
		found := c.get(types.NamespacedName{Namespace: r.namespace, Name: r.name})
		if found == nil {
			return nil, apierrors.NewNotFound(r.groupResource(), r.name)
		}
		return respond(r.Request, http.StatusOK, found.raw), nil
	}
	s, err := r.selection()
	if err != nil {
		return nil, err
	}
	if r.flag("watch") {
		return c.watch(r, s)
	}
	return respond(r.Request, http.StatusOK, c.list(s)), nil
}

func acceptsJSON(header http.Header) bool {
	for _, accepted := range header.Values("Accept") {
		for one := range strings.SplitSeq(accepted, ",") {
			if media, parameters, _ := strings.Cut(strings.TrimSpace(one), ";"); (media == mediaType || media == "*/*") &&
				!strings.Contains(parameters, "as=") {
				return true
			}
		}
	}
	return len(header.Values("Accept")) == 0
}

// list returns a list of all that the selection matches, in the order of names.
func (c *collection) list(s *selection) []byte {
	c.mu.Lock()
	found, version := c.selected(s), c.version
	c.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d"},"items":[`, c.kind.group.String(), c.kind.name+"List", version)
	for i, r := range found {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(r.raw)
	}
	b.WriteString("]}")
	return b.Bytes()
}

func (c *collection) selected(s *selection) (found []*record) {
	for _, r := range c.records {
		if s.matches(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return strings.Compare(a.key.String(), b.key.String()) })
	return found
}

// watcher sends changes to one client.
type watcher struct {
	*collection
	selection  *selection
	version    int64 // that the client has seen
	bookmarked int64 // that it knows it has seen
	bookmarks  bool
	refusals   int
	out        *json.Encoder
}

// watch starts with what there is, or with the version that the client has seen.
func (c *collection) watch(r *request, s *selection) (*http.Response, error) {
	w := &watcher{collection: c, selection: s, bookmarks: r.flag("allowWatchBookmarks")}
	initial := []change{}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.refusals = c.refusals
	streamed := r.flag("sendInitialEvents")
	switch from := r.URL.Query().Get("resourceVersion"); {
	case streamed, from == "", from == "0":
		w.version = c.version
		for _, one := range c.selected(s) {
			initial = append(initial, change{kind: watch.Added, now: one})
		}
	default:
		version, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion is %q, want a number", from))
		}
		if _, known := c.since(version); !known {
			return nil, expired(version)
		}
		w.version = version
	}
	ctx, cancel := context.WithCancel(r.Context())
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		ctx, cancel = context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	}
	reader, writer := io.Pipe()
	w.out = json.NewEncoder(writer)
	go func() {
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = writer.Close() })()
		defer writer.Close()
		if w.sendAll(initial) == nil && (!streamed || w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}) == nil) {
			w.run(ctx)
		}
	}()
	return stream(r.Request, http.StatusOK, &closing{reader, cancel}, -1), nil
}

// closing ends the watch when the client closes the body.
type closing struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c *closing) Close() error {
	c.cancel()
	return c.PipeReader.Close()
}

func expired(version int64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("the changes since resource version %d are not known any more", version))
}

// run sends changes until the context ends, the client goes away, or it has to start again.
func (w *watcher) run(ctx context.Context) {
	due := w.api.Clock.NewTimer(bookmarkPeriod)
	defer due.Stop()
	for ctx.Err() == nil {
		w.mu.Lock()
		changes, known := w.since(w.version)
		changes = slices.Clone(changes)
		changed, refused := w.changed, w.refusals != w.collection.refusals
		w.mu.Unlock()
		switch {
		case refused:
			return // the client lists again, and learns why
		case !known:
			answer := expired(w.version).Status()
			answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			_ = w.send(watch.Error, answer)
			return
		case len(changes) > 0:
			if w.sendAll(changes) != nil {
				return
			}
			w.version = changes[len(changes)-1].now.version
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-w.api.ctx.Done():
			return
		case <-changed:
		case <-due.C():
			if w.bookmarks && w.bookmarked != w.version && w.bookmark(nil) != nil {
				return
			}
			due.Reset(bookmarkPeriod)
		}
	}
}

func (w *watcher) sendAll(changes []change) error {
	for _, one := range changes {
		before, now := w.selection.matches(one.before), one.kind != watch.Deleted && w.selection.matches(one.now)
		kind := one.kind
		switch {
		case before && !now:
			kind = watch.Deleted
		case now && !before:
			kind = watch.Added
		case !now:
			continue
		}
		if err := w.send(kind, json.RawMessage(one.now.raw)); err != nil {
			return err
		}
		w.bookmarked = one.now.version
	}
	return nil
}

func (w *watcher) bookmark(annotations map[string]string) error {
	object, err := bookmarkOf(w.kind, w.version, annotations)
	if err != nil {
		return err
	}
	w.bookmarked = w.version
	return w.send(watch.Bookmark, json.RawMessage(object))
}

func (w *watcher) send(kind watch.EventType, object any) error {
	return w.out.Encode(struct {
		Type   watch.EventType `json:"type"`
		Object any             `json:"object"`
	}{kind, object})
}
