package campaign

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// fault is what happens to a write of the controllers.
type fault string

const (
	// none lets it happen.
	none fault = ""
	// crash ends the controllers right after it: it is stored, and they never learn of that.
	crash fault = "crash"
	// away does, too, and they are away while users take the next step.
	away fault = "away"
	// lost loses the answer: it is stored, and the controllers, which go on, see a broken connection.
	lost fault = "lost"
	// failed loses the request: the controllers, which go on, see a broken connection.
	failed fault = "failed"
	// conflict refuses it, as if another writer had been faster.
	conflict fault = "conflict"
)

var faults = []fault{crash, away, lost, failed, conflict}

// may tells whether a fault can happen to a write. Who creates an object meets no other writer's version of it, and a deletion is a
// conflict only if the object is another one of the same name.
func (f fault) may(write string) bool {
	return f != conflict || !strings.HasPrefix(write, http.MethodPost) && !strings.HasPrefix(write, http.MethodDelete)
}

var errBroken = errors.New("the connection is broken, says the test")

// plan is one fault at one write of each step, by the name of the step.
type plan struct {
	fault fault
	at    map[string]string
}

// history is what the controllers have written in a run, over all of their lives.
type history struct {
	plan plan

	mu    sync.Mutex
	step  string
	count int
	// tried is how often each write was made in the step, and times how often it was stored.
	tried, times map[string]int
	// writes are those of each step that the hub has stored, in their order.
	writes map[string][]string
	// wrote are the controllers that have made one of these.
	wrote map[string]bool
	// deleted are the objects that were deleted in each step, as keys of a store.
	deleted map[string][]string
	// works are the manifests of each ManifestWork, by its key in a store, and dropped those that were taken out in each step.
	works   map[string]contents
	dropped map[string][]string
	// met are the steps whose fault has happened.
	met map[string]bool
	// observed is what was last said about each observed generation of an object.
	observed map[observer]observation
	// broken is what is wrong about a write.
	broken error
}

func newHistory(p plan) *history {
	return &history{plan: p, writes: map[string][]string{}, wrote: map[string]bool{}, deleted: map[string][]string{},
		works: map[string]contents{}, dropped: map[string][]string{}, met: map[string]bool{}, observed: map[observer]observation{}}
}

// enter begins a step.
func (h *history) enter(step string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step, h.tried, h.times = step, map[string]int{}, map[string]int{}
}

// try says what happens to a write that a controller makes. If the hub stores it, it is the next one of its name.
func (h *history) try(write string) fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	h.tried[write]++
	if h.met[h.step] || h.plan.at[h.step] != numbered(write, h.times[write]+1) {
		return none
	}
	h.met[h.step] = true
	return h.plan.fault
}

// unmeet takes back that the fault of the step has happened.
func (h *history) unmeet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met[h.step] = false
}

// noteStored remembers a write of a controller that the hub has stored.
func (h *history) noteStored(controller, write string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote[controller] = true
	h.times[write]++
	h.writes[h.step] = append(h.writes[h.step], numbered(write, h.times[write]))
}

func numbered(write string, times int) string { return fmt.Sprintf("%s #%d", write, times) }

// noteDeletion remembers which object a request has deleted.
func (h *history) noteDeletion(r *http.Request) {
	key, err := targetOf(r)
	if err != nil {
		h.fail(err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted[h.step] = append(h.deleted[h.step], key)
}

// deletions are those of some steps.
func (h *history) deletions(steps []step) []string { return h.of(steps, h.deleted) }

// drops are the manifests that were taken out of works in some steps.
func (h *history) drops(steps []step) []string { return h.of(steps, h.dropped) }

func (h *history) of(steps []step, byStep map[string][]string) (keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range steps {
		keys = append(keys, byStep[s.name]...)
	}
	return keys
}

// busiest are the writes that were made most often in the step.
func (h *history) busiest() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	const most = 5
	writes := slices.SortedFunc(maps.Keys(h.tried), func(a, b string) int {
		return cmp.Or(cmp.Compare(h.tried[b], h.tried[a]), cmp.Compare(a, b))
	})
	lines := make([]string, 0, most)
	for _, write := range writes[:min(len(writes), most)] {
		lines = append(lines, fmt.Sprintf("%s, %d times", write, h.tried[write]))
	}
	return strings.Join(lines, "\n")
}

func (h *history) written() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = errors.Join(h.broken, err)
}

