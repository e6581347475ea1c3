package clusterproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// Paths of reviews by which users learn who they are, and what they may do. Every user of an API server may.
const (
	pathWhoAmI       = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	pathAccessReview = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	pathRulesReview  = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
)

var accessReviewKind = authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")

// maxReview bounds the review that is read, in bytes.
const maxReview = 64 << 10

// warningCode is the one that HTTP has for any warning.
const warningCode = 299

// isDiscoveryOrSelfReview reports whether a request is about which APIs there are, or about its user.
func isDiscoveryOrSelfReview(r *http.Request) bool {
	return isSelfReview(r) || r.Method == http.MethodGet && isDiscovery(r.URL.Path)
}

func isSelfReview(r *http.Request) bool {
	return r.Method == http.MethodPost && slices.Contains([]string{pathWhoAmI, pathAccessReview, pathRulesReview}, r.URL.Path)
}

// isDiscovery reports whether a path says which APIs there are, and not what is in them: clients have to know before they request anything.
func isDiscovery(path string) bool {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) > 1 && slices.Contains(parts, "") {
		return false
	}
	switch parts[0] {
	case "api":
		return len(parts) <= 2 // /api/VERSION
	case "apis":
		return len(parts) <= 3 // /apis/GROUP/VERSION
	case "openapi":
		return true
	case "version", "healthz", "livez", "readyz":
		return len(parts) == 1
	}
	return false
}

// answerSelfReview answers reviews of those whom the rules are about. Where the rules narrow what RBAC of the cluster gives them, they
// learn in the answer: a review of what the rules do not allow is refused here, and a list of rights comes with a warning.
func (h *apiHandler) answerSelfReview(w http.ResponseWriter, r *http.Request,
	user access.User) (*authorizationv1.SelfSubjectAccessReview, error) {
	if r.URL.Path == pathAccessReview {
		review, err := readReview(r)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if review != nil {
			if err := h.rules.checkReview(user, &review.Spec); err != nil {
				review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: err.Error()}
				return review, nil //nolint:nilerr // that is the answer
			}
			return nil, nil
		}
	}
	narrowed, err := h.rules.admit(user)
	if err != nil {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", err)
	}
	if narrowed != "" && r.URL.Path == pathRulesReview {
		warning, err := utilnet.NewWarningHeader(warningCode, "-",
			fmt.Sprintf("ConfigMap %s of the managed cluster lets you do no more than: %s", fleet.ConfigMapHubAccess, narrowed))
		if err == nil {
			w.Header().Add("Warning", warning)
		}
	}
	return nil, nil
}

// readReview reads a review, which stays in the body. It is nil if this is no review: the API server will say so.
func readReview(r *http.Request) (*authorizationv1.SelfSubjectAccessReview, error) {
	content, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxReview))
	if err != nil {
		return nil, fmt.Errorf("read the review: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	object, _, _ := scheme.Codecs.UniversalDeserializer().Decode(content, &accessReviewKind, nil)
	review, _ := object.(*authorizationv1.SelfSubjectAccessReview)
	return review, nil
}

// checkReview says why the rules do not allow what a review is about.
func (r *rules) checkReview(user access.User, spec *authorizationv1.SelfSubjectAccessReviewSpec) error {
	switch resource, path := spec.ResourceAttributes, spec.NonResourceAttributes; {
	case resource != nil:
		return r.check(user, access.Request{Verb: resource.Verb, Namespace: resource.Namespace})
	case path != nil && path.Verb == "get" && isDiscovery(path.Path):
		_, err := r.admit(user)
		return err
	case path != nil:
		return r.check(user, access.Request{Verb: path.Verb})
	}
	return nil
}

func writeReview(w http.ResponseWriter, review *authorizationv1.SelfSubjectAccessReview) error {
	review.SetGroupVersionKind(accessReviewKind)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(review)
}
