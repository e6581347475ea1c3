package inprocess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var managedClusters = clusterv1.GroupVersion.WithResource("managedclusters").GroupResource()

// clusterMutator completes ManagedClusters.
type clusterMutator struct {
	*admission.Handler
	identifying
	Options
}

var _ admission.MutationInterface = (*clusterMutator)(nil)

func newClusterMutator(opts Options) *clusterMutator {
	return &clusterMutator{Handler: writes(), identifying: newIdentifying(opts), Options: opts}
}

// Admit is called by the server.
func (p *clusterMutator) Admit(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, managedClusters) {
		return nil
	}
	cluster, old, err := decodeBoth[clusterv1.ManagedCluster](request)
	if err != nil {
		// The schema, which the server checks later, reports better what is wrong, and the validating plugin refuses what the schema
		// accepts and it cannot read.
		return nil //nolint:nilerr // another check reports it
	}
	before := cluster.DeepCopy()
	options := rules.MutateOptions{Now: p.Clock.Now(), Taint: p.Taint, Finalizer: p.Finalizer, DefaultClusterSet: p.DefaultClusterSet,
		BindCredentials: p.BindCredentials}
	// On a reinvocation, after a webhook has changed the object, it is no longer what the sender sent.
	if who := request.GetUserInfo(); !request.GetReinvocationContext().IsReinvoke() {
		switch {
		case fleet.IsJoining(who.GetName(), who.GetGroups()):
			options.Requester, options.Credential = who.GetName(), credentialOf(who.GetExtra())
		case old == nil && who.GetName() == p.grpcServer:
			options.Requester = rules.ForwardedRequester(cluster, who.GetName())
		}
		options.Agent = fleet.IsAgentOn(cluster.Name, who.GetName(), who.GetGroups())
	}
	if err := rules.MutateManagedCluster(cluster, old, options); err != nil {
		return err
	}
	return writeMutation(request.GetObject(), before, cluster)
}

// writeMutation applies the changes of the rules to the object of the request, and leaves everything else as it was sent.
func writeMutation(target runtime.Object, before, after *clusterv1.ManagedCluster) error {
	object, ok := target.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the object under admission is a %T, not unstructured", target)
	}
	had := len(before.Spec.Taints)
	for _, taint := range after.Spec.Taints[had:] {
		if err := addTaint(object, taint); err != nil {
			return err
		}
	}
	for i := range had {
		if added := after.Spec.Taints[i].TimeAdded; !added.Equal(&before.Spec.Taints[i].TimeAdded) {
			if err := setTimeAdded(object, i, added); err != nil {
				return err
			}
		}
	}
	if !slices.Equal(before.Finalizers, after.Finalizers) {
		object.SetFinalizers(after.Finalizers)
	}
	if !maps.Equal(before.Labels, after.Labels) {
		object.SetLabels(after.Labels)
	}
	if !maps.Equal(before.Annotations, after.Annotations) {
		object.SetAnnotations(after.Annotations)
	}
	return nil
}

func addTaint(object *unstructured.Unstructured, taint clusterv1.Taint) error {
	added, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&taint)
	if err != nil {
		return fmt.Errorf("taint ManagedCluster %q: %w", object.GetName(), err)
	}
	taints, _, _ := unstructured.NestedSlice(object.Object, "spec", "taints")
	// Where spec is no object, there is nothing to taint: the schema, which the server checks later, refuses that.
	_ = unstructured.SetNestedSlice(object.Object, append(taints, added), "spec", "taints")
	return nil
}

func setTimeAdded(object *unstructured.Unstructured, index int, added metav1.Time) error {
	taints, _, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "taints")
	if err != nil {
		return fmt.Errorf("stamp the taints of ManagedCluster %q: %w", object.GetName(), err)
	}
	if list, ok := taints.([]any); ok && index < len(list) {
		if taint, ok := list[index].(map[string]any); ok {
			taint["timeAdded"] = added.ToUnstructured()
		}
	}
	return nil
}

// clusterValidator checks ManagedClusters.
type clusterValidator struct {
	*admission.Handler
	authorizing
	client     kubernetes.Interface
	namespaces cache.SharedIndexInformer // nil where the server has none
	pending    pendingClusters
	Options
}

var (
	_ admission.ValidationInterface                = (*clusterValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer     = (*clusterValidator)(nil)
	_ initializer.WantsExternalKubeClientSet       = (*clusterValidator)(nil)
	_ initializer.WantsExternalKubeInformerFactory = (*clusterValidator)(nil)
	_ initializer.WantsDynamicClient               = (*clusterValidator)(nil)
	_ initializer.WantsDrainedNotification         = (*clusterValidator)(nil)
)

func newClusterValidator(opts Options) *clusterValidator {
	return &clusterValidator{Handler: writes(), authorizing: newAuthorizing(opts), Options: opts}
}

// SetDynamicClient is called by a server that lets the plugin count pending clusters, as a standalone hub does.
func (p *clusterValidator) SetDynamicClient(client dynamic.Interface) {
	p.pending.client = client
}

// SetDrainedNotification is called by the server. The count ends when stopped is closed.
func (p *clusterValidator) SetDrainedNotification(stopped <-chan struct{}) {
	p.pending.stopped = stopped
}

// SetExternalKubeClientSet is called by the server.
func (p *clusterValidator) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.client = client
}

// SetExternalKubeInformerFactory is called by a server that has informers, as a standalone hub does.
func (p *clusterValidator) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	p.namespaces = factory.Core().V1().Namespaces().Informer()
}

// ValidateInitialization is called by the server before the first request.
func (p *clusterValidator) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("the plugin needs a client to read namespaces: add an initializer that sets it")
	}
	return p.authorizing.ValidateInitialization()
}

// Validate is called by the server.
func (p *clusterValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	sender := p.sender(request)
	if request.GetSubresource() == "status" && request.GetResource().GroupResource() == managedClusters {
		return validateStatus(request, sender)
	}
	if !isAbout(request, managedClusters) {
		return nil
	}
	cluster, old, err := decodeBoth[clusterv1.ManagedCluster](request)
	if err != nil {
		return err
	}
	if old == nil && sender.Joining {
		// This comes first: a fleet that joins tries again and again, and the rest reads the storage.
		if err := p.validateCount(ctx, sender); err != nil {
			return err
		}
	}
	return rules.ValidateManagedCluster(ctx, cluster, old, sender,
		rules.ValidateOptions{Namespaces: p.namespace, DefaultClusterSet: p.DefaultClusterSet})
}

func (p *clusterValidator) validateCount(ctx context.Context, sender rules.Sender) error {
	if p.pending.client == nil {
		return nil
	}
	pending, err := p.pending.count(ctx, sender)
	if err != nil {
		return err
	}
	return rules.ValidateClusterCount(sender, pending, p.JoinLimit)
}

func validateStatus(request admission.Attributes, sender rules.Sender) error {
	cluster, ok := request.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	old, _ := request.GetOldObject().(*unstructured.Unstructured)
	return rules.ValidateManagedClusterStatus(cluster, old, sender)
}

// namespace reads the namespace from the API server if the cache has it: what matters is whether it has just started to terminate. That the
// cache has none is enough, as it is for most clusters that join: one that is created at this moment may as well be created a moment later.
func (p *clusterValidator) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if p.namespaces != nil && p.namespaces.HasSynced() {
		if _, known, err := p.namespaces.GetIndexer().GetByKey(name); err == nil && !known {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
	}
	return p.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}
