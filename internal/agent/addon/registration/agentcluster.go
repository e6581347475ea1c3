package registration

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/agent/addon/single"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// agentCluster is a cluster on which agents of add-ons run.
type agentCluster struct {
	name    string
	client  client.Client // without a cache
	watched *single.Objects[*corev1.Secret]
}

func newAgentCluster(name string, config *rest.Config) (*agentCluster, error) {
	uncached, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster of the Secrets of add-ons: %w", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Secrets of add-ons: %w", err)
	}
	return &agentCluster{name: name, client: uncached, watched: single.New(core.RESTClient(), "secrets", &corev1.Secret{})}, nil
}

// save writes the data to a Secret, of the names in the data and in gone no others, and makes its namespace if there is none.
// It writes nothing if the Secret does so already.
func (a *agentCluster) save(ctx context.Context, key client.ObjectKey, marks metav1.ObjectMeta, data map[string][]byte,
	gone ...string) error {
	secret := &corev1.Secret{}
	err := a.client.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		secret.Namespace, secret.Name = key.Namespace, key.Name
		secret.Labels, secret.Annotations, secret.Data = marks.Labels, marks.Annotations, data
		return a.create(ctx, secret)
	case err != nil:
		return fmt.Errorf("get Secret %s: %w", key, err)
	}
	before := secret.DeepCopy()
	fill(&secret.Labels, marks.Labels)
	fill(&secret.Annotations, marks.Annotations)
	fill(&secret.Data, data)
	for _, name := range gone {
		delete(secret.Data, name)
	}
	if equality.Semantic.DeepEqual(before, secret) {
		return nil
	}
	if err := a.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("update Secret %s: %w", key, err)
	}
	return nil
}

func fill[V any](into *map[string]V, from map[string]V) {
	if *into == nil {
		*into = map[string]V{}
	}
	maps.Copy(*into, from)
}

// create makes the namespace, too, where an add-on's own manifests have not made it yet: they may well wait for the Secret.
func (a *agentCluster) create(ctx context.Context, secret *corev1.Secret) error {
	key := client.ObjectKeyFromObject(secret)
	err := a.client.Create(ctx, secret.DeepCopy())
	if apierrors.IsNotFound(err) {
		if err := a.ensureNamespace(ctx, key.Namespace); err != nil {
			return err
		}
		err = a.client.Create(ctx, secret.DeepCopy())
	}
	if err != nil {
		return fmt.Errorf("create Secret %s: %w", key, err)
	}
	return nil
}

// ensureNamespace makes a namespace for agents of add-ons, with the label of such, unless it exists. One that is being
// deleted has to go before it can be created. Where the agent may not read namespaces, it takes an existing one to stay.
func (a *agentCluster) ensureNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{fleet.LabelAddOnAgentNamespace: fleet.LabelTrue}}}
	err := a.client.Create(ctx, namespace)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Namespace %s for agents of add-ons: %w", name, err)
	}
	there := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	err = a.client.Get(ctx, client.ObjectKey{Name: name}, there)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Namespace %s for agents of add-ons: %w", name, err)
	case !there.DeletionTimestamp.IsZero():
		return fmt.Errorf("the Namespace %s for agents of add-ons is being deleted; it is created again when it has gone", name)
	}
	return nil
}

// remove deletes a Secret if it is marked as one that the agent keeps.
func (a *agentCluster) remove(ctx context.Context, key client.ObjectKey, marks metav1.ObjectMeta) error {
	secret := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
	if err := a.client.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get Secret %s: %w", key, err)
	}
	for name, value := range marks.Labels {
		if secret.Labels[name] != value {
			return nil
		}
	}
	if secret.Annotations[fleet.AnnotationHubHash] != marks.Annotations[fleet.AnnotationHubHash] {
		return nil
	}
	err := a.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Secret %s: %w", key, err)
	}
	return nil
}

// marksOf are the marks of a Secret together with what reports whether its credential is still the desired one.
func (c *Controller) marksOf(w *desiredSecret) metav1.ObjectMeta {
	marks := c.marks(w.addOn, w.cluster)
	marks.Annotations[fleet.AnnotationHubID] = w.hubID
	if w.request != nil {
		marks.Annotations[fleet.AnnotationRequestedSubject] = text(w.request.Subject)
	}
	return marks
}

// text is the same for equal subjects.
func text(subject pkix.Name) string {
	return pkix.Name{
		CommonName: subject.CommonName, Organization: slices.Sorted(slices.Values(subject.Organization)),
		OrganizationalUnit: slices.Sorted(slices.Values(subject.OrganizationalUnit)),
	}.String()
}

// checkHub fails if a Secret holds a credential of another hub. One that does not say so is of the hub with its address.
func (c *Controller) checkHub(w *desiredSecret, secret *corev1.Secret) error {
	id, recorded := secret.Annotations[fleet.AnnotationHubID]
	hash, known := secret.Annotations[fleet.AnnotationHubHash]
	if recorded && id != w.hubID || !recorded && known && hash != c.HubHash {
		return errOtherHub
	}
	return nil
}

var errOtherHub = errors.New("the credential is of another hub, or of the one that had the address before")

// marks are what distinguishes the Secrets of an add-on from all others, of other clusters and hubs among them.
func (c *Controller) marks(addOn, cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Labels: map[string]string{
			fleet.LabelAddOnName: addOn, fleet.LabelClusterName: c.Identity.Cluster, fleet.LabelAddOnCredential: cluster,
		},
		Annotations: map[string]string{fleet.AnnotationHubHash: c.HubHash},
	}
}
