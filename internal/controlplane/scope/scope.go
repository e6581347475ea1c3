// Package scope narrows what agents, and those who join, read on a standalone hub to what is theirs.
//
// Their roles are those of every hub, and let them list all certificate requests and, to those who
// join, all clusters. RBAC cannot do better: the names of requests are random, and it knows no labels. Nor can an
// authorizer: agents review whether they may list all requests before they work, and take a no for a broken credential.
// So a request that RBAC has let through is narrowed here, before the storage.
package scope

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	certificateRequests = certificatesv1.Resource("certificatesigningrequests")
	secrets             = corev1.Resource("secrets")
	managedClusters     = schema.GroupResource{Group: "cluster.open-cluster-management.io", Resource: fleet.ResourceManagedClusters}
)

// Requests gets a certificate request, for any client.
type Requests interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*certificatesv1.CertificateSigningRequest, error)
}

// Secrets gets a Secret, for any client.
type Secrets interface {
	Secrets(namespace string) corev1client.SecretInterface
}

// Handler narrows requests before it hands them on; they must be authorized already. Of certificate requests, an agent sees
// those with the label of its cluster, which admission makes sure of. Of the Secrets in the namespace of its cluster, it sees those of
// ManagedServiceAccounts. Who is joining has to select an object: a request
// or ManagedCluster by its name, or the requests of one cluster by the label.
func Handler(next http.Handler, requests Requests, tokens Secrets, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		narrowed, err := narrow(r, requests, tokens)
		if err != nil {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, r)
			return
		}
		next.ServeHTTP(w, narrowed)
	})
}

func narrow(r *http.Request, requests Requests, tokens Secrets) (*http.Request, error) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || !slices.Contains([]string{"get", "list", "watch"}, info.Verb) {
		return r, nil
	}
	who, ok := request.UserFrom(r.Context())
	if !ok {
		return r, nil
	}
	clusters := fleet.AgentClusters(who.GetGroups())
	switch resource := (schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}); {
	case resource == certificateRequests && len(clusters) > 0 && info.Verb == "get":
		return r, checkOwner(r.Context(), requests, info.Name, clusters)
	case resource == certificateRequests && len(clusters) > 0:
		return selectOwn(r, clusters)
	case resource == secrets && slices.Contains(clusters, info.Namespace) && info.Verb == "get":
		return r, checkToken(r.Context(), tokens, info.Namespace, info.Name)
	case resource == secrets && slices.Contains(clusters, info.Namespace):
		return selectOnly(r, fleet.LabelManagedServiceAccount, fleet.LabelTrue)
	case fleet.IsJoining(who.GetName(), who.GetGroups()) && info.Name == "":
		return r, checkSelection(r, resource, who)
	}
	return r, nil
}

// checkOwner answers for the requests of others what it would for none: that they are there is nobody else's business.
func checkOwner(ctx context.Context, requests Requests, name string, clusters []string) error {
	csr, err := requests.Get(ctx, name, metav1.GetOptions{})
	if err == nil && !slices.Contains(clusters, csr.Labels[fleet.LabelClusterName]) {
		return apierrors.NewNotFound(certificateRequests, name)
	}
	return err
}

// checkToken answers for Secrets that are not of a ManagedServiceAccount what it would for none.
func checkToken(ctx context.Context, tokens Secrets, namespace, name string) error {
	secret, err := tokens.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && secret.Labels[fleet.LabelManagedServiceAccount] != fleet.LabelTrue {
		return apierrors.NewNotFound(secrets, name)
	}
	return err
}

// selectOwn adds the label of the clusters to the selector of a list or watch.
func selectOwn(r *http.Request, clusters []string) (*http.Request, error) {
	return selectOnly(r, fleet.LabelClusterName, clusters...)
}

// selectOnly adds a label, with one of the values, to the selector of a list or watch.
func selectOnly(r *http.Request, label string, values ...string) (*http.Request, error) {
	only, err := labels.NewRequirement(label, selection.In, values)
	if err != nil {
		return nil, fmt.Errorf("select what has the label %s of %q: %w", label, values, err)
	}
	requested, err := selector(r)
	if err != nil {
		return nil, err
	}
	narrowed := r.Clone(r.Context())
	query := narrowed.URL.Query()
	query.Set("labelSelector", requested.Add(*only).String())
	narrowed.URL.RawQuery = query.Encode()
	return narrowed, nil
}

func selector(r *http.Request) (labels.Selector, error) {
	requested, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	if _, selectable := requested.Requirements(); !selectable {
		return nil, apierrors.NewBadRequest("labelSelector: it selects nothing")
	}
	return requested, nil
}

// checkSelection refuses to show a user who is joining what others have on the hub.
func checkSelection(r *http.Request, resource schema.GroupResource, who user.Info) error {
	switch resource {
	case managedClusters:
		return apierrors.NewForbidden(resource, "", fmt.Errorf(
			"user %q, who may only join clusters, cannot list or watch all of them: add the field selector metadata.name=CLUSTER", who.GetName()))
	case certificateRequests:
		requested, err := selector(r)
		if err != nil {
			return err
		}
		if _, one := requested.RequiresExactMatch(fleet.LabelClusterName); !one {
			return apierrors.NewForbidden(resource, "", fmt.Errorf(
				"user %q, who may only join clusters, cannot list or watch the requests of all of them: add the label selector %s=CLUSTER",
				who.GetName(), fleet.LabelClusterName))
		}
	}
	return nil
}
