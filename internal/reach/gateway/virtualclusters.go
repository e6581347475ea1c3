package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

const resourceVirtualClusters = "virtualclusters"

var (
	clusterGateways = gatewayv1alpha1.GroupVersion.WithResource(resource)
	managedClusters = clusterv1.GroupVersion.WithResource(fleet.ResourceManagedClusters)
)

// virtualClusters shows ClusterGateways and ManagedClusters of the same name as one. Whoever may read VirtualClusters sees of the two what
// they may read themselves.
type virtualClusters struct {
	*Gateway
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ rest.Storage              = &virtualClusters{}
	_ rest.Scoper               = &virtualClusters{}
	_ rest.SingularNameProvider = &virtualClusters{}
	_ rest.Getter               = &virtualClusters{}
	_ rest.Lister               = &virtualClusters{}
)

// New implements rest.Storage.
func (*virtualClusters) New() runtime.Object { return &gatewayv1alpha1.VirtualCluster{} }

// Destroy implements rest.Storage.
func (*virtualClusters) Destroy() {}

// NewList implements rest.Lister.
func (*virtualClusters) NewList() runtime.Object { return &gatewayv1alpha1.VirtualClusterList{} }

// NamespaceScoped implements rest.Scoper.
func (*virtualClusters) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*virtualClusters) GetSingularName() string { return "virtualcluster" }

// Get implements rest.Getter.
func (s *virtualClusters) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	found, err := s.read(ctx, "get", name)
	if err != nil {
		return nil, err
	}
	if found[name] == nil {
		return nil, apierrors.NewNotFound(gatewayv1alpha1.GroupVersion.WithResource(resourceVirtualClusters).GroupResource(), name)
	}
	return found[name], nil
}

// List implements rest.Lister.
func (s *virtualClusters) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	found, err := s.read(ctx, "list", "")
	if err != nil {
		return nil, err
	}
	selector, field := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		selector = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		field = options.FieldSelector
	}
	for _, requirement := range field.Requirements() {
		if requirement.Field != metav1.ObjectNameField {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %q is no field that VirtualClusters are selected by; use %s",
				requirement.Field, metav1.ObjectNameField))
		}
	}
	list := &gatewayv1alpha1.VirtualClusterList{Items: []gatewayv1alpha1.VirtualCluster{}}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if selector.Matches(labels.Set(found[name].Labels)) && field.Matches(fields.Set{metav1.ObjectNameField: name}) {
			list.Items = append(list.Items, *found[name])
		}
	}
	return list, nil
}

// read returns the clusters that the caller may see, or the one with a name.
func (s *virtualClusters) read(ctx context.Context, verb, name string) (map[string]*gatewayv1alpha1.VirtualCluster, error) {
	backend, err := s.backend()
	if err != nil {
		return nil, err
	}
	found := map[string]*gatewayv1alpha1.VirtualCluster{}
	if !s.WithoutControlPlane && (name == "" || name == gatewayv1alpha1.ControlPlaneName) {
		found[gatewayv1alpha1.ControlPlaneName] = controlPlane()
	}
	if may, err := s.may(ctx, verb, managedClusters, name); err != nil {
		return nil, err
	} else if may {
		clusters, err := backend.clusters(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range clusters {
			found[clusters[i].Name] = ofManagedCluster(&clusters[i])
		}
	}
	may, err := s.may(ctx, verb, clusterGateways, name)
	if err != nil || !may {
		return found, err
	}
	secrets, err := backend.secrets.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, secret := range secrets {
		if name == "" || secret.Name == name {
			found[secret.Name] = withGateway(found[secret.Name], secret)
		}
	}
	return found, nil
}

// may checks whether the caller may read one of the resources that VirtualClusters are made of.
func (s *virtualClusters) may(ctx context.Context, verb string, of schema.GroupVersionResource, name string) (bool, error) {
	caller, known := request.UserFrom(ctx)
	if !known {
		return false, apierrors.NewInternalError(errors.New("the API server does not say whose request it is"))
	}
	decision, _, err := s.authorizer.Authorize(ctx, authorizer.AttributesRecord{User: caller, Verb: verb, APIGroup: of.Group,
		APIVersion: of.Version, Resource: of.Resource, Name: name, ResourceRequest: true})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	return false, err
}

// readManagedClusters reads those of the hub, or the one with a name. A hub may have none.
func readManagedClusters(ctx context.Context, client kubernetes.Interface, name string) ([]clusterv1.ManagedCluster, error) {
	path := []string{"/apis", managedClusters.Group, managedClusters.Version, managedClusters.Resource}
	if name != "" {
		path = append(path, name)
	}
	text, err := client.Discovery().RESTClient().Get().AbsPath(path...).SetHeader("Accept", "application/json").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ManagedClusters: %w", err)
	}
	if name == "" {
		list := clusterv1.ManagedClusterList{}
		err := json.Unmarshal(text, &list)
		return list.Items, err
	}
	one := make([]clusterv1.ManagedCluster, 1)
	return one, json.Unmarshal(text, &one[0])
}

