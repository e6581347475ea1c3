package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// send sends a request to a cluster as alice, and returns the answer with its body still to be read.
func send(ctx context.Context, hub *httptest.Server, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, hub.URL+clusterPath+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Transport: from("alice")}).Do(r)
}

// CP-07: an agent that never answers, or never comes to an end, keeps nobody else waiting, and is let go of with the client of the request.
func TestAgentThatNeverAnswers(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	begun, left := make(chan struct{}), make(chan struct{})
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/never":
			begun <- struct{}{}
		case "/slowly":
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		default:
			_, _ = io.WriteString(w, "at once")
			return
		}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	othersAreAnswered := func() {
		t.Helper()
		if code, body := get(t, hub, "c1/proxy/version"); code != http.StatusOK || body != "at once" {
			t.Errorf("somebody else is answered %d %s", code, body)
		}
	}
	never, leave := context.WithCancel(t.Context())
	ended := make(chan error)
	sendOne := func(ctx context.Context) {
		response, err := send(ctx, hub, "c1/proxy/never")
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}
	go sendOne(never)
	<-begun
	othersAreAnswered()
	leave()
	if err := <-ended; err == nil {
		t.Error("there is an answer")
	}
	<-left

	slowly, leave := context.WithCancel(t.Context())
	defer leave()
	response, err := send(slowly, hub, "c1/proxy/slowly")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	othersAreAnswered()
	leave()
	<-left

	// The end of the tunnel is the end of all who wait for the agent.
	go sendOne(t.Context())
	<-begun
	s.cut("c1")
	if err := <-ended; err != nil {
		t.Errorf("the hub does not say that the tunnel has ended: %v", err)
	}
	<-left
}

// CP-07: of an answer of 10 GiB, the hub holds no more than the user has room for: the agent waits until it is read.
func TestAnswerOfTenGiB(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	var sent atomic.Int64
	ended := make(chan struct{})
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 64<<10)
		if r.URL.Path == "/other" {
			for range (128 << 20) / len(block) {
				_, _ = w.Write(block)
			}
			return
		}
		defer close(ended)
		const all = 10 << 30
		w.Header().Set("Content-Length", fmt.Sprint(int64(all)))
		for sent.Load() < all {
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	response, err := send(t.Context(), hub, "c1/proxy/everything")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for _, read := range []int64{1, 32 << 20} {
		before := sent.Load()
		if _, err := io.CopyN(io.Discard, response.Body, read); err != nil {
			t.Fatal(err)
		}
		// Long enough for the agent to send far more, if it were taken.
		if code, body := get(t, hub, "c1/proxy/other"); code != http.StatusOK || len(body) != 128<<20 {
			t.Fatalf("%d, %d bytes", code, len(body))
		}
		if ahead := sent.Load() - before - read; ahead > 32<<20 { // buffers of the connections included
			t.Errorf("after %d bytes were read, the agent is %d bytes ahead", read, ahead)
		}
	}
	_ = response.Body.Close()
	<-ended
}

// CP-07, CG-01: a header without an end is refused, and not held in memory.
func TestHeaderWithoutEnd(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	agent := makeTunnel(t, s, hub, "c1")
	var sent atomic.Int64
	go func() {
		for {
			stream, err := agent.Listener().Accept()
			if err != nil {
				return
			}
			go answerWithoutEnd(stream, &sent)
		}
	}()
	if code, body := get(t, hub, "c1/proxy/version"); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, body)
	}
	if conn, err := s.DialCluster(t.Context(), "c1", "kubernetes.default.svc:443"); err == nil ||
		!strings.Contains(err.Error(), "the header of the answer of the agent has more than 65536 bytes") {
		t.Errorf("%v %v", conn, err)
	}
	if n := sent.Load(); n > 8<<20 {
		t.Errorf("the agent has sent %d bytes of headers", n)
	}
}

func answerWithoutEnd(stream net.Conn, sent *atomic.Int64) {
	defer stream.Close()
	if _, err := http.ReadRequest(bufio.NewReader(stream)); err != nil {
		return
	}
	line := "HTTP/1.1 200 OK\r\n"
	for {
		n, err := io.WriteString(stream, line)
		sent.Add(int64(n))
		if err != nil {
			return
		}
		line = "X-More: " + strings.Repeat("x", 4<<10) + "\r\n"
	}
}

// CP-10: what takes the tunnel from a cluster ends it, and all that is open in it, by itself: nothing waits for a timer or a request.
func TestRevocationCuts(t *testing.T) {
	t.Parallel()
	for what, revoke := range map[string]func(t *testing.T, hub client.Client, managed, addOn client.Object) (changed client.Object){
		"denied": func(t *testing.T, hub client.Client, managed, _ client.Object) client.Object {
			t.Helper()
			managed.(*clusterv1.ManagedCluster).Spec.HubAcceptsClient = false
			return must(t, managed, hub.Update(t.Context(), managed))
		},
		"deleted": func(t *testing.T, hub client.Client, managed, _ client.Object) client.Object {
			t.Helper()
			return must(t, managed, hub.Delete(t.Context(), managed))
		},
		"being deleted": func(t *testing.T, hub client.Client, managed, _ client.Object) client.Object {
			t.Helper()
			managed.SetFinalizers([]string{"test/wait"})
			must(t, managed, hub.Update(t.Context(), managed))
			return must(t, managed, hub.Delete(t.Context(), managed))
		},
		"disabled": func(t *testing.T, hub client.Client, _, addOn client.Object) client.Object {
			t.Helper()
			return must(t, addOn, hub.Delete(t.Context(), addOn))
		},
		"of another manager": func(t *testing.T, hub client.Client, _, addOn client.Object) client.Object {
			t.Helper()
			addOn.SetAnnotations(nil)
			return must(t, addOn, hub.Update(t.Context(), addOn))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			objects := accepted("c1")
			s, hub := newHub(t, objects...)
			agent := connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			open, err := send(t.Context(), hub, "c1/proxy/watch")
			if err != nil {
				t.Fatal(err)
			}
			defer open.Body.Close()
			for _, o := range objects {
				notify(t, s, o) // of what changes nothing
			}
			select {
			case <-agent.Done():
				t.Fatal("a change of something else ends the tunnel")
			default:
			}
			notify(t, s, revoke(t, s.clusters.reader.(client.Client), objects[0], objects[1]))
			<-agent.Done()
			if rest, err := io.ReadAll(open.Body); err == nil {
				t.Errorf("what was open came to a good end: %q", rest)
			}
			if code, body := get(t, hub, "c1/proxy/version"); code == http.StatusOK {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

func must(t *testing.T, o client.Object, err error) client.Object {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// notify passes the server the state of an object, as an informer does.
func notify(t *testing.T, s *Server, o client.Object) {
	t.Helper()
	nameOf := metav1.Object.GetName
	if o.GetNamespace() != "" {
		nameOf = metav1.Object.GetNamespace
	}
	handler := s.clusters.handler(t.Context(), nameOf)
	before := o.DeepCopyObject()
	switch err := s.clusters.reader.Get(t.Context(), client.ObjectKeyFromObject(o), o); {
	case err == nil:
		handler.OnUpdate(before, o)
	case apierrors.IsNotFound(err):
		handler.OnDelete(before)
	default:
		t.Fatal(err)
	}
}
