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

// notYetAgain is when an add-on that could not tell yet is asked again at the latest, a safety net: what it waits for is watched, but
// a cache does not always tell of what has changed without a new resource version, as by another definition of a kind.
const notYetAgain = 10 * time.Minute

// pass is one reconcile of an add-on.
type pass struct {
	*Controller
	agent   addon.Agent
	options addon.Options

	// before is the add-on as it was read, addOn with what is found out about it.
	before, addOn *addonv1beta1.ManagedClusterAddOn
	// installation holds addOn.
	installation addon.Installation
	// hosting is the cluster on which the agent is to run in hosted mode; nil if there is none of the name.
	hosting *clusterv1.ManagedCluster
	// catalogueEntry is its ClusterManagementAddOn; nil if there is none.
	catalogueEntry *addonv1beta1.ClusterManagementAddOn
	// works are those of the add-on.
	works []workv1.ManifestWork

	// finalizers are those that the add-on needs from now on.
	finalizers []string
	// problems are what could not be done; it is tried again.
	problems []error
	// after is when something is due without an event; 0 is never.
	after time.Duration
}

// look reads what the add-on depends on.
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

// abandon lets an add-on go that is being deleted and whose cluster does not exist any more: nobody is left to run its
// hooks. Before that, there is nothing to do without a cluster.
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

// comeBack after no longer than that.
func (p *pass) comeBack(after time.Duration) {
	if after > 0 && (p.after == 0 || after < p.after) {
		p.after = after
	}
}

// judge says whether the agent works, where that is the manager's to say.
func (p *pass) judge() {
	condition, mode := healthprobe.Condition(healthprobe.Input{Options: p.options, Installation: p.installation, Works: p.works})
	p.addOn.Status.HealthCheck.Mode = mode
	if condition != nil {
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}

// set sets a condition. The time is that of the change.
func (p *pass) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.addOn.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.addOn.Generation, LastTransitionTime: metav1.NewTime(p.Clock.Now()),
	})
}

// keyOf is the ManagedClusterAddOn that an object on the hub is labelled to belong to.
func keyOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetLabels()[fleet.LabelClusterName], Name: o.GetLabels()[fleet.LabelAddOnName]}
}
