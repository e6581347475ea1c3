// Package webhook serves the rules of package admission over HTTPS, for hubs in an existing cluster. It runs the plugins of the
// standalone hub, which here call the API server with SubjectAccessReviews instead of using its authorizer.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	reviewer "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/kubernetes"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

// paths are the paths of the plugins: those of Open Cluster Management, and similar ones for plugins that it has no webhook for. The plugin
// HubTypeValidating has no path of its own: it runs before each of the validating ones.
var paths = map[string]string{
	inprocess.ManagedClusterMutating:             "/mutate-cluster-open-cluster-management-io-v1-managedcluster",
	inprocess.ManagedClusterValidating:           "/validate-cluster-open-cluster-management-io-v1-managedcluster",
	inprocess.ManagedClusterSetValidating:        "/validate-cluster-open-cluster-management-io-v1beta2-managedclusterset",
	inprocess.ManagedClusterSetBindingValidating: "/validate-cluster-open-cluster-management-io-v1beta2-managedclustersetbinding",
	inprocess.PlacementValidating:                "/validate-cluster-open-cluster-management-io-v1beta1-placement",
	inprocess.ManifestWorkValidating:             "/validate-work-open-cluster-management-io-v1-manifestwork",
	inprocess.ManifestWorkReplicaSetValidating:   "/validate-work-open-cluster-management-io-v1alpha1-manifestworkreplicaset",
	inprocess.ClusterManagementAddOnValidating:   "/validate-addon-open-cluster-management-io-v1beta1-clustermanagementaddon",
	inprocess.ManagedClusterAddOnValidating:      "/validate-addon-open-cluster-management-io-v1beta1-managedclusteraddon",
	inprocess.AddOnTemplateValidating:            "/validate-addon-open-cluster-management-io-v1beta1-addontemplate",
	inprocess.AgentRequestValidating:             "/validate-certificates-k8s-io-v1-certificatesigningrequest",
	inprocess.AgentLeaseValidating:               "/validate-coordination-k8s-io-v1-lease",
	inprocess.AgentSecretValidating:              "/validate-v1-secret",
}

// Handlers returns the webhooks by their paths. They review access, and read namespaces, with the client.
func Handlers(client kubernetes.Interface, o inprocess.Options) (map[string]http.Handler, error) {
	access, err := newReviewer(client)
	if err != nil {
		return nil, err
	}
	handlers := map[string]http.Handler{}
	var readable admission.Interface
	for _, plugin := range inprocess.Plugins(o) {
		if paths[plugin.Name] == "" && plugin.Name != inprocess.HubTypeValidating {
			continue // works only in the API server
		}
		if wants, ok := plugin.Plugin.(initializer.WantsUnconditionalAuthorizer); ok {
			wants.SetUnconditionalAuthorizer(access)
		}
		if wants, ok := plugin.Plugin.(initializer.WantsExternalKubeClientSet); ok {
			wants.SetExternalKubeClientSet(client)
		}
		if err := admission.ValidateInitialization(plugin.Plugin); err != nil {
			return nil, fmt.Errorf("prepare the webhook %s: %w", plugin.Name, err)
		}
		switch mutating, ok := plugin.Plugin.(admission.MutationInterface); {
		case plugin.Name == inprocess.HubTypeValidating:
			readable = plugin.Plugin
		case ok:
			handlers[paths[plugin.Name]] = &ctrladmission.Webhook{Handler: mutator{mutating}}
		default:
			handlers[paths[plugin.Name]] = &ctrladmission.Webhook{Handler: validator{readable, plugin.Plugin}}
		}
	}
	return handlers, nil
}

// newReviewer returns an authorizer that calls the API server each time: permissions can change at any moment.
func newReviewer(client kubernetes.Interface) (authorizer.UnconditionalAuthorizer, error) {
	const noCache = 0
	access, err := reviewer.NewFromInterface(client.AuthorizationV1(), noCache, noCache, wait.Backoff{Steps: 1}, authorizer.DecisionDeny,
		metrics.NoopAuthorizerMetrics{}, authorizationcel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))
	if err != nil {
		return nil, fmt.Errorf("prepare access reviews: %w", err)
	}
	return access, nil
}

// mutator serves a mutating plugin.
type mutator struct{ plugin admission.MutationInterface }

// Handle implements controller-runtime's admission.Handler.
func (m mutator) Handle(ctx context.Context, request ctrladmission.Request) ctrladmission.Response {
	attributes, err := attributesOf(request)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	if !m.plugin.Handles(attributes.GetOperation()) {
		return ctrladmission.Allowed("")
	}
	if err := m.plugin.Admit(ctx, attributes, nil); err != nil {
		return denied(err)
	}
	changed, err := json.Marshal(attributes.GetObject())
	if err != nil {
		return ctrladmission.Errored(http.StatusInternalServerError, err)
	}
	return ctrladmission.PatchResponseFromRaw(request.Object.Raw, changed)
}

// validator serves validating plugins.
type validator []admission.Interface

// Handle implements controller-runtime's admission.Handler.
func (v validator) Handle(ctx context.Context, request ctrladmission.Request) ctrladmission.Response {
	attributes, err := attributesOf(request)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	var recorded warnings
	ctx = warning.WithWarningRecorder(ctx, &recorded)
	for _, plugin := range v {
		validating, ok := plugin.(admission.ValidationInterface)
		if !ok || !plugin.Handles(attributes.GetOperation()) {
			continue
		}
		if err := validating.Validate(ctx, attributes, nil); err != nil {
			return denied(err)
		}
	}
	return ctrladmission.Allowed("").WithWarnings(recorded...)
}

// warnings are those of the plugins, which the API server hands on to the client.
type warnings []string

// AddWarning implements the recorder of the API server.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// denied returns the status of a rule unchanged.
func denied(err error) ctrladmission.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ctrladmission.Errored(http.StatusInternalServerError, err)
	}
	result := status.Status()
	return ctrladmission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &result}}
}

func attributesOf(r ctrladmission.Request) (admission.Attributes, error) {
	object, err := decode(r.Object)
	if err != nil {
		return nil, fmt.Errorf("read the object of the review: %w", err)
	}
	old, err := decode(r.OldObject)
	if err != nil {
		return nil, fmt.Errorf("read the old object of the review: %w", err)
	}
	return admission.NewAttributesRecord(object, old, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), nil, r.DryRun != nil && *r.DryRun,
		userOf(r.UserInfo)), nil
}

// decode returns nil if there is no object.
func decode(raw runtime.RawExtension) (runtime.Object, error) {
	if len(raw.Raw) == 0 {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw.Raw); err != nil {
		return nil, err
	}
	return object, nil
}

func userOf(info authenticationv1.UserInfo) user.Info {
	extra := make(map[string][]string, len(info.Extra))
	for key, value := range info.Extra {
		extra[key] = value
	}
	return &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra}
}
