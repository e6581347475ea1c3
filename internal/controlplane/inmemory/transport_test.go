package inmemory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func client(handler http.HandlerFunc) *http.Client {
	return &http.Client{Transport: NewTransport(handler)}
}

func request(ctx context.Context, t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://hub/path?q=1", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: not within a minute", what)
	}
}

func TestRequestAndAnswer(t *testing.T) {
	t.Parallel()
	c := client(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Header.Del("Authorization")
		w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Host, body))
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Late", "not sent")
		fmt.Fprint(w, "done")
	})
	req := request(t.Context(), t, http.MethodPost, strings.NewReader("content"))
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusCreated || string(body) != "done" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	if got, want := resp.Header.Get("X-Seen"), "POST /path?q=1 hub content"; got != want {
		t.Errorf("the handler saw %q, want %q", got, want)
	}
	if resp.Header.Get("X-Late") != "" {
		t.Error("a header set after the header was sent arrived")
	}
	if req.Header.Get("Authorization") == "" {
		t.Error("the handler changed the client's request")
	}
}

// A watch: each event arrives when it is flushed, and the handler learns that the watcher left.
func TestStreamsAndStops(t *testing.T) {
	t.Parallel()
	next, stopped := make(chan string), make(chan struct{})
	c := client(func(w http.ResponseWriter, r *http.Request) {
		defer close(stopped)
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-next:
				fmt.Fprintln(w, event)
			case <-r.Context().Done():
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.Do(request(ctx, t, http.MethodGet, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, event := range []string{"ADDED", "MODIFIED"} {
		next <- event
		line, err := lines.ReadString('\n')
		if err != nil || line != event+"\n" {
			t.Fatalf("got %q, %v, want %q", line, err, event)
		}
	}
	cancel()
	within(t, "the handler stops", stopped)
	if _, err := lines.ReadString('\n'); !errors.Is(err, context.Canceled) {
		t.Errorf("reading after cancel: %v", err)
	}
}

func TestClosingTheBodyStopsTheHandler(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	c := client(func(w http.ResponseWriter, r *http.Request) {
		defer close(stopped)
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
	})
	resp, err := c.Do(request(t.Context(), t, http.MethodGet, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "the handler stops", stopped)
}

// A reader that does not read holds the handler up instead of filling memory.
func TestSlowReaderHoldsTheHandlerUp(t *testing.T) {
	t.Parallel()
	const total = 8 * maxBuffered
	written := make(chan struct{})
	c := client(func(w http.ResponseWriter, _ *http.Request) {
		defer close(written)
		chunk := make([]byte, 64<<10)
		for range total / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				t.Error(err)
			}
		}
	})
	resp, err := c.Do(request(t.Context(), t, http.MethodGet, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, maxBuffered)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-written:
		t.Error("the handler wrote everything while the reader waited")
	default:
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || n != total-maxBuffered {
		t.Errorf("read %d more, %v", n, err)
	}
	within(t, "the handler ends", written)
}

// Nothing of the caller's context reaches the handler but its end.
func TestContextIsDetached(t *testing.T) {
	t.Parallel()
	type key struct{}
	seen := make(chan any, 1)
	c := client(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Context().Value(key{}) })
	resp, err := c.Do(request(context.WithValue(t.Context(), key{}, "caller"), t, http.MethodGet, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := <-seen; got != nil {
		t.Errorf("the handler sees the caller's %v", got)
	}
}

func TestPanicBreaksTheAnswer(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]any{"abort": http.ErrAbortHandler, "panic": "boom"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, "half")
				panic(cause)
			})
			resp, err := c.Do(request(t.Context(), t, http.MethodGet, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil || string(body) != "half" {
				t.Errorf("got %q and error %v, want half of the answer and an error", body, err)
			}
		})
	}
}

func TestCanceledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	entered, stopped := make(chan struct{}), make(chan struct{})
	c := client(func(_ http.ResponseWriter, r *http.Request) {
		defer close(stopped)
		close(entered)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	resp, err := c.Do(request(ctx, t, http.MethodGet, nil))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", resp, err)
	}
	if err == nil {
		resp.Body.Close()
	}
	within(t, "the handler stops", stopped)
}
