package inprocess

import (
	"context"
	"errors"
	"fmt"
	"maps"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// writes returns a handler of the operations that rules check. Deletions are always allowed.
func writes() *admission.Handler {
	return admission.NewHandler(admission.Create, admission.Update)
}

// isAbout reports whether a request writes objects of this resource, in any version. The status and other subresources are not checked.
func isAbout(request admission.Attributes, resource schema.GroupResource) bool {
	return request.GetSubresource() == "" && request.GetResource().GroupResource() == resource
}

// replaced returns the metadata of the object that an update replaces, and nil for a creation.
func replaced(request admission.Attributes) (metav1.Object, error) {
	if request.GetOldObject() == nil {
		return nil, nil
	}
	old, err := meta.Accessor(request.GetOldObject())
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the %s that is replaced: %w", request.GetResource().Resource, err)
	}
	return old, nil
}

// authorizing is a plugin that uses the server's authorizer.
type authorizing struct {
	identifying
	authorizer authorizer.UnconditionalAuthorizer
}

func newAuthorizing(opts Options) authorizing { return authorizing{identifying: newIdentifying(opts)} }

// SetUnconditionalAuthorizer is called by the server.
func (p *authorizing) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	p.authorizer = a
}

// ValidateInitialization is called by the server before the first request.
func (p *authorizing) ValidateInitialization() error {
	if p.authorizer == nil {
		return errors.New("the plugin needs an authorizer: add an initializer that sets it")
	}
	return nil
}

// identify returns the sender of a request, for rules that need no authorizer. For what the gRPC server of the hub writes, that is for whom
// it does so.
func (p *identifying) identify(request admission.Attributes) rules.Sender {
	who := p.author(request)
	return rules.Sender{
		Name:       who.GetName(),
		Groups:     who.GetGroups(),
		Credential: credentialOf(who.GetExtra()),
		Clusters:   fleet.AgentClusters(who.GetGroups()),
		Behind:     fleet.ClustersBehind(who.GetName(), who.GetGroups()),
		Joining:    fleet.IsJoining(who.GetName(), who.GetGroups()),
	}
}

// credentialOf returns the ID of a user's credential, as the API server records it; empty for a user without one.
func credentialOf[V ~[]string](extra map[string]V) string {
	if ids := extra[user.CredentialIDKey]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// sender binds the server's authorizer to the identity of a request. Rights are those of who sends it, the gRPC server as well.
func (p *authorizing) sender(request admission.Attributes) rules.Sender {
	sender, who := p.identify(request), request.GetUserInfo()
	sender.Authorize = func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, string, error) {
		decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User:            who,
			Verb:            attributes.Verb,
			Namespace:       attributes.Namespace,
			APIGroup:        attributes.Group,
			APIVersion:      "*",
			Resource:        attributes.Resource,
			Subresource:     attributes.Subresource,
			Name:            attributes.Name,
			ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			return true, reason, nil
		}
		return false, reason, err
	}
	return sender
}

// decode reads the object of a request, which the server holds as it was sent, into a type of the hub; nil stays nil. It omits the
// status: a write to the object itself does not store it, so it must not cause an error here.
func decode[T any](object runtime.Object) (*T, error) {
	if object == nil {
		return nil, nil
	}
	raw, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the object under admission is a %T, not unstructured", object))
	}
	content := maps.Clone(raw.Object)
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields") // Large, and no rule reads them.
		content["metadata"] = metadata
	}
	decoded := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, decoded); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s %q cannot be read: %v", raw.GetKind(), raw.GetName(), err))
	}
	return decoded, nil
}

// decodeBoth reads the object and, on an update, the one it replaces.
func decodeBoth[T any](request admission.Attributes) (object, old *T, err error) {
	if object, err = decode[T](request.GetObject()); err != nil {
		return nil, nil, err
	}
	if request.GetOperation() == admission.Update {
		old, err = decode[T](request.GetOldObject())
	}
	return object, old, err
}
