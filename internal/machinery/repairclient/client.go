// Package repairclient keeps controllers from endless disputes: what a controller writes again and again, because others undo it each time,
// it writes with delays.
package repairclient

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/consistentclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// rememberFor is how long what was written is remembered.
const rememberFor = 5 * time.Minute

// NewClient is a client.NewClientFunc. Its client counts how often it makes the same write of an object again, within five minutes: creates
// it, or updates or patches it with the same content. From the eleventh time on, a write that comes too early fails with a
// repair.BackoffError and is not sent. To write another content is no repair, nor is a write that changes nothing, nor to create what the
// client itself has deleted. Writes of the status are counted, apart from those of the object. Server-side apply, patches of objects that
// were not read, and the writing of other subresources are not counted. Reads are those of package consistentclient.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := consistentclient.NewClient(config, options)
	if err != nil {
		return nil, err
	}
	return newClient(c, clock.RealClock{}), nil
}

func newClient(c client.Client, clk clock.PassiveClock) *repairClient {
	return &repairClient{Client: c, objects: newWrites(clk), statuses: newWrites(clk)}
}

type repairClient struct {
	client.Client
	// objects and statuses are apart: who has another opinion about a status does not hold up finalizers.
	objects, statuses *writes
}

// Create implements client.Client.
func (c *repairClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	content, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return c.write(c.objects, obj, withoutTimes(content), func() error { return c.Client.Create(ctx, obj, opts...) })
}

// Update implements client.Client.
func (c *repairClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	content, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return c.write(c.objects, obj, withoutTimes(content), func() error { return c.Client.Update(ctx, obj, opts...) })
}

// Patch implements client.Client.
func (c *repairClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	content, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if obj.GetResourceVersion() == "" { // it is not known whether the patch changes anything, as that of server-side apply may not
		return c.Client.Patch(ctx, obj, client.RawPatch(patch.Type(), content), opts...)
	}
	return c.write(c.objects, obj, withoutTimes(content), func() error {
		return c.Client.Patch(ctx, obj, client.RawPatch(patch.Type(), content), opts...)
	})
}

// Delete implements client.Client. What the client creates after it has deleted the object itself is no repair.
func (c *repairClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, obj, opts...)
	if o, known := c.objectOf(obj); err == nil && known {
		c.objects.forget(o)
	}
	return err
}

// objectOf names an object; it is not known if the API server chooses the name.
func (c *repairClient) objectOf(obj client.Object) (o repair.Object, known bool) {
	kind, err := c.GroupVersionKindFor(obj)
	return repair.Object{
		GroupKind: kind.GroupKind(), NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()},
	}, err == nil && obj.GetName() != ""
}

// write sends a write of this content, which has no times, unless it is delayed.
func (c *repairClient) write(counted *writes, obj client.Object, content []byte, send func() error) error {
	o, known := c.objectOf(obj)
	if !known {
		return send()
	}
	version, hash := obj.GetResourceVersion(), counted.hash(content, obj.GetUID())
	undo := func() {}
	if counted.isRepeated(o, hash) {
		taken, due := counted.backoff.Take(o, false)
		if taken == nil {
			delayedCount.WithLabelValues(o.Group, o.Kind).Inc()
			return &repair.BackoffError{Object: o, Until: due}
		}
		undo = taken
	}
	if err := send(); err != nil {
		undo()
		return err
	}
	if obj.GetResourceVersion() == version {
		undo() // nothing has changed
	}
	counted.remember(o, hash)
	return nil
}

// writes are the last ones of objects, or of their statuses.
type writes struct {
	clock   clock.PassiveClock
	backoff *repair.Backoff
	seed    maphash.Seed

	mu    sync.Mutex
	last  map[repair.Object]write
	swept time.Time
}

// write is the last one of an object: a hash of what was sent.
type write struct {
	content uint64
	at      time.Time
}

func newWrites(clk clock.PassiveClock) *writes {
	return &writes{clock: clk, backoff: repair.NewBackoff(clk, repair.AtOnceByControllers), seed: maphash.MakeSeed(),
		last: map[repair.Object]write{}, swept: clk.Now()}
}

func (w *writes) hash(content []byte, uid types.UID) uint64 {
	return maphash.Bytes(w.seed, slices.Concat(content, []byte(uid)))
}

// isRepeated reports whether a write is that which was made last.
func (w *writes) isRepeated(o repair.Object, content uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, written := w.last[o]
	return written && last.content == content && w.clock.Since(last.at) < rememberFor
}

func (w *writes) remember(o repair.Object, content uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	w.last[o] = write{content, now}
	if now.Sub(w.swept) < rememberFor {
		return
	}
	w.swept = now
	for o, written := range w.last {
		if now.Sub(written.at) >= rememberFor {
			delete(w.last, o)
		}
	}
}

func (w *writes) forget(o repair.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, o)
}

// withoutTimes is content without what each write of an object changes: its version, and when it is written.
func withoutTimes(content []byte) []byte {
	if bytes.HasPrefix(content, []byte("[")) {
		return operationsWithoutTimes(content)
	}
	if !bytes.Contains(content, []byte(`"resourceVersion"`)) && !bytes.Contains(content, []byte(fleet.AnnotationTemplateWrittenAt)) {
		return content
	}
	object := &unstructured.Unstructured{}
	if json.Unmarshal(content, &object.Object) != nil {
		return content
	}
	for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", fleet.AnnotationTemplateWrittenAt)
	unstructured.RemoveNestedField(object.Object, "status")
	without, err := json.Marshal(object.Object)
	if err != nil {
		return content
	}
	return without
}

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// operationsWithoutTimes is withoutTimes for a JSON patch.
func operationsWithoutTimes(content []byte) []byte {
	const annotations = "/metadata/annotations"
	var operations []operation
	if json.Unmarshal(content, &operations) != nil {
		return content
	}
	times := []string{"/metadata/resourceVersion", annotations + "/" + strings.ReplaceAll(fleet.AnnotationTemplateWrittenAt, "/", "~1")}
	operations = slices.DeleteFunc(operations, func(o operation) bool { return slices.Contains(times, o.Path) })
	for i, o := range operations {
		if o.Path == annotations {
			operations[i].Value = withoutWrittenAt(o.Value)
		}
	}
	without, err := json.Marshal(operations)
	if err != nil {
		return content
	}
	return without
}

func withoutWrittenAt(annotations json.RawMessage) json.RawMessage {
	var all map[string]string
	if json.Unmarshal(annotations, &all) != nil {
		return annotations
	}
	delete(all, fleet.AnnotationTemplateWrittenAt)
	without, err := json.Marshal(all)
	if err != nil {
		return annotations
	}
	return without
}
