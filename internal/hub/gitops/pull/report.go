package pull

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/capstan-io/capstan/api/apps/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// mostReported is how many clusters a report names, so that it fits into an object. The summary counts all.
const mostReported = 2000

// Reporter writes the report of each ApplicationSet whose Applications clusters pull.
type Reporter struct{ c Clients }

// Reconcile writes the report of an ApplicationSet, or deletes it when no cluster pulls Applications of that.
func (r *Reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	apps := r.c.Applications()
	if apps == nil {
		return ctrl.Result{}, nil
	}
	found, err := r.conditions(ctx, apps, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	report := &appsv1alpha1.MulticlusterApplicationSetReport{}
	err = r.c.Get(ctx, req.NamespacedName, report)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("get MulticlusterApplicationSetReport %s: %w", req, err)
	case err != nil && len(found) == 0:
		return ctrl.Result{}, nil
	case err != nil:
		report.ObjectMeta = metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name,
			Labels: map[string]string{fleet.LabelArgoSet: fleet.LabelTrue}}
		report.Statuses = summarize(found)
		return ctrl.Result{}, ignoreTerminating(r.c.Create(ctx, report))
	case report.Labels[fleet.LabelArgoSet] != fleet.LabelTrue:
		return ctrl.Result{}, nil // it is somebody else's
	case len(found) == 0:
		return ctrl.Result{}, client.IgnoreNotFound(r.c.Delete(ctx, report, client.Preconditions{UID: &report.UID}))
	}
	before := report.DeepCopy()
	report.Statuses = summarize(found)
	_, err = patch.Object(ctx, r.c.Client, report, before)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func ignoreTerminating(err error) error {
	if apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return nil
	}
	return err
}

// conditions are how the Applications of an ApplicationSet are on the clusters that pull them.
func (r *Reporter) conditions(ctx context.Context, apps client.Reader, set types.NamespacedName) ([]appsv1alpha1.ClusterCondition, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(listKind)
	if err := apps.List(ctx, list, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Applications of ApplicationSet %s: %w", set, err)
	}
	var found []appsv1alpha1.ClusterCondition
	for i := range list.Items {
		app := &list.Items[i]
		cluster, ok := pulled(app)
		if !ok || setOf(app) != set || app.GetDeletionTimestamp() != nil {
			continue
		}
		condition, err := r.condition(ctx, app, cluster)
		if err != nil {
			return nil, err
		}
		found = append(found, condition)
	}
	return found, nil
}

// condition is how an Application is on its cluster.
func (r *Reporter) condition(ctx context.Context, app *unstructured.Unstructured, cluster string) (appsv1alpha1.ClusterCondition, error) {
	condition := appsv1alpha1.ClusterCondition{Cluster: cluster, App: app.GetNamespace() + "/" + app.GetName()}
	message := conditionMessage(app)
	work := &workv1.ManifestWork{}
	err := r.c.Get(ctx, client.ObjectKey{Namespace: cluster, Name: workName(app)}, work, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return condition, fmt.Errorf("get ManifestWork %s/%s: %w", cluster, workName(app), err)
	}
	if err == nil && applicationOf(work) == client.ObjectKeyFromObject(app) {
		values := valuesOf(work)
		condition.HealthStatus, condition.SyncStatus = values[valueHealth], values[valueSync]
		condition.OperationStatePhase, condition.OperationStateStartedAt = values[valuePhase], values[valueStartedAt]
		condition.SyncRevision = values[valueRevision]
	}
	if message != "" {
		condition.Conditions = []appsv1alpha1.Condition{{Type: conditionNotPropagated, Message: message}}
	}
	return condition, nil
}

// summarize counts clusters, and names those that are not healthy first.
func summarize(found []appsv1alpha1.ClusterCondition) appsv1alpha1.AppConditions {
	var syncedCount, healthyCount, progressingCount int
	for _, condition := range found {
		syncedCount += boolToInt(condition.SyncStatus == synced)
		healthyCount += boolToInt(condition.HealthStatus == healthy)
		progressingCount += boolToInt(condition.HealthStatus == progressing)
	}
	slices.SortFunc(found, func(a, b appsv1alpha1.ClusterCondition) int {
		return cmp.Or(boolToInt(isHealthy(a))-boolToInt(isHealthy(b)), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.App, b.App))
	})
	return appsv1alpha1.AppConditions{
		ClusterConditions: found[:min(len(found), mostReported)],
		Summary: appsv1alpha1.ReportSummary{
			Synced: strconv.Itoa(syncedCount), NotSynced: strconv.Itoa(len(found) - syncedCount), Healthy: strconv.Itoa(healthyCount),
			NotHealthy: strconv.Itoa(len(found) - healthyCount - progressingCount), InProgress: strconv.Itoa(progressingCount),
			Clusters: strconv.Itoa(len(found)),
		},
	}
}

func isHealthy(c appsv1alpha1.ClusterCondition) bool {
	return c.HealthStatus == healthy && c.SyncStatus == synced && len(c.Conditions) == 0
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}
