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
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// maxPlacement is how many bytes of a Placement are read.
const maxPlacement = 1 << 20

// unsavedName is what the API server completes for an unsaved placement, which may have the name of a saved one.
const unsavedName = "what-if-"

var (
	placements = clusterv1beta1.GroupVersion.WithResource("placements").GroupResource()

	errStarting  = apierrors.NewServiceUnavailable("the hub is starting; ask again in a moment")
	errAnonymous = apierrors.NewUnauthorized("who asks about placements has to log in: send a client certificate or a token")
)

// answer is the report that a request asks for.
func (d *desk) answer(w http.ResponseWriter, r *http.Request) (*report.Report, error) {
	who, known := request.UserFrom(r.Context())
	if !known || !slices.Contains(who.GetGroups(), user.AllAuthenticated) {
		return nil, errAnonymous
	}
	placement, err := d.placement(w, r, who)
	if err != nil {
		return nil, err
	}
	explanation, err := d.explainer.Explain(r.Context(), placement)
	if err != nil {
		return nil, err
	}
	everywhere, err := d.may(r.Context(), who, clusters("list"))
	if err != nil {
		return nil, err
	}
	return reportOf(placement, explanation, everywhere), nil
}

// placement is the one that a request is about.
func (d *desk) placement(w http.ResponseWriter, r *http.Request, who user.Info) (*clusterv1beta1.Placement, error) {
	rest := strings.TrimPrefix(r.URL.Path, report.Path)
	switch {
	case r.Method == http.MethodGet && rest != "":
		return d.saved(r.Context(), rest, who)
	case r.Method == http.MethodPost && rest == "":
		return d.unsaved(w, r, who)
	case r.Method == http.MethodGet:
		return nil, apierrors.NewBadRequest("name a placement: GET " + report.Path + "NAMESPACE/NAME, or POST one that is not saved to " + report.Path)
	}
	return nil, apierrors.NewMethodNotSupported(placements, r.Method)
}

func (d *desk) saved(ctx context.Context, path string, who user.Info) (*clusterv1beta1.Placement, error) {
	namespace, name, found := strings.Cut(path, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not NAMESPACE/NAME of a placement", path))
	}
	if err := d.authorize(ctx, who, "get", namespace, name); err != nil {
		return nil, err
	}
	placement := &clusterv1beta1.Placement{}
	return placement, d.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, placement)
}

// unsaved has the API server check and complete what was sent, as it would if it were to be saved.
func (d *desk) unsaved(w http.ResponseWriter, r *http.Request, who user.Info) (*clusterv1beta1.Placement, error) {
	sent, err := decode(http.MaxBytesReader(w, r.Body, maxPlacement))
	if err != nil {
		return nil, err
	}
	if err := d.authorize(r.Context(), who, "create", sent.Namespace, ""); err != nil {
		return nil, err
	}
	complete := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: sent.Namespace, GenerateName: unsavedName}, Spec: sent.Spec}
	if err := d.api.Create(r.Context(), complete, client.DryRunAll); err != nil {
		if apierrors.IsInvalid(err) {
			return nil, apierrors.NewBadRequest(strings.ReplaceAll(err.Error(), complete.Name, sent.Name))
		}
		return nil, err
	}
	sent.Spec = complete.Spec
	return sent, nil
}

// decode reads a Placement and refuses what is none, and fields that do not exist: they are misspelt.
func decode(body io.Reader) (*clusterv1beta1.Placement, error) {
	content, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the placement is larger than %d bytes", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest("read the placement: " + err.Error())
	}
	placement := &clusterv1beta1.Placement{}
	strict, err := json.UnmarshalStrict(content, placement)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, apierrors.NewBadRequest("the body is no Placement in JSON: " + err.Error())
	}
	kind := clusterv1beta1.GroupVersion.WithKind("Placement")
	if got := placement.GroupVersionKind(); got != kind && !got.Empty() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("apiVersion and kind are %s %s; send a %s %s", got.GroupVersion(), got.Kind, kind.GroupVersion(), kind.Kind))
	}
	if placement.Namespace == "" {
		return nil, apierrors.NewBadRequest("metadata.namespace is missing: the cluster sets that are bound to it decide what a placement can select")
	}
	return placement, nil
}

// authorize asks whether somebody may do with placements what amounts to what they ask for.
func (d *desk) authorize(ctx context.Context, who user.Info, verb, namespace, name string) error {
	yes, err := d.may(ctx, who, authorizer.AttributesRecord{
		Verb: verb, Namespace: namespace, Name: name,
		APIGroup: placements.Group, APIVersion: clusterv1beta1.GroupVersion.Version, Resource: placements.Resource,
	})
	if err == nil && !yes {
		err = apierrors.NewForbidden(placements, name, fmt.Errorf("user %q may not %s placements in namespace %q", who.GetName(), verb, namespace))
	}
	return err
}

func clusters(verb string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: verb, APIGroup: clusterv1.GroupVersion.Group, APIVersion: clusterv1.GroupVersion.Version, Resource: fleet.ResourceManagedClusters,
	}
}

func (d *desk) may(ctx context.Context, who user.Info, what authorizer.AttributesRecord) (bool, error) {
	what.User, what.ResourceRequest = who, true
	decision, _, err := d.authorizer.Authorize(ctx, what)
	if err != nil {
		return false, fmt.Errorf("ask what user %q may: %w", who.GetName(), err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// statusOf is an error as clients see it.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}
