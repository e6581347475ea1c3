package fakehub

import (
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Paths of the reviews of who users are, and what they may do.
const (
	PathWhoAmI       = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	PathAccessReview = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	PathRulesReview  = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
)

// Allow has the hub review who the user is, which is admin unless somebody is impersonated, and what that user may do.
func (h *Hub) Allow(may func(user string, what *authorizationv1.ResourceAttributes) bool) {
	h.Handle("POST "+PathWhoAmI, func(w http.ResponseWriter, r *http.Request) {
		review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
		review.Status.UserInfo = authenticationv1.UserInfo{
			Username: userOf(r), Groups: append(r.Header.Values("Impersonate-Group"), "system:authenticated"),
		}
		writeJSON(w, http.StatusCreated, review)
	})
	h.Handle("POST "+PathAccessReview, func(w http.ResponseWriter, r *http.Request) {
		ReviewAccess(func(what *authorizationv1.ResourceAttributes) (status authorizationv1.SubjectAccessReviewStatus) {
			status.Allowed = may(userOf(r), what)
			return status
		})(w, r)
	})
}

func userOf(r *http.Request) string {
	if user := r.Header.Get("Impersonate-User"); user != "" {
		return user
	}
	return "admin"
}

// ReviewAccess is a handler: it reviews what a user may do.
func ReviewAccess(may func(what *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review := authorizationv1.SelfSubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), "")
			return
		}
		review.Status = may(review.Spec.ResourceAttributes)
		writeJSON(w, http.StatusCreated, review)
	}
}

// ReviewRules is a handler: it reviews the rights of a user, with a warning unless that is empty.
func ReviewRules(warning string, rules ...authorizationv1.ResourceRule) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if warning != "" {
			w.Header().Set("Warning", `299 - "`+warning+`"`)
		}
		review := authorizationv1.SelfSubjectRulesReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"},
			Status:   authorizationv1.SubjectRulesReviewStatus{ResourceRules: rules, NonResourceRules: []authorizationv1.NonResourceRule{}},
		}
		writeJSON(w, http.StatusCreated, review)
	}
}
