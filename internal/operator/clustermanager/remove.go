package clustermanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/apply/problem"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// firstCRDs go one after the other, each once the one before has gone: the objects of each are cleaned up by controllers that need the
// objects of the next.
var firstCRDs = []struct {
	name string
	kind schema.GroupVersionKind // in the version that is stored, which needs no conversion
}{
	{"managedclusteraddons.addon.open-cluster-management.io", addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOn")},
	{"manifestworks.work.open-cluster-management.io", workv1.GroupVersion.WithKind("ManifestWork")},
	{"managedclusters.cluster.open-cluster-management.io", clusterv1.GroupVersion.WithKind("ManagedCluster")},
	{"manifestworkreplicasets.work.open-cluster-management.io", workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet")},
}

// remove removes a hub: what users have stored first, while the controllers run that clean up after it, and then the rest.
func (c *Controller) remove(ctx context.Context, cm *operatorv1.ClusterManager) (waitsFor string, err error) {
	if err := c.recordRunningMode(ctx, cm); err != nil {
		return "", err
	}
	return c.removeAll(ctx, cm)
}

// reportRemoval reports what a removal waits for, or why it fails.
func reportRemoval(cm *operatorv1.ClusterManager, waitsFor string, err error) {
	progress := metav1.Condition{Type: fleet.ConditionProgressing, Status: metav1.ConditionTrue, Reason: reasonRemoving,
		Message: "Waits for " + waitsFor}
	if err != nil {
		progress.Message = err.Error()
	}
	newReport(cm).set(progress)
}

// removeAll returns what has to go before the next step; empty when nothing is left.
func (c *Controller) removeAll(ctx context.Context, cm *operatorv1.ClusterManager) (waitsFor string, err error) {
	hub, waitsFor, err := c.removeStored(ctx, cm)
	if err != nil || waitsFor != "" {
		return c.renewUnremoved(ctx, cm, waitsFor, err)
	}
	if waitsFor, err = c.removeRest(ctx, cm, hub); err != nil || waitsFor != "" || hub == nil {
		return waitsFor, err
	}
	if other, err := c.sameHub(ctx, cm); err != nil || other != "" {
		return "", err // the roles are those of its hub
	}
	if other, err := c.otherOwner(ctx, cm, hub); err != nil || other != "" {
		return "", withAdvice(cm, err)
	}
	return "", withAdvice(cm, c.removeRolesOfAgents(ctx, hub)) // no controller makes them again
}

// removeStored removes what users have stored in the hub, with the CRDs. It returns the hub; nil if that is left.
func (c *Controller) removeStored(ctx context.Context, cm *operatorv1.ClusterManager) (hub *apply.Cluster, waitsFor string, err error) {
	if hub, err = c.hubToRemove(ctx, cm); err != nil || hub == nil {
		return nil, "", withAdvice(cm, err)
	}
	if err := c.removeDeadWebhooks(ctx, cm, hub); err != nil {
		return nil, "", withAdvice(cm, err)
	}
	waitsFor, err = c.removeCRDs(ctx, cm, hub)
	return hub, waitsFor, withAdvice(cm, err)
}

// renewUnremoved keeps the components working while what users have stored is not removed, because they clean up after it. It returns what
// the removal waits for, or why it fails, and adds why the components cannot be renewed.
func (c *Controller) renewUnremoved(ctx context.Context, cm *operatorv1.ClusterManager, waitsFor string, unremoved error) (string, error) {
	_, err := c.renewAfter(ctx, cm, unremoved) // the removal looks again before anything is due
	switch {
	case err == nil:
		return waitsFor, unremoved
	case unremoved == nil:
		return fmt.Sprintf("%s; what runs cannot be renewed: %v", waitsFor, err), nil
	}
	return waitsFor, fmt.Errorf("%w; what runs cannot be renewed: %w", unremoved, err)
}

// removeRest deletes all that the hub consists of, but for CRDs, and returns what is still there. A hub that is nil is left.
func (c *Controller) removeRest(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) (waitsFor string, err error) {
	for _, cluster := range distinct(hub, c.Management) {
		if cluster == nil {
			continue
		}
		left, err := cluster.PruneLive(ctx, cm.Name, c.own(cm, cluster)...) // also what was just applied, as no event is handled any more
		if cluster != c.Management {
			err = withAdvice(cm, err)
		}
		if err != nil || len(left) > 0 {
			return frame.Summary(left), err
		}
	}
	return "", nil
}

// own are objects on a cluster that the operator lives on, or that users have stored for it: where the hub runs in the namespace of the
// operator, they are part of both, and outlive the hub.
func (c *Controller) own(cm *operatorv1.ClusterManager, cluster *apply.Cluster) []client.Object {
	if cluster != c.Management || namespaceOf(cm) != c.Namespace {
		return nil
	}
	own := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}}
	for _, copied := range []string{c.PullSecret, fleet.SecretWorkDriverConfig} {
		own = append(own, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: copied}})
	}
	return own
}

