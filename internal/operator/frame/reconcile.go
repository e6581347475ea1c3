package frame

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/rights"
)

const (
	// PollInterval is how often is checked what has no events: pods, clusters that cannot be reached, objects of a CRD that is deleted.
	PollInterval = 5 * time.Second
	// unwatchedInterval is how often a custom resource is reconciled of which something changes without an event, because it may not be
	// watched.
	unwatchedInterval = 30 * time.Second
)

// Resource is a custom resource of an operator.
type Resource[T any] interface {
	client.Object
	DeepCopy() T
}

// Reconciler reconciles the custom resources of an operator. The functions change the status of a resource in memory alone.
type Reconciler[T Resource[T]] struct {
	*Operator
	Prototype T
	// Finalizers are those of the operator. The first is the last that is taken off.
	Finalizers []string
	// Install makes what the resource describes, and writes into its status how far that is. It returns how long nothing is due; 0 for ever.
	Install func(context.Context, T) (due time.Duration, err error)
	// Remove removes what the resource consists of, and returns what has to go before the next step; empty when nothing is left.
	Remove func(context.Context, T) (waitsFor string, err error)
	// ReportRemoval writes into the status what a removal waits for, or why it fails.
	ReportRemoval func(resource T, waitsFor string, err error)
	// Forget drops what is kept in memory of a resource that is gone.
	Forget func(name string)
	// Conditions are those in the status.
	Conditions func(T) *[]metav1.Condition
}

// Reconcile makes what there is what there should be, and reports how far that is.
func (r Reconciler[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.CheckSynced(ctx); err != nil {
		return ctrl.Result{}, err
	}
	resource := r.Prototype.DeepCopy()
	if err := r.Client.Get(ctx, req.NamespacedName, resource); err != nil {
		if apierrors.IsNotFound(err) {
			r.Elsewhere.Disconnect(req.Name)
			r.Forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := resource.DeepCopy()
	if resource.GetDeletionTimestamp() != nil {
		return r.remove(ctx, resource, before)
	}
	due, err := r.Install(ctx, resource)
	if r.reportRights(resource) {
		due = retry.Soonest(due, unwatchedInterval)
	}
	if reportErr := r.report(ctx, resource, before); reportErr != nil {
		return ctrl.Result{}, errors.Join(err, reportErr)
	}
	return ctrl.Result{RequeueAfter: due}, err
}

// CheckSynced is an error until it is known what is installed.
func (o *Operator) CheckSynced(ctx context.Context) error {
	if !o.Management.WaitForCacheSync(ctx) {
		return errors.New("what is installed is not known yet")
	}
	return nil
}

func (r Reconciler[T]) remove(ctx context.Context, resource, before T) (ctrl.Result, error) {
	if !slices.ContainsFunc(r.Finalizers, func(f string) bool { return controllerutil.ContainsFinalizer(resource, f) }) {
		return ctrl.Result{}, nil
	}
	waitsFor, err := r.Remove(ctx, resource)
	if err == nil && waitsFor == "" {
		r.Elsewhere.Disconnect(resource.GetName())
		return ctrl.Result{}, patch.RemoveFinalizer(ctx, r.Client, resource, r.Finalizers[0])
	}
	r.ReportRemoval(resource, waitsFor, err)
	if reportErr := r.report(ctx, resource, before); reportErr != nil {
		return ctrl.Result{}, client.IgnoreNotFound(reportErr)
	}
	return ctrl.Result{RequeueAfter: PollInterval}, err
}

// report writes the status. The metadata may have been written before.
func (r Reconciler[T]) report(ctx context.Context, resource, before T) error {
	copyMetadata(before, resource)
	_, err := patch.Status(ctx, r.Client, resource, before)
	return err
}

// reportRights says which rules the operator would need for what it leaves out, and reports whether there are any.
func (r Reconciler[T]) reportRights(resource T) bool {
	rules := slices.Concat(rights.Rules(r.missing), r.Management.MissingRules(), r.Elsewhere.MissingRules(resource.GetName()),
		r.Secrets.missingRules())
	rights.Report(r.recorder, resource, r.Conditions(resource), rules)
	return len(rules) > 0
}

// AddFinalizer puts the finalizer on the resource, and leaves the rest of it as it is in memory.
func AddFinalizer[T Resource[T]](ctx context.Context, writer client.Client, resource T, finalizer string) error {
	return write(resource, func(written T) error { return patch.AddFinalizer(ctx, writer, written, finalizer) })
}

// RemoveFinalizer takes the finalizer off the resource, and leaves the rest of it as it is in memory.
func RemoveFinalizer[T Resource[T]](ctx context.Context, writer client.Client, resource T, finalizer string) error {
	return write(resource, func(written T) error { return patch.RemoveFinalizer(ctx, writer, written, finalizer) })
}

// Annotate writes an annotation of the resource, or removes it if the value is empty, and leaves the rest of it as it is in memory.
func Annotate[T Resource[T]](ctx context.Context, writer client.Client, resource T, key, value string) error {
	if resource.GetAnnotations()[key] == value {
		return nil
	}
	var content any // null
	if value != "" {
		content = value
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: content}}})
	if err != nil {
		return err
	}
	return write(resource, func(written T) error {
		return writer.Patch(ctx, written, client.RawPatch(types.MergePatchType, change))
	})
}

func write[T Resource[T]](resource T, send func(written T) error) error {
	written := resource.DeepCopy()
	if err := send(written); err != nil {
		return err
	}
	copyMetadata(resource, written)
	return nil
}

// copyMetadata copies the metadata that operators write.
func copyMetadata(into, from client.Object) {
	into.SetFinalizers(from.GetFinalizers())
	into.SetAnnotations(from.GetAnnotations())
	into.SetResourceVersion(from.GetResourceVersion())
}

// Older reports whether a resource goes before another one that wants the same.
func Older(a, b client.Object) bool {
	first, second := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if first.Equal(&second) {
		return a.GetName() < b.GetName()
	}
	return first.Before(&second)
}

// mostNamed is how many objects a message names.
const mostNamed = 5

// Summary names some of the objects that are left; it is empty if there are none.
func Summary(left []string) string {
	if len(left) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(left[:mostNamed], ", "), len(left)-mostNamed)
	}
	return strings.Join(left, ", ")
}
