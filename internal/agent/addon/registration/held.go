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

// held are the Secrets that the agent has made, also before it was last restarted. It is a Source of the controller: add-ons that were
// deleted while the agent did not run are reconciled, too.
type held struct {
	places   map[string]*place
	selector client.MatchingLabels
	hubHash  string
	clock    clock.Clock

	mu  sync.Mutex
	ids map[id]struct{}
}

// relist is the time until a cluster is asked again that failed to list its Secrets.
const relist = 10 * time.Minute

// Start is called by the controller before it reconciles.
func (h *held) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	h.mu.Lock()
	h.ids = map[id]struct{}{}
	h.mu.Unlock()
	for _, place := range h.places {
		go func() {
			for {
				err := h.find(ctx, place, queue)
				if err == nil || ctx.Err() != nil {
					return
				}
				log.FromContext(ctx).Error(err, "What is left of add-ons that are gone cannot be removed; that is tried again", "after",
					relist.String())
				select {
				case <-ctx.Done():
					return
				case <-h.clock.After(relist):
				}
			}
		}()
	}
	return nil
}

func (h *held) find(ctx context.Context, p *place, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := p.client.List(ctx, secrets, h.selector, client.MatchingLabels{fleet.LabelAddOnCredential: p.name}); err != nil {
		return fmt.Errorf("list the Secrets of add-ons: %w", err)
	}
	for _, secret := range secrets.Items {
		addOn := secret.Labels[fleet.LabelAddOnName]
		if addOn == "" || secret.Annotations[fleet.AnnotationHubHash] != h.hubHash {
			continue
		}
		h.add(id{addOn: addOn, place: p.name, namespace: secret.Namespace, name: secret.Name})
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: secret.Labels[fleet.LabelClusterName], Name: addOn}})
	}
	return nil
}

func (h *held) add(one id) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids[one] = struct{}{}
}

func (h *held) remove(one id) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ids, one)
}

// of are those of one add-on.
func (h *held) of(addOn string) (ids []id) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.ids {
		if one.addOn == addOn {
			ids = append(ids, one)
		}
	}
	return ids
}
