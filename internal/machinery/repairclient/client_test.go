package repairclient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// fixture is a controller that keeps a ConfigMap, and somebody else who writes it.
type fixture struct {
	*repairClient
	clock *clocktesting.FakePassiveClock
	rival client.Client
	// round counts how often the two have acted.
	round int
}

func newFixture() *fixture {
	f := &fixture{clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)),
		rival: fake.NewClientBuilder().WithStatusSubresource(&corev1.Pod{}).Build()}
	f.repairClient = newClient(f.rival, f.clock)
	return f
}

var key = client.ObjectKey{Namespace: "default", Name: "settings"}

// read is the ConfigMap; nil if there is none.
func (f *fixture) read(ctx context.Context) *corev1.ConfigMap {
	o := &corev1.ConfigMap{}
	if f.Get(ctx, key, o) != nil {
		return nil
	}
	return o
}

// create is a reconcile that makes a missing object.
func create(ctx context.Context, f *fixture) error {
	if f.read(ctx) != nil {
		return nil
	}
	return f.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
}

// update is one that wants a value, and patches is one that sends no more than that.
func update(ctx context.Context, f *fixture) error {
	o := f.read(ctx)
	if o == nil {
		return create(ctx, f)
	}
	o.Data = map[string]string{"key": "ours"}
	return f.Update(ctx, o)
}

func patches(ctx context.Context, f *fixture) error {
	o := f.read(ctx)
	if o == nil {
		return create(ctx, f)
	}
	before := o.DeepCopy()
	if o.Data["key"] == "ours" {
		return nil
	}
	o.Data = map[string]string{"key": "ours", "other": o.Data["other"]}
	o.Annotations = map[string]string{fleet.AnnotationTemplateWrittenAt: fmt.Sprint(f.round)}
	return f.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// operates patches by a list of operations.
func operates(ctx context.Context, f *fixture) error {
	o := f.read(ctx)
	if o == nil {
		return create(ctx, f)
	}
	if o.Data["key"] == "ours" {
		return nil
	}
	annotations := `{"path": "/metadata/annotations/capstan.io~1template-written-at", "value": "%d"}`
	if len(o.Annotations) == 0 {
		annotations = `{"path": "/metadata/annotations", "value": {"capstan.io/template-written-at": "%d"}}`
	}
	content := fmt.Sprintf(`[{"op": "add", "path": "/metadata/resourceVersion", "value": %q}, {"op": "add", `+annotations[1:]+
		`, {"op": "add", "path": "/data", "value": {"key": "ours"}}]`, o.ResourceVersion, f.round)
	return f.Patch(ctx, o, client.RawPatch(types.JSONPatchType, []byte(content)))
}

// replaces is somebody else who replaces the object whole.
func replaces(ctx context.Context, f *fixture) error {
	o := f.read(ctx)
	o.Data, o.Annotations = map[string]string{"key": "theirs"}, nil
	return f.rival.Update(ctx, o)
}

func deletes(ctx context.Context, f *fixture) error {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return client.IgnoreNotFound(f.rival.Delete(ctx, o))
}

func changes(ctx context.Context, f *fixture) error {
	o := f.read(ctx)
	o.Data = map[string]string{"key": "theirs", "other": fmt.Sprint(f.round)}
	return f.rival.Update(ctx, o)
}

// labels changes what the controller does not care about.
func labels(ctx context.Context, f *fixture) error {
	o := f.read(ctx)
	o.Labels = map[string]string{"round": fmt.Sprint(f.round)}
	return f.rival.Update(ctx, o)
}

// wants is a controller that wants something else each time.
func wants(ctx context.Context, f *fixture) error {
	if err := create(ctx, f); err != nil {
		return err
	}
	o := f.read(ctx)
	o.Data = map[string]string{"key": fmt.Sprint(f.round)}
	return f.Update(ctx, o)
}

// toggles is one that wants two things by turns.
func toggles(ctx context.Context, f *fixture) error {
	if err := create(ctx, f); err != nil {
		return err
	}
	o := f.read(ctx)
	o.Data = map[string]string{"key": fmt.Sprint(f.round % 2)}
	return f.Update(ctx, o)
}

func nobody(context.Context, *fixture) error { return nil }

// No controller writes without end: at most 20 times in the first minute and twice in each minute after it, however often others undo what
// it writes. What is no repair is never held back.
func TestWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reconcile, rival func(context.Context, *fixture) error
		delayed          bool
	}{
		"deleted again and again":                   {create, deletes, true},
		"updated again and again":                   {update, changes, true},
		"patched again and again":                   {patches, changes, true},
		"patched and deleted":                       {patches, deletes, true},
		"patched by operations again and again":     {operates, changes, true},
		"patched by operations and replaced":        {operates, replaces, true},
		"nothing to do":                             {patches, nobody, false},
		"another content each time":                 {wants, changes, false},
		"two contents by turns":                     {toggles, nobody, false},
		"patches, and others change something else": {patches, labels, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, f := t.Context(), newFixture()
			f.dispute(t, test.delayed, func() string { return f.version(ctx) },
				func() error { return test.reconcile(ctx, f) }, func() error { return test.rival(ctx, f) })
		})
	}
}

