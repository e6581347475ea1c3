package hubevents_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubevents"
)

// lines separates what is logged from what is logged as an error.
type lines struct {
	logr.LogSink
	infos  chan string
	errors *atomic.Int32
}

func (l lines) Info(_ int, message string, _ ...any) { l.infos <- message }
func (l lines) Error(error, string, ...any)          { l.errors.Add(1) }
func (l lines) WithValues(...any) logr.LogSink       { return l }
func (l lines) WithName(string) logr.LogSink         { return l }

// A context without a logger stays as it is.
func TestWithoutLog(t *testing.T) {
	t.Parallel()
	posted := make(chan struct{}, 1)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		posted <- struct{}{}
	}))
	t.Cleanup(hub.Close)
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	defer stop()
	broadcaster, err := hubevents.Start(ctx, &rest.Config{Host: hub.URL}, hub.Client())
	if err != nil {
		t.Fatal(err)
	}
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
	broadcaster.NewRecorder(scheme.Scheme, "test").Eventf(hubevents.Of(mc), nil, corev1.EventTypeNormal, "Reason", "Act", "note")
	<-posted
}

// RG-25: an event about a cluster goes to the cluster's namespace. A hub that does not take it is no error of the agent.
func TestEventsOfACluster(t *testing.T) {
	t.Parallel()
	posted := make(chan string, 1)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		posted <- r.Method + " " + r.URL.Path
	}))
	t.Cleanup(hub.Close)
	logged := lines{LogSink: funcr.New(func(string, string) {}, funcr.Options{Verbosity: 1}).GetSink(), infos: make(chan string, 10),
		errors: &atomic.Int32{}}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.New(logged)))
	defer stop()
	broadcaster, err := hubevents.Start(ctx, &rest.Config{Host: hub.URL}, hub.Client())
	if err != nil {
		t.Fatal(err)
	}
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
	broadcaster.NewRecorder(scheme.Scheme, "test").Eventf(hubevents.Of(mc), nil, corev1.EventTypeNormal, "Reason", "Act", "note")
	if got, want := <-posted, "POST /apis/events.k8s.io/v1/namespaces/cluster1/events"; got != want {
		t.Errorf("the event is sent by %q, want %q", got, want)
	}
	if got, want := <-logged.infos, "Server rejected event (will not retry!)"; got != want || logged.errors.Load() > 0 {
		t.Errorf("%d errors, and %q", logged.errors.Load(), got)
	}
}

// Nothing is left running of a connection to a hub that has ended: an agent makes many.
func TestNothingIsLeftRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		broadcaster, err := hubevents.Start(ctx, &rest.Config{Host: "https://hub.example.com"}, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		if _, err := broadcaster.StartEventWatcher(func(runtime.Object) {}); err == nil {
			t.Error("it goes on with events after the end of the connection")
		}
	})
}
