// Package manyclusters reads objects of many clusters at once, through the hub.
package manyclusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const (
	pageSize = 500
	// maxQueuedBytes bounds the responses that wait to be written.
	maxQueuedBytes = 64 << 20
	// batchDelay is how long responses wait for others, so that columns are as wide as they have to be from the first line on.
	batchDelay = 300 * time.Millisecond
)

// Form is the form of what clusters return.
type Form int

// The forms.
const (
	// Tables have the columns that the servers choose.
	Tables Form = iota
	// Objects have all fields.
	Objects
	// Names have those of the objects alone.
	Names
)

const (
	acceptObjects = "application/json"
	acceptTables  = "application/json;as=Table;v=v1;g=meta.k8s.io," + acceptObjects
	acceptNames   = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io," + acceptObjects
)

// accept is the header for the form. What a server does not know comes as objects.
func (q Query) accept() string {
	switch {
	case q.Form == Tables:
		return acceptTables
	case q.Form == Names && q.Name == "": // a single object is no list
		return acceptNames
	}
	return acceptObjects
}

// concurrency is how many clusters are read at the same time. Objects take more memory.
var concurrency = map[Form]int{Tables: 50, Names: 50, Objects: 10}

// Query is what to read of each cluster.
type Query struct {
	// Resource is the word for it.
	Resource string
	// Name of one object; empty are all.
	Name string
	// Namespace of the objects, if they have one; empty are all.
	Namespace string

	LabelSelector, FieldSelector string

	Form Form
	// Timeout is how long a cluster has for each response.
	Timeout time.Duration
	// Clock says how long responses wait for others, and watches before they are made again.
	Clock clock.WithDelayedExecution
}

// showsNamespace reports whether tables have a column for the namespace.
func (q Query) showsNamespace(resource Resource) bool {
	return resource.Namespaced && q.Namespace == ""
}

// Failure is a cluster that could not be read, or not all of it.
type Failure struct {
	Cluster string
	clusterapi.Problem
}

// Read reads of all clusters at once. The pages are handed over as they come; several that are queued at the same time come
// together, in the order of the clusters. Of a cluster that fails, the pages before that count.
func Read(ctx context.Context, clusters []*clusterapi.Cluster, q Query, write func([]Page) error) ([]Failure, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := newPageQueue(len(clusters), maxQueuedBytes)
	defer queue.batch(q.Clock, batchDelay)()
	failures := make([]*Failure, len(clusters))
	var readers errgroup.Group
	readers.SetLimit(concurrency[q.Form] + 1) // one starts them
	readers.Go(func() error {
		for i, cluster := range clusters {
			readers.Go(func() error {
				defer queue.done()
				r := reader{cluster: cluster, query: q, put: func(page Page) error { return queue.put(ctx, i, page) }}
				if problem := r.read(ctx); problem != nil {
					failures[i] = &Failure{Cluster: cluster.Name, Problem: *problem}
				}
				return nil
			})
		}
		return nil
	})
	var err error
	for batch := queue.next(); len(batch) > 0; batch = queue.next() {
		if err == nil {
			if err = write(batch); err != nil {
				cancel(err)
			}
		}
	}
	_ = readers.Wait() // what failed is in failures
	if err == nil {
		err = context.Cause(ctx)
	}
	var failed []Failure
	for _, failure := range failures {
		if failure != nil {
			failed = append(failed, *failure)
		}
	}
	return failed, err
}

// reader reads of one cluster.
type reader struct {
	cluster *clusterapi.Cluster
	query   Query
	put     func(Page) error
}

func (r *reader) read(ctx context.Context) *clusterapi.Problem {
	resource, err := resolve(ctx, r.cluster, r.query.Resource, "list", r.query.Timeout)
	if err == nil {
		err = r.pages(ctx, resource)
	}
	if err != nil {
		problem := diagnose(r.cluster, err, r.query.Timeout)
		return &problem
	}
	return nil
}

// pages reads all pages of a resource.
func (r *reader) pages(ctx context.Context, resource Resource) error {
	for token := ""; ; {
		page, next, err := r.page(ctx, resource, token)
		if err == nil {
			err = r.put(page)
		}
		if err != nil {
			return err
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// Resolve finds what a word means to a cluster, among the resources that have a verb, if one is given. The cluster has the time for each
// response.
func Resolve(ctx context.Context, cluster *clusterapi.Cluster, word, verb string, timeout time.Duration) (Resource, *clusterapi.Problem) {
	resource, err := resolve(ctx, cluster, word, verb, timeout)
	if err != nil {
		problem := diagnose(cluster, err, timeout)
		return Resource{}, &problem
	}
	return resource, nil
}

// notServedError says that a cluster has answered, and serves no such resource.
type notServedError struct {
	message string
	// unanswered says that API groups have not answered, which may have the resource.
	unanswered bool
}

func (e notServedError) Error() string { return e.message }

// diagnose says why a cluster could not be read.
func diagnose(cluster *clusterapi.Cluster, err error, timeout time.Duration) clusterapi.Problem {
	var notServed notServedError
	if errors.As(err, &notServed) {
		return clusterapi.Problem{Message: notServed.Error(), Connected: true, NotServed: true}
	}
	return cluster.Diagnose(err, timeout)
}

// resolve looks in the core group first: most of what people read is in it, and it is one small response.
func resolve(ctx context.Context, cluster *clusterapi.Cluster, word, verb string, timeout time.Duration) (Resource, error) {
	notServed := notServedError{message: fmt.Sprintf("no such resource: it serves no %q", word)}
	for _, coreOnly := range []bool{true, false} {
		limited, cancel := context.WithTimeout(ctx, timeout)
		lists, failed, err := cluster.Resources(limited, coreOnly)
		cancel()
		if err != nil {
			return Resource{}, err
		}
		if resource, found := find(lists, word, verb); found {
			return resource, nil
		}
		if len(failed) > 0 {
			notServed.message += ", unless an API group does that does not answer: " + text.FirstFew(failed)
			notServed.unanswered = true
		}
	}
	return Resource{}, notServed
}

// page reads a page, and returns the token of the next one; an empty token is that of the first, and says that there is no next.
func (r *reader) page(ctx context.Context, resource Resource, token string) (page Page, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.query.Timeout)
	defer cancel()
	request := r.cluster.Get(resource.Path(r.query.Namespace, r.query.Name)...).SetHeader("Accept", r.query.accept())
	if r.query.Form == Tables && !r.query.showsNamespace(resource) {
		request = request.Param("includeObject", string(metav1.IncludeNone)) // nothing but the cells is shown
	}
	if r.query.Name == "" {
		request = request.VersionedParams(&metav1.ListOptions{
			LabelSelector: r.query.LabelSelector, FieldSelector: r.query.FieldSelector, Limit: pageSize, Continue: token,
		}, metav1.ParameterCodec)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return Page{}, "", err
	}
	body, err := result.Raw()
	if err != nil {
		return Page{}, "", err
	}
	page, next, err = decode(r.cluster.Name, resource, r.query, body)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the answer was cut off
	}
	return page, next, err
}