// dispute lets a controller reconcile each second for four minutes, and then a rival unless the write was held back. It checks whether any
// was, and how many were made then.
func (f *fixture) dispute(t *testing.T, isDelayed bool, version func() string, reconcile, rival func() error) {
	t.Helper()
	minutes, delayed := map[int]int{}, 0
	for second := range 4 * 60 {
		f.round++
		before := version()
		err := reconcile()
		if tooEarly := new(repair.BackoffError); errors.As(err, &tooEarly) {
			delayed++
		} else if err != nil {
			t.Fatal(err)
		} else {
			if version() != before {
				minutes[second/60]++
			}
			if err := rival(); err != nil {
				t.Fatal(err)
			}
		}
		f.clock.SetTime(f.clock.Now().Add(time.Second))
	}
	if (delayed > 0) != isDelayed {
		t.Errorf("%d writes were held back", delayed)
	}
	for minute, writes := range minutes {
		if isDelayed && (writes > 20 || minute > 0 && writes > 2) {
			t.Errorf("%d writes in minute %d", writes, minute)
		}
	}
}

// version distinguishes states of the object.
func (f *fixture) version(ctx context.Context) string {
	if o := f.read(ctx); o != nil {
		return string(o.UID) + o.ResourceVersion
	}
	return ""
}

// After five minutes without a repair the next ones are made at once, and what was written is forgotten. A write that fails does not count.
func TestEndOfDispute(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFixture()
	untilDelayed := func() (writes int) {
		for ; ; writes++ {
			if err := create(ctx, f); err != nil {
				if early := new(repair.BackoffError); !errors.As(err, &early) || early.Object.Kind != "ConfigMap" || early.Object.Name != key.Name {
					t.Errorf("got %v", err)
				}
				return writes
			}
			if err := deletes(ctx, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if writes := untilDelayed(); writes != 1+repair.AtOnceByControllers {
		t.Errorf("%d writes at once", writes)
	}
	f.clock.SetTime(f.clock.Now().Add(rememberFor))
	if writes := untilDelayed(); writes != 1+repair.AtOnceByControllers {
		t.Errorf("%d writes at once after a pause", writes)
	}
	f.clock.SetTime(f.clock.Now().Add(rememberFor))
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "other"}}
	if err := f.Create(ctx, other); err != nil || len(f.objects.last) != 1 {
		t.Errorf("%v; remembered: %v", err, f.objects.last)
	}
	for range 3 * repair.AtOnceByControllers {
		if err := f.Create(ctx, other.DeepCopy()); errors.As(err, new(*repair.BackoffError)) || err == nil {
			t.Fatalf("what fails counts: %v", err)
		}
	}
}

// A write that changes nothing is no repair.
func TestNoChange(t *testing.T) {
	t.Parallel()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: "7"}}
	unchanged := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return nil },
	})
	c := newClient(unchanged, clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	for i := range 3 * repair.AtOnceByControllers {
		if err := c.Update(t.Context(), o.DeepCopy()); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

// What the client deletes itself it may create again, and a patch of an object that was not read may change nothing.
func TestNoRepairs(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFixture()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	for i := range 3 * repair.AtOnceByControllers {
		created := o.DeepCopy()
		if err := errors.Join(f.Create(ctx, created), f.Delete(ctx, created)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if err := f.Create(ctx, o.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * repair.AtOnceByControllers {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"key":"ours"}}`))
		if err := f.Patch(ctx, o.DeepCopy(), patch); err != nil {
			t.Fatalf("patch %d: %v", i, err)
		}
	}
}

// What is made anew for another owner is another object, and so is one whose name the API server chooses.
func TestOtherObjects(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFixture()
	for i := range 3 * repair.AtOnceByControllers {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: types.UID(fmt.Sprint(i))}
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
			OwnerReferences: []metav1.OwnerReference{owner}}}
		named := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, GenerateName: "x-"}}
		if err := errors.Join(f.Create(ctx, owned), f.Create(ctx, named), deletes(ctx, f)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}