// failure is why a write was not stored that should have been, or which one should not have been.
func (h *history) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// send has the hub answer a write, and checks the object that the write has left.
func (h *history) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	if err != nil || !isStored(response) || !isJSON(response) {
		return response, err
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	o := &unstructured.Unstructured{}
	if err = o.UnmarshalJSON(content); err == nil {
		err = errors.Join(h.checkObserved(o), h.noteManifests(o))
	}
	if err != nil {
		h.fail(fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
	}
	return response, nil
}

// isJSON tells the objects of our kinds from those of Kubernetes, which have no observed generations that the hub or agents write.
func isJSON(response *http.Response) bool {
	return strings.HasPrefix(response.Header.Get("Content-Type"), "application/json")
}

// transport is how the controllers of one life reach the hub.
type transport struct {
	*life
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Nothing of a life that has ended reaches the hub.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.ctx.Err() != nil {
		return nil, errBroken
	}
	if !isWrite(r) {
		return t.next.RoundTrip(r)
	}
	t.inFlight.Add(1)
	defer t.inFlight.Add(-1)
	switch f := t.history.try(nameOf(r)); f {
	case crash, away, lost:
		return t.store(r, f)
	case failed:
		return nil, errBroken
	case conflict:
		return refused(r)
	default:
		return t.send(r)
	}
}

// send has the hub answer a write.
func (t transport) send(r *http.Request) (*http.Response, error) {
	response, err := t.history.send(t.next, r)
	if err != nil || !isStored(response) {
		return response, err
	}
	t.history.noteStored(controllerOf(r.Context()), nameOf(r))
	if r.Method == http.MethodDelete {
		t.history.noteDeletion(r)
	}
	return response, nil
}

// isStored tells whether the hub has stored a write, and not refused it.
func isStored(response *http.Response) bool { return response.StatusCode < http.StatusMultipleChoices }

// store has the hub store a write, whose answer nobody gets. A write that the hub refuses stores nothing: there is no fault, and the
// controllers get the answer.
func (t transport) store(r *http.Request, f fault) (*http.Response, error) {
	response, err := t.send(r.Clone(context.WithoutCancel(r.Context())))
	if err == nil && !isStored(response) {
		t.history.unmeet()
		return response, nil
	}
	if f != lost {
		t.end()
	}
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		err = errors.Join(err, response.Body.Close())
	}
	if err != nil {
		t.history.fail(err)
	}
	return nil, errBroken
}

func refused(r *http.Request) (*http.Response, error) {
	refusal := apierrors.NewConflict(schema.GroupResource{}, path.Base(r.URL.Path), errors.New("the test says that it has changed")).Status()
	refusal.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(refusal)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(http.StatusConflict), StatusCode: http.StatusConflict, Proto: r.Proto, ProtoMajor: r.ProtoMajor, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// isWrite tells requests that change what is stored from those that ask, and from events, which nobody may rely on.
func isWrite(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return false
	}
	for _, part := range strings.Split(r.URL.Path, "/") {
		switch part {
		case "events", "authorization.k8s.io", "authentication.k8s.io":
			return false
		}
	}
	return true
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// targetOf is the object that a request is about, as the key of a store. Controllers delete objects one by one.
func targetOf(r *http.Request) (string, error) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return "", fmt.Errorf("read the path %s: %w", r.URL.Path, err)
	}
	if info.Name == "" {
		return "", fmt.Errorf("%s %s deletes all objects of a kind: the test does not know which ones", r.Method, r.URL.Path)
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if resource == (schema.GroupResource{Resource: "namespaces"}) {
		info.Namespace = "" // the path of a Namespace looks as if it was in itself
	}
	return keyOf(resource, info.Namespace, info.Name), nil
}

// nameOf says what is written. It is the same in each run.
func nameOf(r *http.Request) string {
	name := r.Method + " " + r.URL.Path
	if r.Method != http.MethodPost || r.GetBody == nil {
		return name
	}
	body, err := r.GetBody()
	if err != nil {
		return name
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return name
	}
	return name + "/" + nameIn(content)
}

// nameIn is the name of an object, in JSON or, for those of Kubernetes, in protobuf.
func nameIn(content []byte) string {
	if o, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(content, nil, nil); err == nil {
		if about, err := meta.Accessor(o); err == nil {
			return about.GetName() + about.GetGenerateName()
		}
	}
	o := metav1.PartialObjectMetadata{}
	if json.Unmarshal(content, &o) != nil {
		return "?"
	}
	return o.Name + o.GenerateName
}
