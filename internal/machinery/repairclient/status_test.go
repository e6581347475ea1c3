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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// pod is what both read, and report on.
func (f *fixture) pod(ctx context.Context, t *testing.T) *corev1.Pod {
	t.Helper()
	o := &corev1.Pod{}
	if err := f.Get(ctx, key, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// says sets the condition, with the time at which that is said first.
func (f *fixture) says(o *corev1.Pod, reason string) {
	o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: reason,
		LastTransitionTime: metav1.NewTime(f.clock.Now())}}
}

func isSaid(o *corev1.Pod, reason string) bool {
	return len(o.Status.Conditions) == 1 && o.Status.Conditions[0].Reason == reason
}

// reports, updatesStatus and reportsByOperations are reconciles that want a condition.
func reports(ctx context.Context, f *fixture, o *corev1.Pod) error {
	before := o.DeepCopy()
	if isSaid(o, "Ours") {
		return nil
	}
	f.says(o, "Ours")
	return f.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func updatesStatus(ctx context.Context, f *fixture, o *corev1.Pod) error {
	if isSaid(o, "Ours") {
		return nil
	}
	f.says(o, "Ours")
	return f.Status().Update(ctx, o)
}

func reportsByOperations(ctx context.Context, f *fixture, o *corev1.Pod) error {
	if isSaid(o, "Ours") {
		return nil
	}
	at := f.clock.Now().UTC().Format(time.RFC3339)
	content := fmt.Sprintf(`[{"op": "add", "path": "/metadata/resourceVersion", "value": %q}, {"op": "add", "path": "/status", `+
		`"value": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ours", "lastTransitionTime": %q}]}}, `+
		`{"op": "replace", "path": "/status/conditions/0/lastTransitionTime", "value": %q}]`, o.ResourceVersion, at, at)
	return f.Status().Patch(ctx, o, client.RawPatch(types.JSONPatchType, []byte(content)))
}

// counts is one that reports progress, and beats one that reports when it has looked last, in statuses that are whole.
func counts(ctx context.Context, f *fixture, o *corev1.Pod) error {
	f.says(o, "Ours")
	o.Status.Message = fmt.Sprintf("%d of 1000", f.round)
	return f.Status().Update(ctx, o)
}

func beats(ctx context.Context, f *fixture, o *corev1.Pod) error {
	f.says(o, "Ours")
	o.Status.StartTime = new(metav1.NewTime(f.clock.Now()))
	return f.Status().Update(ctx, o)
}

// follows is one that says by turns what it sees.
func follows(ctx context.Context, f *fixture, o *corev1.Pod) error {
	before := o.DeepCopy()
	f.says(o, fmt.Sprint(f.round%2))
	return f.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// AF-10: two managers of an add-on do not write its status without end, and reports of what happens are not held up.
func TestStatuses(t *testing.T) {
	t.Parallel()
	contradicts := func(ctx context.Context, f *fixture, o *corev1.Pod) error {
		f.says(o, "Theirs")
		return f.rival.Status().Update(ctx, o)
	}
	isQuiet := func(context.Context, *fixture, *corev1.Pod) error { return nil }
	for name, test := range map[string]struct {
		reconcile, rival func(context.Context, *fixture, *corev1.Pod) error
		delayed          bool
	}{
		"patched again and again":               {reports, contradicts, true},
		"updated again and again":               {updatesStatus, contradicts, true},
		"patched by operations again and again": {reportsByOperations, contradicts, true},
		"said once":                             {reports, isQuiet, false},
		"progress":                              {counts, contradicts, false},
		"a time that is news":                   {beats, isQuiet, false},
		"two states by turns":                   {follows, isQuiet, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, f := t.Context(), newFixture()
			if err := f.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
				t.Fatal(err)
			}
			f.dispute(t, test.delayed, func() string { return f.pod(ctx, t).ResourceVersion },
				func() error { return test.reconcile(ctx, f, f.pod(ctx, t)) }, func() error { return test.rival(ctx, f, f.pod(ctx, t)) })
		})
	}
}

// A dispute about the status holds up no write of the object, nor the other way round.
func TestStatusIsApart(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFixture()
	if err := f.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
		t.Fatal(err)
	}
	label := func() error {
		o := f.pod(ctx, t)
		o.Labels = map[string]string{"whose": "ours"}
		return f.Update(ctx, o)
	}
	isHeld := func(err error) bool { return errors.As(err, new(*repair.BackoffError)) }
	for range 3 * repair.AtOnceByControllers {
		err := reports(ctx, f, f.pod(ctx, t))
		if isHeld(err) {
			break
		}
		o := f.pod(ctx, t)
		f.says(o, "Theirs")
		if err := errors.Join(err, f.rival.Status().Update(ctx, o)); err != nil {
			t.Fatal(err)
		}
	}
	if err := reports(ctx, f, f.pod(ctx, t)); !isHeld(err) {
		t.Fatalf("the status is not disputed: %v", err)
	}
	for i := range repair.AtOnceByControllers {
		if err := label(); err != nil {
			t.Fatalf("label %d: %v", i, err)
		}
		o := f.pod(ctx, t)
		o.Labels = nil
		if err := f.rival.Update(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
}

// A patch of a status that was not read may change nothing.
func TestStatusThatWasNotRead(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFixture()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := f.Create(ctx, o.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * repair.AtOnceByControllers {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"ours"}}`))
		if err := f.Status().Patch(ctx, o.DeepCopy(), patch); err != nil {
			t.Fatalf("patch %d: %v", i, err)
		}
	}
}
