package clusterapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// What is read of a cluster at most, so that one that answers without an end does not take the memory of this machine.
const (
	// maxResponseBytes bounds a response, and all responses of a discovery together.
	maxResponseBytes = 256 << 20
	// maxEventBytes bounds an event of a watch.
	maxEventBytes = 16 << 20
	// MaxElements bounds a list of a response. A page has a few hundred, unless the server makes no pages; empty ones take far more memory
	// than they have bytes.
	MaxElements = 1_000_000
)

// tooLargeError is why the answer of a cluster is not read to its end.
type tooLargeError struct {
	what  string
	limit string
	next  string
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %s, which is all that is read of it", e.what, e.limit)
}

// IsTooLarge reports whether the answer of a cluster is not read to its end, because it is too large.
func IsTooLarge(err error) bool {
	var tooLarge *tooLargeError
	return errors.As(err, &tooLarge)
}

const (
	readLess  = "Read less at once: one namespace (--namespace), what has a label (--selector), or one object."
	watchLess = "Watch less: one namespace (--namespace), what has a label (--selector), or one object."
)

var (
	// ErrTooManyElements is why a list of a response is not read to its end.
	ErrTooManyElements error = &tooLargeError{"a list of the response", fmt.Sprintf("%d elements", MaxElements), readLess}

	errResponseTooLarge = &tooLargeError{"the response", fmt.Sprintf("%d MiB", maxResponseBytes>>20), readLess}
	errEventTooLarge    = &tooLargeError{"an event of the watch", fmt.Sprintf("%d MiB", maxEventBytes>>20), watchLess}
)

// limitedReader reads a number of bytes, and fails if there are more.
type limitedReader struct {
	io.ReadCloser
	left    *atomic.Int64
	tooMuch error
}

// Read implements io.Reader.
func (r *limitedReader) Read(p []byte) (int, error) {
	left := r.left.Load()
	if left > 0 {
		n, err := r.ReadCloser.Read(p[:min(int64(len(p)), left)])
		r.left.Add(-int64(n))
		return n, err
	}
	n, err := r.ReadCloser.Read(make([]byte, 1)) // the end, or more
	if n > 0 {
		return 0, r.tooMuch
	}
	return 0, err
}

// limitedTransport bounds what is read of responses. Watches have no end; their events are bounded by who reads them.
type limitedTransport struct {
	base  http.RoundTripper
	limit int64
	// together is what is left for several responses; nil bounds each by the limit.
	together *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusOK && r.URL.Query().Has("watch") {
		return response, err
	}
	left := t.together
	if left == nil {
		left = &atomic.Int64{}
		left.Store(t.limit)
	}
	if response.ContentLength > left.Load() {
		return nil, errors.Join(errResponseTooLarge, response.Body.Close())
	}
	response.Body = &limitedReader{ReadCloser: response.Body, left: left, tooMuch: errResponseTooLarge}
	return response, nil
}

// limited is a client whose responses are bounded, each alone or all together.
func limited(client *http.Client, together bool) *http.Client {
	transport := &limitedTransport{base: client.Transport, limit: maxResponseBytes}
	if together {
		transport.together = &atomic.Int64{}
		transport.together.Store(maxResponseBytes)
	}
	bounded := *client
	bounded.Transport = transport
	return &bounded
}

// EventStream is the stream of a watch, whose events are bounded.
type EventStream struct{ limitedReader }

// NewEventStream bounds the events of a stream. Next has to be called before each event is read.
func NewEventStream(stream io.ReadCloser) *EventStream {
	return &EventStream{limitedReader{ReadCloser: stream, left: &atomic.Int64{}, tooMuch: errEventTooLarge}}
}

// Next lets one more event be read.
func (s *EventStream) Next() { s.left.Store(maxEventBytes) }
