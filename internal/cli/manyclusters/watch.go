package manyclusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
)

// WatchHandler handles the events of watches. One of its functions is called at a time.
type WatchHandler struct {
	// Write takes the rows of changes. Its error ends all watches.
	Write func(Page) error
	// Away is called once when a cluster is not watched for now, and why. That is tried again until it succeeds.
	Away func(Failure)
	// Back is called when a cluster that was away is watched again.
	Back func(cluster string)
	// Relisted is called before all rows of a cluster come again, because it does not know any more what has changed.
	Relisted func(cluster string)
	// Failed is called when a cluster is not watched any more, with the reason.
	Failed func(Failure)
}

// Watch hands over what changes after the last pages of clusters that Read returned, as rows of tables, until the context ends or no
// cluster is left. A cluster without a last page, of which Read has not returned all, is listed first. One that is away is watched again
// from where its watch has ended. One that refuses the watch is not.
func Watch(ctx context.Context, clusters []*clusterapi.Cluster, last map[string]Page, q Query, handler WatchHandler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	notify := func(handle func() error) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err := handle(); err != nil {
			cancel(err)
		}
	}
	var watches sync.WaitGroup
	for _, cluster := range clusters {
		page, listed := last[cluster.Name]
		watches.Go(func() {
			w := watcher{cluster: cluster, query: q, page: page, listed: listed, handler: handler, notify: notify}
			w.fail(w.run(ctx))
		})
	}
	watches.Wait()
	return context.Cause(ctx)
}

// watcher watches one cluster.
type watcher struct {
	cluster *clusterapi.Cluster
	query   Query
	page    Page // the last one
	listed  bool // up to the page
	handler WatchHandler
	// notify calls a function of the handler, unless the watches have ended.
	notify func(func() error)
	// away is why the cluster is not watched for now, of which the handler has been notified; nil if it is watched.
	away error
}

func (w *watcher) write(page Page) { w.notify(func() error { return w.handler.Write(page) }) }

func (w *watcher) fail(err error) {
	w.notify(func() error { w.handler.Failed(w.failure(err)); return nil })
}

func (w *watcher) reportAway(err error) {
	if w.away == nil {
		w.notify(func() error { w.handler.Away(w.failure(err)); return nil })
	}
	w.away = err
}

func (w *watcher) reportBack() {
	if w.away != nil {
		w.notify(func() error { w.handler.Back(w.cluster.Name); return nil })
	}
	w.away = nil
}

func (w *watcher) failure(err error) Failure {
	return Failure{Cluster: w.cluster.Name, Problem: diagnose(w.cluster, err, w.query.Timeout)}
}

// errNoEvent is why a watch is of no use. API servers end a watch now and then, but not without an event, for they send bookmarks.
var errNoEvent = errors.New("the cluster ends watches before their first event")

// newPauses are those before a cluster is watched again.
func newPauses() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 20, Cap: 30 * time.Second} //nolint:mnd // a backoff
}

// mostRefusals is how often in a row a cluster that was away is tried again though it refuses the watch: a hub that starts does not know
// yet who is who, and who may what.
const mostRefusals = 5

// run watches until that fails for good, or the context ends. A watch that has ended says nothing of the cluster: the next one does.
func (w *watcher) run(ctx context.Context) error {
	pauses, relisted := newPauses(), false
	for empty, refusals := 0, 0; ; {
		var events int
		var err error
		if w.listed {
			events, err = w.watch(ctx)
		}
		if events > 0 {
			pauses, empty, relisted = newPauses(), 0, false
		}
		switch {
		case !w.listed, isExpired(err):
			if err = w.relist(ctx); err == nil && !relisted {
				pauses = newPauses() // of those before it was back
			}
			relisted = err == nil
		case err == nil && events == 0:
			if empty++; empty > 1 {
				err = errNoEvent
			}
		}
		refused := w.away != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err))
		switch {
		case err == nil:
			refusals = 0
		case refused && refusals < mostRefusals:
			refusals++
		case !isTransient(err):
			return err
		}
		if err != nil {
			w.reportAway(err)
		}
		if !w.pause(ctx, pauses.Step()) {
			return context.Cause(ctx)
		}
	}
}

