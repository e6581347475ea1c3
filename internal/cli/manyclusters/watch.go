package manyclusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
)

// Watch hands over what changes after the last pages of clusters that Read brought, as rows of tables, until the context ends or no
// cluster is left. A cluster whose watch fails is reported at once; the others go on.
func Watch(ctx context.Context, clusters []*clusterapi.Cluster, last map[string]Page, q Query, write func(Page) error,
	failed func(Failure)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // writes at a time
	var watches sync.WaitGroup
	for _, cluster := range clusters {
		page, read := last[cluster.Name]
		if !read {
			continue
		}
		watches.Go(func() {
			w := watcher{cluster: cluster, query: q, page: page, write: func(page Page) {
				mu.Lock()
				defer mu.Unlock()
				if err := write(page); err != nil {
					cancel(err)
				}
			}}
			err := w.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil {
				failed(Failure{Cluster: cluster.Name, Problem: cluster.Diagnose(err, q.Timeout)})
			}
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
	write   func(Page)
}

var errEndsWatches = errors.New("the cluster ends watches as soon as they begin")

// run watches until that fails. API servers end a watch now and then, but not without an event, for they send bookmarks.
func (w *watcher) run(ctx context.Context) error {
	for {
		events, err := w.watch(ctx)
		if err == nil && events == 0 {
			err = errEndsWatches
		}
		if err != nil {
			return err
		}
	}
}

// watch makes one watch, and counts its events.
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
	decoder := json.NewDecoder(stream)
	for ; ; events++ {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return events, err
		}
		if err := w.handle(event.Type, event.Object); err != nil {
			return events, err
		}
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
