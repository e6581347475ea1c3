package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// maxPlacementBytes is how many bytes of a Placement are read.
const maxPlacementBytes = 1 << 20

// unsavedName is the generateName of the dry run for a Placement that does not exist, as its name may be taken.
const unsavedName = "what-if-"

var (
	placements    = clusterv1beta1.GroupVersion.WithResource("placements").GroupResource()
	placementKind = clusterv1beta1.GroupVersion.WithKind("Placement")

	errStarting  = apierrors.NewServiceUnavailable("the hub is starting; ask again in a moment")
	errAnonymous = apierrors.NewUnauthorized("reports on placements need authentication: send a client certificate or a token")
)

// newReport returns the report for a request.
func (s *server) newReport(w http.ResponseWriter, r *http.Request) (*report.Report, error) {
	caller, known := request.UserFrom(r.Context())
	if !known || !slices.Contains(caller.GetGroups(), user.AllAuthenticated) {
		return nil, errAnonymous
	}
	placement, err := s.placement(w, r, caller)
	if err != nil {
		return nil, err
	}
	explanation, err := s.explainer.Explain(r.Context(), placement)
	if err != nil {
		return nil, err
	}
	listsClusters, err := s.authorized(r.Context(), caller, clusters("list"))
	if err != nil {
		return nil, err
	}
	return reportOf(placement, explanation, listsClusters), nil
}

// placement returns the Placement that a request is about.
func (s *server) placement(w http.ResponseWriter, r *http.Request, caller user.Info) (*clusterv1beta1.Placement, error) {
	rest := strings.TrimPrefix(r.URL.Path, report.Path)
	switch {
	case r.Method == http.MethodGet && rest != "":
		return s.savedPlacement(r.Context(), rest, caller)
	case r.Method == http.MethodPost && rest == "":
		return s.unsavedPlacement(w, r, caller)
	case r.Method == http.MethodGet:
		return nil, apierrors.NewBadRequest("name a placement: GET " + report.Path + "NAMESPACE/NAME, or POST one that is not saved to " +
			report.Path)
	}
	return nil, apierrors.NewMethodNotSupported(placements, r.Method)
}

func (s *server) savedPlacement(ctx context.Context, path string, caller user.Info) (*clusterv1beta1.Placement, error) {
	namespace, name, found := strings.Cut(path, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not NAMESPACE/NAME of a placement", path))
	}
	if err := s.authorize(ctx, caller, "get", namespace, name); err != nil {
		return nil, err
	}
	placement := &clusterv1beta1.Placement{}
	return placement, s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, placement)
}

// unsavedPlacement lets the API server validate and default the Placement in the request, with a dry run.
func (s *server) unsavedPlacement(w http.ResponseWriter, r *http.Request, caller user.Info) (*clusterv1beta1.Placement, error) {
	sent, spec, err := decode(http.MaxBytesReader(w, r.Body, maxPlacementBytes))
	if err != nil {
		return nil, err
	}
	if err := s.authorize(r.Context(), caller, "create", sent.Namespace, ""); err != nil {
		return nil, err
	}
	// The spec is sent as it was received: encoded from its type, it would have fields that the caller has left out.
	complete := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	complete.SetGroupVersionKind(placementKind)
	complete.SetNamespace(sent.Namespace)
	complete.SetGenerateName(unsavedName)
	if err := s.api.Create(r.Context(), complete, client.DryRunAll); err != nil {
		if apierrors.IsInvalid(err) {
			return nil, apierrors.NewBadRequest("the placement would be refused: " + causes(err))
		}
		return nil, err
	}
	saved := &clusterv1beta1.Placement{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(complete.Object, saved); err != nil {
		return nil, fmt.Errorf("decode the completed placement: %w", err)
	}
	sent.Spec = saved.Spec
	return sent, nil
}

// causes returns the invalid fields without the rest of the message, which has the generated name.
func causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field+": "+cause.Message)
	}
	return strings.Join(fields, "; ")
}

// decode reads a Placement. It fails on unknown fields, which are misspelt. It also returns the spec as it was received.
func decode(body io.Reader) (placement *clusterv1beta1.Placement, spec any, err error) {
	content, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("the placement is larger than %d bytes", tooLarge.Limit))
	case err != nil:
		return nil, nil, apierrors.NewBadRequest("read the placement: " + err.Error())
	}
	placement = &clusterv1beta1.Placement{}
	strict, err := json.UnmarshalStrict(content, placement)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, nil, apierrors.NewBadRequest("the body is no Placement in JSON: " + err.Error())
	}
	if got, kind := placement.GroupVersionKind(), placementKind; got != kind && !got.Empty() {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("apiVersion and kind are %s %s; send a %s %s", got.GroupVersion(), got.Kind,
			kind.GroupVersion(), kind.Kind))
	}
	if placement.Namespace == "" {
		return nil, nil, apierrors.NewBadRequest("metadata.namespace is missing: the cluster sets that are bound to it decide what a placement can select")
	}
	var sent struct {
		Spec any `json:"spec"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(content, &sent); err != nil {
		return nil, nil, apierrors.NewBadRequest("the body is no Placement in JSON: " + err.Error())
	}
	return placement, sent.Spec, nil
}

// authorize fails unless the caller has the right to do the same with Placements.
func (s *server) authorize(ctx context.Context, caller user.Info, verb, namespace, name string) error {
	yes, err := s.authorized(ctx, caller, authorizer.AttributesRecord{
		Verb: verb, Namespace: namespace, Name: name,
		APIGroup: placements.Group, APIVersion: clusterv1beta1.GroupVersion.Version, Resource: placements.Resource,
	})
	if err == nil && !yes {
		err = apierrors.NewForbidden(placements, name, fmt.Errorf("user %q may not %s placements in namespace %q", caller.GetName(), verb,
			namespace))
	}
	return err
}

func clusters(verb string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: verb, APIGroup: clusterv1.GroupVersion.Group, APIVersion: clusterv1.GroupVersion.Version, Resource: fleet.ResourceManagedClusters,
	}
}

func (s *server) authorized(ctx context.Context, caller user.Info, what authorizer.AttributesRecord) (bool, error) {
	what.User, what.ResourceRequest = caller, true
	decision, _, err := s.authorizer.Authorize(ctx, what)
	if err != nil {
		return false, fmt.Errorf("ask what user %q may: %w", caller.GetName(), err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// statusOf returns the Status of an error.
func statusOf(err error) metav1.Status {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		apiStatus = apierrors.NewInternalError(err)
	}
	status := apiStatus.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}
