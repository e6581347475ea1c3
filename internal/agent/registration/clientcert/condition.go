package clientcert

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// updated and updateFailed are the two states of the condition of RG-11.
func updated(notBefore, notAfter time.Time) metav1.Condition {
	return metav1.Condition{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionTrue, Reason: fleet.ReasonClientCertificateUpdated,
		Message: fmt.Sprintf("The client certificate is valid from %s to %s", notBefore.UTC().Format(time.RFC3339), notAfter.UTC().Format(time.RFC3339)),
	}
}

func updateFailed(err error, notAfter time.Time) metav1.Condition {
	return metav1.Condition{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionFalse, Reason: fleet.ReasonClientCertificateUpdateFailed,
		Message: fmt.Sprintf("The client certificate expires on %s and could not be renewed: %v", notAfter.UTC().Format(time.RFC3339), err),
	}
}

// report tells the hub how the client certificate stands, if that is news. It is tried again with the next look at the
// certificate.
func (r *Rotation) report(ctx context.Context, cond metav1.Condition) {
	if r.reported == cond {
		return
	}
	key := client.ObjectKey{Name: r.Requester.Identity.Cluster}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cluster := &clusterv1.ManagedCluster{}
		if err := r.Requester.Hub.Get(ctx, key, cluster); err != nil {
			return err
		}
		before := cluster.DeepCopy()
		if !meta.SetStatusCondition(&cluster.Status.Conditions, cond) {
			return nil
		}
		return r.Requester.Hub.Status().Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		log.FromContext(ctx).Error(err, "The hub could not be told about the client certificate", "condition", cond.Type)
		return
	}
	r.reported = cond
}
