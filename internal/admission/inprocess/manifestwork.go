package inprocess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var manifestWorks = workv1.GroupVersion.WithResource("manifestworks").GroupResource()

// workValidator checks ManifestWorks, and whether their clusters take them.
type workValidator struct {
	*admission.Handler
	authorizing
	options rules.ManifestWorkOptions
	client  kubernetes.Interface
}

var (
	_ admission.ValidationInterface            = (*workValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*workValidator)(nil)
	_ initializer.WantsExternalKubeClientSet   = (*workValidator)(nil)
)

func newWorkValidator(opts Options) *workValidator {
	p := &workValidator{Handler: writes(), authorizing: newAuthorizing(opts), options: opts.ManifestWork}
	p.options.Clusters = p.cluster
	return p
}

// SetExternalKubeClientSet is called by the server.
func (p *workValidator) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.client = client
}

// ValidateInitialization is called by the server before the first request.
func (p *workValidator) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("the plugin needs a client to read clusters: add an initializer that sets it")
	}
	return p.authorizing.ValidateInitialization()
}

// Validate is called by the server.
func (p *workValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if request.GetResource().GroupResource() != manifestWorks {
		return nil
	}
	if err := p.validateAgentWrites(request); err != nil || request.GetSubresource() != "" || keepsSpec(request) {
		return err
	}
	work, old, err := decodeBoth[workv1.ManifestWork](request)
	if err != nil {
		return err
	}
	sender := p.sender(request)
	if err := rules.ValidateManifestWork(ctx, work, old, sender, p.options); err != nil {
		return err
	}
	if err := rules.ValidateManifestWorkSpec(work, old, sender); err != nil {
		return err
	}
	warn(ctx, rules.ManifestWorkWarnings(work, old))
	return nil
}

// warn has the API server send warnings to the client.
func warn(ctx context.Context, warnings []string) {
	for _, text := range warnings {
		warning.AddWarning(ctx, "", text)
	}
}

// validateAgentWrites checks what an agent changes of an existing work, apart from the spec.
func (p *workValidator) validateAgentWrites(request admission.Attributes) error {
	work, ok := request.GetObject().(*unstructured.Unstructured)
	old, updated := request.GetOldObject().(*unstructured.Unstructured)
	if !ok || !updated {
		return nil
	}
	sender := p.identify(request)
	switch request.GetSubresource() {
	case "":
		return rules.ValidateManifestWorkMetadata(work, old, sender)
	case "status":
		return rules.ValidateManifestWorkStatus(work, old, sender)
	}
	return nil
}

// cluster reads a ManagedCluster, from the API server's cache, once for each work that is created.
func (p *workValidator) cluster(ctx context.Context, name string, options metav1.GetOptions) (*clusterv1.ManagedCluster, error) {
	raw, err := p.client.CoreV1().RESTClient().Get().AbsPath("/apis", clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version,
		managedClusters.Resource, name).
		SetHeader("Accept", runtime.ContentTypeJSON).VersionedParams(&options, scheme.ParameterCodec).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	cluster := &clusterv1.ManagedCluster{}
	if err := json.Unmarshal(raw, cluster); err != nil {
		return nil, fmt.Errorf("read ManagedCluster %s: %w", name, err)
	}
	return cluster, nil
}

// keepsSpec reports whether an update leaves the spec alone, as changes of labels and finalizers do. The rules would accept it, too; this
// saves decoding up to a megabyte twice.
func keepsSpec(request admission.Attributes) bool {
	if request.GetOperation() != admission.Update {
		return false
	}
	object, ok := request.GetObject().(*unstructured.Unstructured)
	old, oldOK := request.GetOldObject().(*unstructured.Unstructured)
	return ok && oldOK && reflect.DeepEqual(object.Object["spec"], old.Object["spec"])
}

// keepsAnnotations reports whether an update leaves the annotations alone.
func keepsAnnotations(request admission.Attributes) bool {
	object, ok := request.GetObject().(*unstructured.Unstructured)
	old, oldOK := request.GetOldObject().(*unstructured.Unstructured)
	return ok && oldOK && maps.Equal(object.GetAnnotations(), old.GetAnnotations())
}
