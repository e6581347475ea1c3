// Package inmemory lets an HTTP client talk to a handler of its own process: no socket, no TLS, no framing, and bodies
// that stream in both directions, so that watches work.
package inmemory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
)

// Transport connects a client to a handler. The zero value has no handler yet: a server that is built with a client of itself
// is set as the handler once it is there.
type Transport struct {
	handler atomic.Pointer[http.Handler]
}

// NewTransport returns a transport whose requests are served by the handler, each in a goroutine of its own. The URL's
// host does not matter.
func NewTransport(handler http.Handler) *Transport {
	t := &Transport{}
	t.SetHandler(handler)
	return t
}

// SetHandler says who serves the requests from now on.
func (t *Transport) SetHandler(handler http.Handler) { t.handler.Store(&handler) }

var errNoHandler = errors.New("the server is not there yet")

// RoundTrip implements http.RoundTripper. It returns as soon as the handler has sent the header.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	handler := t.handler.Load()
	if handler == nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errNoHandler
	}
	ctx, cancel := detach(req.Context())
	served := serverRequest(ctx, req)
	answer := newAnswer(ctx, cancel)
	go func() {
		// Canceling is last: the body still hands out what was written.
		defer cancel()
		defer func() { _ = served.Body.Close() }()
		defer answer.complete()
		(*handler).ServeHTTP(answer, served)
	}()
	select {
	case <-answer.started:
		return answer.response(req), nil
	case <-req.Context().Done():
		// The handler sees the end of its context; nobody waits for it.
		return nil, context.Cause(req.Context())
	}
}

// detach returns a context that ends with the client's and carries nothing of it: a handler that calls on behalf of a
// request must not be taken for that request.
func detach(client context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(client, cancel)
	return ctx, func() { stop(); cancel() }
}

// serverRequest is the request as a server would have read it. Handlers may change it; the client's stays as it is.
func serverRequest(ctx context.Context, req *http.Request) *http.Request {
	served := req.Clone(ctx)
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/2.0", 2, 0
	served.RequestURI = req.URL.RequestURI()
	// The address of a peer on the same machine; port 0 distinguishes it from one that came in through a socket.
	served.RemoteAddr = "127.0.0.1:0"
	if served.Host == "" {
		served.Host = req.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	if served.Header == nil {
		served.Header = http.Header{}
	}
	return served
}

const (
	// maxBuffered is how far a handler may run ahead of a reader.
	maxBuffered = 1 << 20

	// maxKept is how much memory a stream keeps between two bursts; a hub has hundreds of watches.
	maxKept = 16 << 10
)

// answer is the response in progress: the handler's writer and the client's body.
type answer struct {
	ctx     context.Context
	cancel  context.CancelFunc
	started chan struct{}

	// header is the handler's until it sends it; sent is what the client got.
	header http.Header
	sent   http.Header
	status int

	mu     sync.Mutex
	change sync.Cond
	buffer bytes.Buffer
	// end is why no more will come: io.EOF, or a broken answer.
	end error
}

func newAnswer(ctx context.Context, cancel context.CancelFunc) *answer {
	a := &answer{ctx: ctx, cancel: cancel, started: make(chan struct{}), header: http.Header{}}
	a.change.L = &a.mu
	// A client that goes away must wake a reader that waits for more. After the handler has returned this does nothing.
	context.AfterFunc(ctx, func() { a.close(context.Canceled) })
	return a
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	// Informational answers are not passed on: no client here requests them.
	if a.status != 0 || (status >= 100 && status < 200) {
		return
	}
	a.status, a.sent = status, a.header.Clone()
	close(a.started)
}

// Write implements http.ResponseWriter. It waits while the reader is far behind.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.buffer.Len() >= maxBuffered && a.end == nil {
		a.change.Wait()
	}
	if a.end != nil {
		return 0, a.end
	}
	a.change.Broadcast()
	return a.buffer.Write(p)
}

// Flush implements http.Flusher: everything written is there at once, so that only the header can be pending.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier, by which the API server recognises a writer that can stream.
func (a *answer) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(a.ctx, func() { gone <- true })
	return gone
}

// complete ends the answer when the handler returns or panics, as a server would: a panic breaks the answer, and is
// reported unless the handler meant to break it.
func (a *answer) complete() {
	if cause := recover(); cause != nil {
		err := io.ErrUnexpectedEOF
		if failure, ok := cause.(error); !ok || !errors.Is(failure, http.ErrAbortHandler) {
			err = fmt.Errorf("the handler panicked: %v\n%s", cause, debug.Stack())
		}
		a.close(err)
		a.WriteHeader(http.StatusInternalServerError)
		return
	}
	a.WriteHeader(http.StatusOK)
	if err := a.ctx.Err(); err != nil {
		a.close(err) // the handler has returned because the client has gone
		return
	}
	a.close(io.EOF)
}

func (a *answer) close(end error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end == nil {
		a.end = end
	}
	a.change.Broadcast()
}

func (a *answer) response(req *http.Request) *http.Response {
	length := int64(-1)
	if n, err := strconv.ParseInt(a.sent.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{
		Status:        strconv.Itoa(a.status) + " " + http.StatusText(a.status),
		StatusCode:    a.status,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        a.sent,
		Body:          body{a},
		ContentLength: length,
		Request:       req,
	}
}

// body is the client's side of an answer.
type body struct{ *answer }

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.buffer.Len() == 0 && b.end == nil {
		b.change.Wait()
	}
	if b.buffer.Len() == 0 {
		return 0, b.end
	}
	n, err := b.buffer.Read(p)
	if b.buffer.Len() == 0 && b.buffer.Cap() > maxKept {
		b.buffer = bytes.Buffer{}
	}
	b.change.Broadcast()
	return n, err
}

// Close implements io.Closer. The handler sees its context end.
func (b body) Close() error {
	b.cancel()
	b.close(errors.New("the reader closed the body"))
	return nil
}
