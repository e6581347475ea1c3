package installation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/healthprobe"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// notYetAgain is the longest time until an add-on that returned ErrNotYet is called again. It is a safety net: what the add-on waits
// for is watched, but a cache can miss changes without a new resource version, such as those by a new definition of a kind.
const notYetAgain = 10 * time.Minute

// reconciliation is one reconcile of an add-on.
type reconciliation struct {
	*Controller
	agent   addon.Agent
	options addon.Options

	// before is the add-on as it was read; addOn has the changes of this pass.
	before, addOn *addonv1beta1.ManagedClusterAddOn
	// installation is what the methods of the agent get. Its AddOn is addOn.
	installation addon.Installation
	// hosting is the hosting cluster; nil in default mode, or if it does not exist.
	hosting *clusterv1.ManagedCluster
	// catalogueEntry is the ClusterManagementAddOn; nil if it does not exist.
	catalogueEntry *addonv1beta1.ClusterManagementAddOn
	// works are the existing works of the add-on.
	works []workv1.ManifestWork

	// finalizers are those that the add-on needs after this pass.
	finalizers []string
	// problems are the errors after which the reconcile is tried again.
	problems []error
	// after is when the add-on is due again without an event; 0 is never.
	after time.Duration
}

// read reads the objects that the pass depends on.
func (r *reconciliation) read(ctx context.Context) (err error) {
	cluster, err := r.cluster(ctx, r.addOn.Namespace)
	if err != nil {
		return err
	}
	r.installation = catalogue.Installation(r.agent, cluster, r.addOn)
	hosting := r.installation.HostingCluster
	r.hosted.set(client.ObjectKeyFromObject(r.addOn), hosting)
	if hosting != "" {
		if r.hosting, err = r.cluster(ctx, hosting); err != nil {
			return err
		}
	}
	entry := &addonv1beta1.ClusterManagementAddOn{}
	switch err := r.client.Get(ctx, client.ObjectKey{Name: r.addOn.Name}, entry); {
	case err == nil:
		r.catalogueEntry = entry
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get ClusterManagementAddOn %s: %w", r.addOn.Name, err)
	}
	r.works, err = r.worksOf(ctx, client.ObjectKeyFromObject(r.addOn))
	return err
}

// abandon releases an add-on that is being deleted and whose cluster no longer exists: no agent is left to run its hooks. An add-on
// that is not being deleted waits for its cluster.
func (r *reconciliation) abandon(ctx context.Context) error {
	if r.addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	for i := range r.works {
		if err := r.remove(ctx, &r.works[i]); err != nil {
			return err
		}
	}
	return r.release(ctx)
}

// requeueAfter makes the add-on due after at most that time.
func (r *reconciliation) requeueAfter(after time.Duration) {
	if after > 0 && (r.after == 0 || after < r.after) {
		r.after = after
	}
}

// reportHealth sets the condition Available, if its health mode leaves that to the manager.
func (r *reconciliation) reportHealth() {
	condition, mode := healthprobe.Condition(healthprobe.Input{Options: r.options, Installation: r.installation, Works: r.works})
	r.addOn.Status.HealthCheck.Mode = mode
	if condition != nil {
		r.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}

// set sets a condition. Its transition time is now if its status changes. An error that comes again says the same each time, and not too
// much: a new message would bring the add-on back at once, without a delay, and one that is too long is not written at all. The hub reads
// the message of an add-on that has nothing to apply, which stays whole.
func (r *reconciliation) set(kind string, status metav1.ConditionStatus, reason, message string) {
	if reason != fleet.ReasonAddOnNothingToApply {
		message = text.Message(text.Stable(message))
	}
	meta.SetStatusCondition(&r.addOn.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: r.addOn.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
}

// keyOf returns the ManagedClusterAddOn that the labels of an object name.
func keyOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetLabels()[fleet.LabelClusterName], Name: o.GetLabels()[fleet.LabelAddOnName]}
}