// controlPlane is the hub itself.
func controlPlane() *gatewayv1alpha1.VirtualCluster {
	shown := newVirtualCluster(&metav1.ObjectMeta{Name: gatewayv1alpha1.ControlPlaneName,
		Labels: map[string]string{gatewayv1alpha1.LabelControlPlane: fleet.LabelTrue}})
	shown.Spec.Accepted, shown.Spec.CredentialType = true, gatewayv1alpha1.CredentialInternal
	return shown
}

// newVirtualCluster has what is shown of the metadata of a Secret or a ManagedCluster. It has no version: there are two objects behind it.
func newVirtualCluster(of *metav1.ObjectMeta) *gatewayv1alpha1.VirtualCluster {
	shown := &gatewayv1alpha1.VirtualCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1alpha1.GroupVersion.String(), Kind: "VirtualCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: of.Name, UID: of.UID, Labels: maps.Clone(of.Labels), CreationTimestamp: of.CreationTimestamp,
			DeletionTimestamp: of.DeletionTimestamp},
	}
	shown.Spec.Alias = of.Annotations[gatewayv1alpha1.AnnotationAlias]
	return shown
}

func ofManagedCluster(cluster *clusterv1.ManagedCluster) *gatewayv1alpha1.VirtualCluster {
	shown := newVirtualCluster(&cluster.ObjectMeta)
	shown.Spec.Accepted, shown.Spec.CredentialType = cluster.Spec.HubAcceptsClient, gatewayv1alpha1.CredentialManagedCluster
	if clients := cluster.Spec.ManagedClusterClientConfigs; len(clients) > 0 {
		shown.Spec.Endpoint = clients[0].URL
	}
	return shown
}

// withGateway adds what a Secret says about how a cluster is reached, which goes before what its ManagedCluster says.
func withGateway(cluster *gatewayv1alpha1.VirtualCluster, secret *corev1.Secret) *gatewayv1alpha1.VirtualCluster {
	shown := newVirtualCluster(&secret.ObjectMeta)
	access := clustersecret.Gateway(secret).Spec.Access
	shown.Spec.Accepted, shown.Spec.CredentialType = true, access.Credential.Type
	if access.Endpoint.Const != nil {
		shown.Spec.Endpoint = access.Endpoint.Const.Address
	}
	if cluster == nil {
		return shown
	}
	shown.UID, shown.CreationTimestamp, shown.DeletionTimestamp = cluster.UID, cluster.CreationTimestamp, cluster.DeletionTimestamp
	shown.Spec.Accepted = cluster.Spec.Accepted
	shown.Spec.Alias = cmp.Or(shown.Spec.Alias, cluster.Spec.Alias)
	shown.Spec.Endpoint = cmp.Or(shown.Spec.Endpoint, cluster.Spec.Endpoint)
	merged := maps.Clone(cluster.Labels)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, shown.Labels)
	shown.Labels = merged
	return shown
}

// ConvertToTable implements rest.TableConvertor.
func (*virtualClusters) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the cluster"},
		{Name: "Alias", Type: "string", Description: "Its name for people"},
		{Name: "Credential-Type", Type: "string", Description: "How the hub shows the cluster who it is"},
		{Name: "Endpoint", Type: "string", Description: "Where the API server of the cluster is"},
		{Name: "Accepted", Type: "boolean", Description: "Whether the hub deals with the cluster"},
	}}
	add := func(object runtime.Object) error {
		one, ok := object.(*gatewayv1alpha1.VirtualCluster)
		if !ok {
			return fmt.Errorf("%T is no VirtualCluster", object)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: one},
			Cells: []any{one.Name, one.Spec.Alias, string(one.Spec.CredentialType), one.Spec.Endpoint, one.Spec.Accepted}})
		return nil
	}
	if meta.IsListType(object) {
		return table, meta.EachListItem(object, add)
	}
	return table, add(object)
}
