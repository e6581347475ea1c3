package installation

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// await returns once done is true for the objects that are watched: the one of a name, or all of a kind and namespace without one. Lost
// connections are made again; what the cluster refuses is an error at once. A kind that is not served has no objects.
func (c *Cluster) await(ctx context.Context, of Reference, done func([]*unstructured.Unstructured) bool) error {
	client, err := c.client(ctx, of.GroupVersionKind, of.Namespace)
	if err != nil {
		if errors.Is(err, errNotServed) && done(nil) {
			return nil
		}
		return causeOf(ctx, err)
	}
	list, err := client.List(ctx, of.selection(metav1.ListOptions{})) // finds what a watch would try again for ever
	if apierrors.IsNotFound(err) && done(nil) {
		return nil
	}
	if err != nil {
		return causeOf(ctx, c.Explain("watch objects of kind "+of.Kind, err))
	}
	if done(pointersTo(list.Items)) {
		return nil
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, of.selection(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, of.selection(options))
		},
	}
	return causeOf(ctx, apiclient.Until(ctx, source, done))
}

func pointersTo(list []unstructured.Unstructured) (objects []*unstructured.Unstructured) {
	for i := range list {
		objects = append(objects, &list[i])
	}
	return objects
}

// selection narrows a request down to the object, if it has a name.
func (r Reference) selection(options metav1.ListOptions) metav1.ListOptions {
	if r.Name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, r.Name).String()
	}
	return options
}

// causeOf returns the cause of a context that has ended, and otherwise the error.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

const pollInterval = 200 * time.Millisecond

// poll tries again and again until it is done, for what cannot be watched.
func poll(ctx context.Context, done wait.ConditionFunc) error {
	return causeOf(ctx, wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) { return done() }))
}

// Conditions are those in the status of an object.
func Conditions(object *unstructured.Unstructured) []metav1.Condition {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &status); err != nil {
		return nil
	}
	return status.Status.Conditions
}

// DesiredCondition is the status that a condition should have.
type DesiredCondition struct {
	Type   string
	Status metav1.ConditionStatus
}

// AwaitConditions waits until an object has the desired conditions, for its present generation and, if that is a release, by an operator of
// that version: one that is being replaced may have written those of an object that has not changed. report is called with what is missing
// whenever that changes.
func (c *Cluster) AwaitConditions(ctx context.Context, of Reference, desired []DesiredCondition, version string,
	report func(string)) error {
	var missing string
	err := c.await(ctx, of, func(found []*unstructured.Unstructured) bool {
		now := "it does not exist"
		if len(found) == 1 {
			now = missingConditions(found[0], desired)
			if now == "" && !upgrade.IsInstalled(found[0].GetAnnotations()[upgrade.AnnotationVersion], version) {
				now = "its conditions are from before: the operator has not installed all of version " + version + " yet"
			}
		}
		if now != missing {
			missing = now
			report(now)
		}
		return now == ""
	})
	if err != nil && missing != "" {
		return fmt.Errorf("%s: %w: %s", of, err, missing)
	}
	return err
}

// missingConditions says which desired conditions an object does not have; nothing if it has all.
func missingConditions(object *unstructured.Unstructured, desired []DesiredCondition) string {
	all := Conditions(object)
	var missing []string
	for _, condition := range desired {
		missing = append(missing, missingCondition(object, all, condition)...)
	}
	return joinReasons(missing)
}

func missingCondition(object *unstructured.Unstructured, all []metav1.Condition, desired DesiredCondition) []string {
	for _, condition := range all {
		switch {
		case condition.Type != desired.Type:
		case condition.Status != desired.Status:
			return []string{fmt.Sprintf("%s is %s (%s): %s", desired.Type, condition.Status, condition.Reason, condition.Message)}
		case condition.ObservedGeneration != 0 && condition.ObservedGeneration < object.GetGeneration():
			return []string{desired.Type + " is about an earlier generation"}
		default:
			return nil
		}
	}
	return []string{desired.Type + " is not reported yet"}
}

// AwaitObject waits until an object exists and meets the condition.
func (c *Cluster) AwaitObject(ctx context.Context, of Reference, condition func(*unstructured.Unstructured) bool) error {
	return c.await(ctx, of, func(found []*unstructured.Unstructured) bool {
		return len(found) == 1 && condition(found[0])
	})
}
