package pull

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// conditionNotPropagated of an Application says why it does not get to its cluster. Argo CD shows conditions of this suffix as errors.
const conditionNotPropagated = "PropagationError"

const (
	healthy     = "Healthy"
	progressing = "Progressing"
	synced      = "Synced"
)

// valuesOf are what a cluster reports about its Application.
func valuesOf(work *workv1.ManifestWork) map[string]string {
	values := map[string]string{}
	for _, manifest := range work.Status.ResourceStatus.Manifests {
		if manifest.ResourceMeta.Group != applicationKind.Group || manifest.ResourceMeta.Kind != applicationKind.Kind {
			continue
		}
		for _, value := range manifest.StatusFeedbacks.Values {
			if value.Value.String != nil {
				values[value.Name] = *value.Value.String
			}
		}
	}
	return values
}

// failureOf says why a cluster has not applied its Application; empty if it has, or has not tried.
func failureOf(work *workv1.ManifestWork) string {
	applied := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied)
	if applied == nil || applied.Status != metav1.ConditionFalse {
		return ""
	}
	return "cluster " + work.Namespace + " has not applied it: " + applied.Message
}

// reportStatus writes the status of an Application that the Argo CD of the hub leaves alone, and records an event where it starts to fail.
func (c *Controller) reportStatus(ctx context.Context, app *unstructured.Unstructured, work *workv1.ManifestWork,
	blocked *obstacleError) error {
	if _, ok := pulled(app); !ok {
		return nil
	}
	failure := ""
	switch {
	case blocked != nil:
		failure = text.Message(blocked.message)
	case work != nil:
		failure = text.Message(failureOf(work))
	}
	if !isSkipped(app) {
		c.recorder.Eventf(app, nil, corev1.EventTypeWarning, "ApplicationNotPropagated", "Propagate", "%s", failure)
		return nil
	}
	if work != nil {
		values := valuesOf(work)
		if values[valueHealth] == healthy && !slices.Contains([]string{healthy, progressing}, healthOf(app)) {
			// Who follows an ApplicationSet step by step waits for it to have been in progress.
			if err := c.writeStatus(ctx, app, func() { setHealth(app, progressing, c.Clock.Now()) }); err != nil {
				return err
			}
		}
		if err := c.writeStatus(ctx, app, func() { c.copyStatus(app, values) }); err != nil {
			return err
		}
	}
	if failure != "" && failure != conditionMessage(app) {
		c.recorder.Eventf(app, nil, corev1.EventTypeWarning, "ApplicationNotPropagated", "Propagate", "%s", failure)
	}
	return c.writeStatus(ctx, app, func() { setCondition(app, failure, c.Clock.Now()) })
}

// writeStatus writes what a function changes. The status of Applications is no subresource.
func (c *Controller) writeStatus(ctx context.Context, app *unstructured.Unstructured, change func()) error {
	before := app.DeepCopy()
	change()
	_, err := patch.Object(ctx, c.c.Live, app, before)
	return client.IgnoreNotFound(err)
}

func healthOf(app *unstructured.Unstructured) string {
	health, _, _ := unstructured.NestedString(app.Object, fieldStatus, "health", fieldStatus)
	return health
}

func setHealth(app *unstructured.Unstructured, health string, now time.Time) {
	if healthOf(app) == health {
		return
	}
	setStatusField(app, health, "health", fieldStatus)
	setStatusField(app, now.UTC().Format(time.RFC3339), "health", "lastTransitionTime")
}

// setStatusField sets a field of the status. Where another type is in the way, the status stays as it is: the kind does not allow it.
func setStatusField(app *unstructured.Unstructured, value any, fields ...string) {
	_ = unstructured.SetNestedField(app.Object, value, append([]string{fieldStatus}, fields...)...)
}

// copyStatus sets what the cluster reports. What it does not report stays.
func (c *Controller) copyStatus(app *unstructured.Unstructured, values map[string]string) {
	if health := values[valueHealth]; health != "" {
		setHealth(app, health, c.Clock.Now())
	}
	if sync := values[valueSync]; sync != "" {
		setStatusField(app, sync, "sync", fieldStatus)
		if revision := values[valueRevision]; revision != "" {
			setStatusField(app, revision, "sync", "revision")
		}
	}
	// The kind wants all of an operation, or none.
	phase, startedAt := values[valuePhase], values[valueStartedAt]
	if _, err := time.Parse(time.RFC3339, startedAt); err != nil || phase == "" {
		return
	}
	setStatusField(app, phase, "operationState", "phase")
	setStatusField(app, startedAt, "operationState", "startedAt")
	if _, found, _ := unstructured.NestedMap(app.Object, fieldStatus, "operationState", fieldOperation); !found {
		setStatusField(app, map[string]any{}, "operationState", fieldOperation)
	}
}

// conditionMessage is that of the condition that an Application does not get to its cluster.
func conditionMessage(app *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(app.Object, fieldStatus, "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == conditionNotPropagated {
			message, _ := fields["message"].(string)
			return message
		}
	}
	return ""
}

// setCondition sets the condition that an Application does not get to its cluster, or removes it. Other conditions stay.
func setCondition(app *unstructured.Unstructured, message string, now time.Time) {
	if conditionMessage(app) == message {
		return
	}
	conditions, _, _ := unstructured.NestedSlice(app.Object, fieldStatus, "conditions")
	conditions = slices.DeleteFunc(conditions, func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == conditionNotPropagated
	})
	if message != "" {
		conditions = append(conditions, map[string]any{"type": conditionNotPropagated, "message": message,
			"lastTransitionTime": now.UTC().Format(time.RFC3339)})
	}
	setStatusField(app, conditions, "conditions")
}