// pause is false if the context has ended.
func (w *watcher) pause(ctx context.Context, length time.Duration) bool {
	timer := w.query.Clock.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// transient are the codes of answers that another request may not have.
var transient = []int32{http.StatusGone, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
	http.StatusGatewayTimeout}

// isTransient reports whether a watch may succeed when it is made again: where a connection was lost, and not where a cluster refuses or
// writes what cannot be read.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return slices.Contains(transient, status.Status().Code)
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var notServed notServedError
	if errors.As(err, &notServed) {
		return notServed.unanswered
	}
	return !errors.As(err, &syntax) && !errors.As(err, &kind) && !clusterapi.IsTooLarge(err)
}

// relist hands over all rows again, and goes on from there.
func (w *watcher) relist(ctx context.Context) error {
	if w.page.Resource == (Resource{}) {
		resource, err := resolve(ctx, w.cluster, w.query.Resource, "list", w.query.Timeout)
		if err != nil {
			return err
		}
		w.page.Resource = resource
	}
	notified := false
	last := w.page
	query := w.query
	if query.Name != "" { // a list is as of now; an object that has not changed for long has a version that no watch starts at
		query.FieldSelector, query.Name = "metadata.name="+query.Name, ""
	}
	r := reader{cluster: w.cluster, query: query, put: func(page Page) error {
		if !notified {
			w.notify(func() error { w.handler.Relisted(w.cluster.Name); return nil })
		}
		notified, last = true, page.WithoutContent()
		w.write(page)
		return nil
	}}
	if err := r.pages(ctx, w.page.Resource); err != nil {
		return err
	}
	w.page, w.listed = last, true
	return nil
}

// watch makes one watch, and counts its events. It fails if the cluster refuses it, then or later.
func (w *watcher) watch(ctx context.Context) (events int, err error) {
	options := &metav1.ListOptions{
		LabelSelector: w.query.LabelSelector, FieldSelector: w.query.FieldSelector,
		Watch: true, AllowWatchBookmarks: true, ResourceVersion: w.page.version,
	}
	if w.query.Name != "" {
		options.FieldSelector = "metadata.name=" + w.query.Name
	}
	stream, err := w.cluster.Get(w.page.Resource.Path(w.query.Namespace, "")...).SetHeader("Accept", acceptTables).
		VersionedParams(options, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	if !errors.Is(w.away, errNoEvent) {
		w.reportBack()
	}
	events, err = w.read(stream)
	if isTransient(err) && !isExpired(err) {
		err = nil
	}
	return events, err
}

// read reads the events of a watch to its end.
func (w *watcher) read(stream io.ReadCloser) (events int, err error) {
	bounded := clusterapi.NewEventStream(stream)
	decoder := json.NewDecoder(bounded)
	for ; ; events++ {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		bounded.Next()
		if err := decoder.Decode(&event); err != nil {
			return events, err
		}
		if err := w.handle(event.Type, event.Object); err != nil {
			return events, err
		}
		w.reportBack()
	}
}

// handle passes on the row of an event. Only the first table of a watch says which columns there are.
func (w *watcher) handle(event watch.EventType, object []byte) error {
	if event == watch.Error {
		status := &metav1.Status{}
		if err := json.Unmarshal(object, status); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		return apierrors.FromObject(status)
	}
	page, _, err := decode(w.cluster.Name, w.page.Resource, w.query, object)
	if err != nil {
		return err
	}
	if len(page.Columns) < len(w.page.Columns) {
		page.Columns = w.page.Columns
	}
	w.page = page
	if event != watch.Bookmark {
		w.write(page)
	}
	return nil
}
