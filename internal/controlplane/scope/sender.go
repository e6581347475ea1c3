package scope

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/capstan-io/capstan/internal/reach/token"
)

// sender is who has sent a request. Whoever that impersonates is its user later on.
type sender struct {
	// tokens are those of the request. Who authenticates it takes them out.
	tokens []string
	// as are its headers that name whom it impersonates. Who authorizes that takes them out.
	as http.Header
	// who has been authenticated; nil is nobody.
	who user.Info
}

type senderKey struct{}

// KeepSender keeps with a request who has sent it, as far as what comes after this changes it.
func KeepSender(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &sender{tokens: token.Of(r.Header), as: impersonating(r.Header)}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), senderKey{}, sent)))
	})
}

// senderOf is the sender of a request, of whom nothing is known unless it has been kept.
func senderOf(ctx context.Context) *sender {
	if sent, kept := ctx.Value(senderKey{}).(*sender); kept {
		return sent
	}
	return &sender{}
}

// impersonating are the headers that say whom a request impersonates; nil is nobody.
func impersonating(header http.Header) (as http.Header) {
	for key, values := range header {
		if !strings.HasPrefix(key, "Impersonate-") {
			continue
		}
		if as == nil {
			as = http.Header{}
		}
		as[key] = values
	}
	return as
}

// impersonator is who has sent a request as somebody else; nil is nobody.
func (s *sender) impersonator() user.Info {
	if s.as.Get(authenticationv1.ImpersonateUserHeader) == "" {
		return nil
	}
	return s.who
}

// impersonated is a request of one user that is sent by another.
type impersonated struct {
	by user.Info
	as http.Header
	// about is what it is about, once with the verb of each right that it needs: who may impersonate for one may not for another.
	about []*request.RequestInfo
}

// withVerbs is what a request is about, with the verb of each of some rights.
func withVerbs(info *request.RequestInfo, rights []authorizer.Attributes) []*request.RequestInfo {
	all := make([]*request.RequestInfo, 0, len(rights))
	for _, right := range rights {
		about := *info
		about.Verb = right.GetVerb()
		all = append(all, &about)
	}
	return all
}

// check says that the sender may not, or no longer, impersonate the user. It decides nothing when the request ends before.
func (i *impersonated) check(ctx context.Context, a authorizer.UnconditionalAuthorizer) error {
	for _, about := range i.about {
		if i.isAllowed(ctx, about, a) {
			continue
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // nobody waits for the answer
		}
		name := i.as.Get(authenticationv1.ImpersonateUserHeader)
		return apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, name,
			fmt.Errorf("user %q has no right, or none any more, to impersonate %q in a request to %s", i.by.GetName(), name, about.Verb))
	}
	return nil
}

// isAllowed decides as API servers do when they let a request through, but without what these remember of requests before. The request that
// goes on, and its audit, know nothing of it.
func (i *impersonated) isAllowed(ctx context.Context, about *request.RequestInfo, a authorizer.UnconditionalAuthorizer) (allowed bool) {
	handler := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { allowed = true }), a,
		scheme.Codecs)
	again := &http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: i.as.Clone()}
	ctx = request.WithUser(request.WithRequestInfo(endOf{ctx}, about), i.by)
	handler.ServeHTTP(unread{http.Header{}}, again.WithContext(ctx)) //nolint:contextcheck // it is that of the request
	return allowed
}

// endOf is the context of a request without its values: it ends with the request, and has nothing else of it.
type endOf struct{ context.Context } //nolint:containedctx // it is one

// Value implements context.Context.
func (endOf) Value(any) any { return nil }

// unread takes an answer that nobody reads.
type unread struct{ header http.Header }

// Header implements http.ResponseWriter.
func (u unread) Header() http.Header { return u.header }

// Write implements http.ResponseWriter.
func (unread) Write(text []byte) (int, error) { return len(text), nil }

// WriteHeader implements http.ResponseWriter.
func (unread) WriteHeader(int) {}