// withAdvice says what to do when an error on a hosted hub does not go away: its API server may never be reached again.
func withAdvice(cm *operatorv1.ClusterManager, err error) error {
	if err == nil || !hosted(cm) {
		return err
	}
	return fmt.Errorf("%w; correct Secret %s/%s, or delete it to give up what is on the hub", err, cm.Name, fleet.SecretExternalHubKubeconfig)
}

// hubToRemove is the hub; nil if it is hosted and its credential has been deleted, as it cannot be reached any more then, or if it belongs
// to a ClusterManager in its own cluster.
func (c *Controller) hubToRemove(ctx context.Context, cm *operatorv1.ClusterManager) (*apply.Cluster, error) {
	if hosted(cm) {
		if secret, err := c.Secrets.Get(ctx, cm.Name, fleet.SecretExternalHubKubeconfig); err != nil || secret == nil {
			return nil, err
		}
	}
	hub, _, err := c.hub(ctx, cm)
	if err != nil {
		return nil, err
	}
	return c.unlessResident(ctx, cm, hub)
}

// removeDeadWebhooks has the API server call no webhook if one of these does not run: it would refuse what the controllers write to clean
// up. The next hub has them again.
func (c *Controller) removeDeadWebhooks(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) error {
	if err := c.endDeadConversion(ctx, cm, hub, c.Management.Deployment); err != nil {
		return err
	}
	for _, name := range fleet.WebhookDeployments(cm.Name) {
		live, err := c.Management.Deployment(ctx, types.NamespacedName{Namespace: namespaceOf(cm), Name: name})
		if err != nil || !problem.RolledOut(live) {
			return removeAdmission(ctx, cm, hub)
		}
	}
	return nil
}

// removeAdmission deletes the configurations of the webhooks that admit what is written.
func removeAdmission(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) error {
	for _, kind := range webhookKinds {
		configurations, err := hub.List(ctx, cm.Name, kind)
		if err != nil {
			return err
		}
		for _, configuration := range configurations {
			if err := hub.Delete(ctx, configuration); err != nil {
				return err
			}
		}
	}
	return nil
}

// unansweredLimit is how long no pod may answer the conversions of a hub that is removed before they end: one that moves to another node
// takes less, and objects lose fields without it.
const unansweredLimit = 5 * time.Minute

// longestUnseen is the longest time between two looks for such a pod that count as one silence. Passes that fail come each minute.
const longestUnseen = 2 * time.Minute

// silence is for how long all looks have found no pod that answers conversions: the times of the first and of the last one.
type silence struct{ first, last time.Time }

// endDeadConversion takes the webhook off CRDs that are going to be deleted once it is dead: the API server could not show the controllers
// add-ons in the version that they know.
func (c *Controller) endDeadConversion(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster,
	get frame.GetDeployment) error {
	if c.skipRemoveCRDs {
		return nil
	}
	dead, err := c.isConversionDead(ctx, cm, get)
	if err != nil || !dead {
		return err
	}
	return editConverted(ctx, hub, cm.Name, endConversion)
}

// isConversionDead reports whether this process has seen no pod that answers conversions for long.
func (c *Controller) isConversionDead(ctx context.Context, cm *operatorv1.ClusterManager, get frame.GetDeployment) (bool, error) {
	webhook := addOnWebhook
	if hosted(cm) {
		webhook = registrationWebhook // see webhooks.reached
	}
	live, err := get(ctx, types.NamespacedName{Namespace: namespaceOf(cm), Name: cm.Name + "-" + webhook})
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	if err == nil && live.Status.AvailableReplicas > 0 {
		c.unanswered.Delete(cm.Name)
		return false, nil
	}
	return c.noteUnanswered(cm.Name) >= unansweredLimit, nil
}

// noteUnanswered notes that no pod answers the conversions of a hub now, and returns for how long none has. Nobody knows whether one did
// while nobody looked.
func (c *Controller) noteUnanswered(clusterManager string) time.Duration {
	now := c.Clock.Now()
	stored, _ := c.unanswered.Load(clusterManager)
	s, known := stored.(silence)
	if !known || now.Sub(s.last) > longestUnseen {
		s.first = now
	}
	s.last = now
	c.unanswered.Store(clusterManager, s)
	return now.Sub(s.first)
}

