package registration

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// secretInventory are the Secrets that the agent has made, also before it was last restarted. It is a Source of the controller: add-ons
// that were deleted while the agent did not run are reconciled, too.
type secretInventory struct {
	clusters map[string]*agentCluster
	selector client.MatchingLabels
	hubHash  string
	clock    clock.Clock

	mu  sync.Mutex
	ids map[id]struct{}
}

// relist is the delay before Secrets are listed again after a failure.
const relist = 10 * time.Minute

// Start is called by the controller before it reconciles.
func (i *secretInventory) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	i.mu.Lock()
	i.ids = map[id]struct{}{}
	i.mu.Unlock()
	for _, cluster := range i.clusters {
		go func() {
			for {
				err := i.find(ctx, cluster, queue)
				if err == nil || ctx.Err() != nil {
					return
				}
				log.FromContext(ctx).Error(err, "What is left of add-ons that are gone cannot be removed; that is tried again", "after",
					relist.String())
				select {
				case <-ctx.Done():
					return
				case <-i.clock.After(relist):
				}
			}
		}()
	}
	return nil
}

func (i *secretInventory) find(ctx context.Context, in *agentCluster, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := in.client.List(ctx, secrets, i.selector, client.MatchingLabels{fleet.LabelAddOnCredential: in.name}); err != nil {
		return fmt.Errorf("list the Secrets of add-ons: %w", err)
	}
	for _, secret := range secrets.Items {
		addOn := secret.Labels[fleet.LabelAddOnName]
		if addOn == "" || secret.Annotations[fleet.AnnotationHubHash] != i.hubHash {
			continue
		}
		i.add(id{addOn: addOn, cluster: in.name, namespace: secret.Namespace, name: secret.Name})
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: secret.Labels[fleet.LabelClusterName], Name: addOn}})
	}
	return nil
}

func (i *secretInventory) add(one id) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ids[one] = struct{}{}
}

func (i *secretInventory) remove(one id) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.ids, one)
}

// of are those of one add-on.
func (i *secretInventory) of(addOn string) (ids []id) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for one := range i.ids {
		if one.addOn == addOn {
			ids = append(ids, one)
		}
	}
	return ids
}
