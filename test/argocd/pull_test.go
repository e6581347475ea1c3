package argocd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/argoproj/gitops-engine/pkg/health"
	synccommon "github.com/argoproj/gitops-engine/pkg/sync/common"

	argov1alpha1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// namespaceOfTest is the namespace on the cluster.
const namespaceOfTest = `
apiVersion: v1
kind: Namespace
metadata: {name: TEST}
`

const bindingOfPull = `
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: default}
spec: {clusterSet: default}
`

// AR-06 AR-07: an Application that a cluster pulls arrives there as Argo CD has it, for the cluster itself, and what the Argo CD of the
// cluster writes in its status is in that of the hub. With the Application on the hub, that on the cluster goes, once its Argo CD has
// removed what it has deployed.
func TestPull(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	namespace := f.hub.namespace(t, "pull")
	f.cluster.apply(t, namespace, namespaceOfTest)
	f.hub.apply(t, namespace, bindingOfPull)
	app := pulled(namespace)
	if err := f.hub.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(app)
	there := &argov1alpha1.Application{}
	eventually(t, func(ctx context.Context) error { return f.cluster.Get(ctx, key, there) })
	want := app.Spec.DeepCopy()
	want.Destination = argov1alpha1.ApplicationDestination{Server: argov1alpha1.KubernetesInternalAPIServerAddr, Namespace: "web"}
	if !equality.Semantic.DeepEqual(&there.Spec, want) {
		t.Errorf("the Application on the cluster is %+v, want %+v", there.Spec, want)
	}
	if _, skipped := there.Annotations["argocd.argoproj.io/skip-reconcile"]; skipped {
		t.Errorf("the Argo CD of the cluster leaves the Application alone: %v", there.Annotations)
	}
	if there.Operation == nil || there.Operation.Sync == nil || there.Operation.Sync.Revision != "main" {
		t.Errorf("the operation on the cluster is %+v", there.Operation)
	}

	deploy(t, f.cluster.server, key)
	eventually(t, func(ctx context.Context) error {
		if err := f.hub.Get(ctx, key, app); err != nil {
			return err
		}
		s := app.Status
		if s.Health.Status != health.HealthStatusHealthy || s.Sync.Status != argov1alpha1.SyncStatusCodeSynced || s.Sync.Revision != "abc123" ||
			s.OperationState == nil || s.OperationState.Phase != synccommon.OperationSucceeded || s.OperationState.StartedAt.IsZero() {
			return fmt.Errorf("the status on the hub is %+v", s)
		}
		return nil
	})
	if err := f.cluster.Get(t.Context(), key, there); err != nil || there.Operation != nil {
		t.Errorf("the operation is there again after the Argo CD of the cluster has taken it off: %+v, %v", there.Operation, err)
	}

	if err := f.hub.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if err := f.cluster.Get(ctx, key, there); err != nil {
			return err
		}
		if there.DeletionTimestamp.IsZero() || !slices.Contains(there.Finalizers, argov1alpha1.ResourcesFinalizerName) {
			return errors.New("the Application is not deleted on the cluster")
		}
		return nil
	})
	f.cluster.patch(t, there, `{"metadata":{"finalizers":null}}`)
	for _, s := range []*server{f.cluster.server, f.hub} {
		eventually(t, func(ctx context.Context) error {
			if err := s.Get(ctx, key, &argov1alpha1.Application{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the Application is still there: %w", err)
			}
			return nil
		})
	}
}

// pulled is an Application for the cluster, which is to deploy it at once.
func pulled(namespace string) *argov1alpha1.Application {
	return &argov1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", Finalizers: []string{argov1alpha1.ResourcesFinalizerName},
			Labels: map[string]string{"apps.open-cluster-management.io/pull-to-ocm-managed-cluster": "true"},
			Annotations: map[string]string{"apps.open-cluster-management.io/ocm-managed-cluster": member,
				"argocd.argoproj.io/skip-reconcile": "true"},
		},
		Spec: argov1alpha1.ApplicationSpec{
			Project:     "default",
			Source:      &argov1alpha1.ApplicationSource{RepoURL: "https://git.example.com/web.git", TargetRevision: "HEAD", Path: "web"},
			Destination: argov1alpha1.ApplicationDestination{Name: member, Namespace: "web"},
			SyncPolicy: &argov1alpha1.SyncPolicy{Automated: &argov1alpha1.SyncPolicyAutomated{Prune: true},
				SyncOptions: argov1alpha1.SyncOptions{"CreateNamespace=true"}},
		},
		Operation: &argov1alpha1.Operation{Sync: &argov1alpha1.SyncOperation{Revision: "main"}},
	}
}

// deploy does what an Argo CD writes of an Application when it has deployed it: it takes the operation off, and says how it went.
func deploy(t *testing.T, cluster *server, key client.ObjectKey) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		app := &argov1alpha1.Application{}
		if err := cluster.Get(ctx, key, app); err != nil {
			return err
		}
		now := metav1.NewTime(time.Now())
		app.Status = argov1alpha1.ApplicationStatus{
			Health: argov1alpha1.AppHealthStatus{Status: health.HealthStatusHealthy},
			Sync: argov1alpha1.SyncStatus{Status: argov1alpha1.SyncStatusCodeSynced, Revision: "abc123",
				ComparedTo: argov1alpha1.ComparedTo{Source: *app.Spec.Source, Destination: app.Spec.Destination}},
			OperationState: &argov1alpha1.OperationState{Operation: *app.Operation, Phase: synccommon.OperationSucceeded,
				Message: "successfully synced", StartedAt: now, FinishedAt: &now},
			ReconciledAt: &now,
		}
		app.Operation = nil
		return cluster.Update(ctx, app)
	})
}
