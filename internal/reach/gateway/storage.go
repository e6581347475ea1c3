package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

// gateways shows Secrets as ClusterGateways. It reads them from the API server as each request says, so that versions, pages, bookmarks and
// watches are those of Secrets.
type gateways struct{ *Gateway }

var (
	_ rest.Storage              = &gateways{}
	_ rest.Scoper               = &gateways{}
	_ rest.SingularNameProvider = &gateways{}
	_ rest.Getter               = &gateways{}
	_ rest.Lister               = &gateways{}
	_ rest.Watcher              = &gateways{}
)

// New implements rest.Storage.
func (*gateways) New() runtime.Object { return &gatewayv1alpha1.ClusterGateway{} }

// Destroy implements rest.Storage.
func (*gateways) Destroy() {}

// NewList implements rest.Lister.
func (*gateways) NewList() runtime.Object { return &gatewayv1alpha1.ClusterGatewayList{} }

// NamespaceScoped implements rest.Scoper.
func (*gateways) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*gateways) GetSingularName() string { return "clustergateway" }

// Get implements rest.Getter.
func (s *gateways) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	secret, err := s.secret(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return clustersecret.Gateway(secret), nil
}

// secret reads a Secret from the API server.
func (g *Gateway) secret(ctx context.Context, name string, options *metav1.GetOptions) (*corev1.Secret, error) {
	backend, err := g.backend()
	if err != nil {
		return nil, err
	}
	secret, err := backend.client.CoreV1().Secrets(g.Namespace).Get(ctx, name, *options)
	if apierrors.IsNotFound(err) || err == nil && !isGateway(secret) {
		return nil, g.notFound(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", g.Namespace, name, err)
	}
	return secret, nil
}

func isGateway(secret *corev1.Secret) bool {
	_, labelled := secret.Labels[gatewayv1alpha1.LabelCredentialType]
	return labelled
}

// List implements rest.Lister.
func (s *gateways) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	backend, err := s.backend()
	if err != nil {
		return nil, err
	}
	of, err := ofSecrets(options)
	if err != nil {
		return nil, err
	}
	secrets, err := backend.client.CoreV1().Secrets(s.Namespace).List(ctx, of)
	if err != nil {
		return nil, err
	}
	list := &gatewayv1alpha1.ClusterGatewayList{ListMeta: secrets.ListMeta, Items: []gatewayv1alpha1.ClusterGateway{}}
	for i := range secrets.Items {
		list.Items = append(list.Items, *clustersecret.Gateway(&secrets.Items[i]))
	}
	return list, nil
}

// Watch implements rest.Watcher.
func (s *gateways) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	backend, err := s.backend()
	if err != nil {
		return nil, err
	}
	of, err := ofSecrets(options)
	if err != nil {
		return nil, err
	}
	secrets, err := backend.client.CoreV1().Secrets(s.Namespace).Watch(ctx, of)
	if err != nil {
		return nil, err
	}
	return newGatewayWatch(secrets), nil
}

// ofSecrets are options for Secrets.
func ofSecrets(options *metainternalversion.ListOptions) (metav1.ListOptions, error) {
	is, err := labels.NewRequirement(gatewayv1alpha1.LabelCredentialType, selection.Exists, nil)
	if err != nil {
		return metav1.ListOptions{}, err
	}
	selector := labels.Everything()
	if options.LabelSelector != nil {
		selector = options.LabelSelector
	}
	of := metav1.ListOptions{
		LabelSelector: selector.Add(*is).String(), Watch: options.Watch, AllowWatchBookmarks: options.AllowWatchBookmarks,
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, TimeoutSeconds: options.TimeoutSeconds,
		Limit: options.Limit, Continue: options.Continue, SendInitialEvents: options.SendInitialEvents,
	}
	if options.FieldSelector == nil {
		return of, nil
	}
	for _, requirement := range options.FieldSelector.Requirements() {
		if requirement.Field != metav1.ObjectNameField {
			return of, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %q is no field that ClusterGateways are selected by; use %s",
				requirement.Field, metav1.ObjectNameField))
		}
	}
	of.FieldSelector = options.FieldSelector.String()
	return of, nil
}

// ConvertToTable implements rest.TableConvertor.
func (*gateways) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the cluster"},
		{Name: "Provider", Type: "string", Description: "Provider of the cluster"},
		{Name: "Credential-Type", Type: "string", Description: "How the hub shows the cluster who it is"},
		{Name: "Endpoint-Type", Type: "string", Description: "How the hub reaches the cluster"},
		{Name: "Healthy", Type: "boolean", Priority: 1, Description: "Whether the API server of the cluster answers"},
		{Name: "Reason", Type: "string", Priority: 1, Description: "Why it does not, or what else there is to know"},
	}}
	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion, table.Continue, table.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(),
			list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = one.GetResourceVersion()
	}
	add := func(object runtime.Object) error {
		one, ok := object.(*gatewayv1alpha1.ClusterGateway)
		if !ok {
			return fmt.Errorf("%T is no ClusterGateway", object)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: one}, Cells: []any{
			one.Name, one.Spec.Provider, string(one.Spec.Access.Credential.Type), string(one.Spec.Access.Endpoint.Type),
			one.Status.Healthy, one.Status.HealthyReason,
		}})
		return nil
	}
	if meta.IsListType(object) {
		return table, meta.EachListItem(object, add)
	}
	return table, add(object)
}

// health is how clusters are doing, which is in annotations of the Secrets.
type health struct{ *Gateway }

var _ rest.Patcher = &health{}

// New implements rest.Storage.
func (*health) New() runtime.Object { return &gatewayv1alpha1.ClusterGateway{} }

// Destroy implements rest.Storage.
func (*health) Destroy() {}

// Get implements rest.Getter.
func (s *health) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return (&gateways{s.Gateway}).Get(ctx, name, options)
}

// Update implements rest.Updater. It takes nothing but the status.
func (s *health) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	secret, err := s.secret(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	before := clustersecret.Gateway(secret)
	after, err := info.UpdatedObject(ctx, before)
	if err != nil {
		return nil, false, err
	}
	if err := validate(ctx, after, before); err != nil {
		return nil, false, err
	}
	updated, ok := after.(*gatewayv1alpha1.ClusterGateway)
	if !ok {
		return nil, false, fmt.Errorf("%T is no ClusterGateway", after)
	}
	status := updated.Status
	patch, err := healthPatch(status, updated.UID, updated.ResourceVersion)
	if err != nil {
		return nil, false, err
	}
	backend, err := s.backend()
	if err != nil {
		return nil, false, err
	}
	written, err := backend.client.CoreV1().Secrets(s.Namespace).Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{DryRun: options.DryRun, FieldManager: options.FieldManager})
	if err != nil {
		return nil, false, err
	}
	return clustersecret.Gateway(written), false, nil
}

// healthPatch writes a status to the Secret with a UID, and a version, if these are given.
func healthPatch(status gatewayv1alpha1.ClusterGatewayStatus, uid types.UID, version string) ([]byte, error) {
	patch := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version, Annotations: map[string]string{
		gatewayv1alpha1.AnnotationHealthy:       strconv.FormatBool(status.Healthy),
		gatewayv1alpha1.AnnotationHealthyReason: status.HealthyReason,
	}}}
	return json.Marshal(patch)
}
