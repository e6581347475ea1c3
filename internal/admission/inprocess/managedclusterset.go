package inprocess

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var clusterSets = clusterv1beta2.GroupVersion.WithResource("managedclustersets").GroupResource()

// setValidator warns of ManagedClusterSets without members, and of the deletion of those that are in use. It refuses nothing.
type setValidator struct {
	*admission.Handler
	client kubernetes.Interface
}

var (
	_ admission.ValidationInterface          = (*setValidator)(nil)
	_ initializer.WantsExternalKubeClientSet = (*setValidator)(nil)
)

func newSetValidator() *setValidator {
	return &setValidator{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// SetExternalKubeClientSet is called by the server.
func (p *setValidator) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.client = client
}

// ValidateInitialization is called by the server before the first request.
func (p *setValidator) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("the plugin needs a client to read bindings: add an initializer that sets it")
	}
	return nil
}

// Validate is called by the server.
func (p *setValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, clusterSets) {
		return nil
	}
	if request.GetOperation() == admission.Delete {
		warn(ctx, p.deletionWarnings(ctx, request.GetOldObject()))
		return nil
	}
	set, old, err := decodeBoth[clusterv1beta2.ManagedClusterSet](request)
	if err != nil {
		return err
	}
	warn(ctx, rules.ManagedClusterSetWarnings(set, old))
	return nil
}

// deletionWarnings are none for a set that is being deleted already.
func (p *setValidator) deletionWarnings(ctx context.Context, object runtime.Object) []string {
	raw, ok := object.(*unstructured.Unstructured)
	if !ok || raw.GetDeletionTimestamp() != nil {
		return nil
	}
	set := &clusterv1beta2.ManagedClusterSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, set); err != nil {
		return nil // whoever deletes what cannot be read knows why
	}
	namespaces, err := p.boundTo(ctx, set.Name)
	warnings := rules.ManagedClusterSetDeletionWarnings(set, namespaces)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("ManagedClusterSet %s may be bound to namespaces, which could not be read: %v", set.Name, err))
	}
	return warnings
}

// boundTo returns the namespaces with a binding to a set, which has its name. It reads them from the API server's cache, once for each set
// that is deleted.
func (p *setValidator) boundTo(ctx context.Context, set string) ([]string, error) {
	raw, err := p.client.CoreV1().RESTClient().Get().AbsPath("/apis", clusterv1beta2.GroupVersion.Group, clusterv1beta2.GroupVersion.Version,
		setBindings.Resource).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		VersionedParams(&metav1.ListOptions{FieldSelector: "metadata.name=" + set, ResourceVersion: "0"}, scheme.ParameterCodec).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	bindings := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(raw, bindings); err != nil {
		return nil, err
	}
	namespaces := make([]string, len(bindings.Items))
	for i := range bindings.Items {
		namespaces[i] = bindings.Items[i].Namespace
	}
	return namespaces, nil
}