// forget drops what is known of a ClusterManager that is gone.
func (c *Controller) forget(clusterManager string) { c.unanswered.Delete(clusterManager) }

// editConverted edits the CRDs of a ClusterManager whose objects a webhook of the hub converts.
func editConverted(ctx context.Context, hub *apply.Cluster, clusterManager string,
	edit func(*apiextensionsv1.CustomResourceDefinition)) error {
	for _, crd := range crds.Hub() {
		if conversionConfig(crd) == nil {
			continue
		}
		live := &apiextensionsv1.CustomResourceDefinition{}
		err := hub.Client.Get(ctx, client.ObjectKeyFromObject(crd), live)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get CustomResourceDefinition %s: %w", crd.Name, err)
		}
		if conversionConfig(live) == nil || live.Labels[fleet.LabelCreatedByClusterManager] != clusterManager {
			continue
		}
		before := live.DeepCopy()
		edit(live)
		if _, err := patch.Object(ctx, hub.Client, live, before); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("end the conversion of CustomResourceDefinition %s: %w", crd.Name, err)
		}
	}
	return nil
}

// endConversion has the API server serve objects in all versions without the webhook: fields that only one version has are lost.
func endConversion(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
}

// serveStored has the API server serve objects without the webhook, and in the version in which they are stored alone, so that nothing is
// lost. The next hub that is installed serves the others again.
func serveStored(crd *apiextensionsv1.CustomResourceDefinition) {
	endConversion(crd)
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage
	}
}

// removeCRDs deletes the CRDs in order, or leaves them without a trace of the operator.
func (c *Controller) removeCRDs(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) (waitsFor string, err error) {
	served, err := hub.ListLive(ctx, cm.Name, apply.CRDs)
	if err != nil {
		return "", err
	}
	if c.skipRemoveCRDs {
		if err := editConverted(ctx, hub, cm.Name, serveStored); err != nil {
			return "", err
		}
		for _, crd := range served {
			if err := hub.ReleaseCRD(ctx, crd); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	for _, first := range firstCRDs {
		at := slices.IndexFunc(served, func(o client.Object) bool { return o.GetName() == first.name })
		if at < 0 {
			continue
		}
		if err := hub.Delete(ctx, served[at]); err != nil {
			return "", fmt.Errorf("delete CustomResourceDefinition %s: %w", first.name, err)
		}
		return remaining(ctx, hub, first.name, first.kind), nil
	}
	var left []string
	for _, crd := range served {
		if ofSIG(crd.GetName()) {
			if err := hub.ReleaseCRD(ctx, crd); err != nil {
				return "", err
			}
			continue
		}
		left = append(left, "CustomResourceDefinition "+crd.GetName())
		if err := hub.Delete(ctx, crd); err != nil {
			return "", fmt.Errorf("delete CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
	return frame.Summary(left), nil
}

// ofSIG reports whether a CRD is one of the SIG Multicluster, which others may use, too.
func ofSIG(crd string) bool {
	return slices.Contains([]string{crdClusterProfiles, crdSIGPlacementDecisions}, crd)
}

// removeRolesOfAgents deletes what the registration controllers have made for the agents of all clusters; what they have made for one
// goes with it. While there are clusters, their agents need them.
func (c *Controller) removeRolesOfAgents(ctx context.Context, hub *apply.Cluster) error {
	if c.skipRemoveCRDs {
		return nil
	}
	for _, name := range []string{fleet.ClusterRoleRegistration, fleet.ClusterRoleWork} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := hub.Client.Delete(ctx, role); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ClusterRole %s: %w", name, err)
		}
	}
	return nil
}

// remaining says which objects of a CRD that is deleted are still there, and the finalizers of the first; as far as the API server lists
// them.
func remaining(ctx context.Context, hub *apply.Cluster, crd string, kind schema.GroupVersionKind) string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := hub.Client.List(ctx, list, client.Limit(maxRemaining)); err != nil || len(list.Items) == 0 {
		return "CustomResourceDefinition " + crd
	}
	blocked := make([]string, 0, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		name := strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/") // clusters have no namespace
		blocked = append(blocked, fmt.Sprintf("%s (finalizers: %s)", name, strings.Join(o.Finalizers, ", ")))
	}
	text := fmt.Sprintf("%ss %s", kind.Kind, strings.Join(blocked, "; "))
	if more := ptr.Deref(list.RemainingItemCount, 0); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// maxRemaining is how many objects a message names.
const maxRemaining = 5
