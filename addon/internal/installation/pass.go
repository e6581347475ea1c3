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
)

// notYetAgain is the longest time until an add-on that returned ErrNotYet is called again. It is a safety net: what the add-on waits
// for is watched, but a cache can miss changes without a new resource version, such as those by a new definition of a kind.
const notYetAgain = 10 * time.Minute

// pass is one reconcile of an add-on.
type pass struct {
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

// look reads the objects that the pass depends on.
func (p *pass) look(ctx context.Context) (err error) {
	cluster, err := p.cluster(ctx, p.addOn.Namespace)
	if err != nil {
		return err
	}
	p.installation = catalogue.Installation(p.agent, cluster, p.addOn)
	hosting := p.installation.HostingCluster
	p.hosted.note(client.ObjectKeyFromObject(p.addOn), hosting)
	if hosting != "" {
		if p.hosting, err = p.cluster(ctx, hosting); err != nil {
			return err
		}
	}
	entry := &addonv1beta1.ClusterManagementAddOn{}
	switch err := p.client.Get(ctx, client.ObjectKey{Name: p.addOn.Name}, entry); {
	case err == nil:
		p.catalogueEntry = entry
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get ClusterManagementAddOn %s: %w", p.addOn.Name, err)
	}
	p.works, err = p.worksOf(ctx, client.ObjectKeyFromObject(p.addOn))
	return err
}

// abandon releases an add-on that is being deleted and whose cluster no longer exists: no agent is left to run its hooks. An add-on
// that is not being deleted waits for its cluster.
func (p *pass) abandon(ctx context.Context) error {
	if p.addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	for i := range p.works {
		if err := p.remove(ctx, &p.works[i]); err != nil {
			return err
		}
	}
	return p.release(ctx)
}

// comeBack makes the add-on due after at most that time.
func (p *pass) comeBack(after time.Duration) {
	if after > 0 && (p.after == 0 || after < p.after) {
		p.after = after
	}
}

// judge sets the condition Available, if its health mode leaves that to the manager.
func (p *pass) judge() {
	condition, mode := healthprobe.Condition(healthprobe.Input{Options: p.options, Installation: p.installation, Works: p.works})
	p.addOn.Status.HealthCheck.Mode = mode
	if condition != nil {
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}

// set sets a condition. Its transition time is now if its status changes.
func (p *pass) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.addOn.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.addOn.Generation, LastTransitionTime: metav1.NewTime(p.Clock.Now()),
	})
}

// keyOf returns the ManagedClusterAddOn that the labels of an object name.
func keyOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetLabels()[fleet.LabelClusterName], Name: o.GetLabels()[fleet.LabelAddOnName]}
}
