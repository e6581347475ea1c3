package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/reach/access"
)

// unsaid is what neither clusters nor their services say under the name of the hub.
var unsaid = []string{"Audit-Id", "Set-Cookie"}

// cleanAPIAnswer keeps the API server of a cluster, of which a path was requested, from speaking for the hub.
func cleanAPIAnswer(answer *http.Response, prefix string, requested *url.URL) error {
	for _, name := range unsaid {
		answer.Header.Del(name)
	}
	err := access.RewriteLocation(answer, func(location string) (string, error) {
		return access.Redirect(location, requested, &url.URL{}, prefix)
	})
	if err != nil {
		return fmt.Errorf("the API server of the cluster: %w", err)
	}
	return nil
}

// cleanServiceAnswer keeps a service from speaking for the hub, under whose name clients see what it answers: it sets no cookies there, and
// does not send clients, who follow with their credential for the hub, anywhere but to itself.
func cleanServiceAnswer(answer *http.Response, prefix string, service *access.Service, path string) error {
	for _, name := range unsaid {
		answer.Header.Del(name)
	}
	err := access.RewriteLocation(answer, func(location string) (string, error) { return redirected(location, prefix, service, path) })
	if err != nil {
		return fmt.Errorf("service %s: %w", service.Key(), access.ErrRedirect)
	}
	return nil
}

// redirected is where the hub has what a service redirects to. Only the host of the service is there.
func redirected(location, prefix string, service *access.Service, path string) (string, error) {
	base := service.URL()
	base.Path, base.RawPath = decode(path), path
	target, err := base.Parse(location)
	if err != nil {
		return "", err
	}
	there := *service
	if target.Host != base.Host || target.Scheme != base.Scheme {
		if there.Port, err = portOf(target); err != nil {
			return "", err
		}
		there.Protocol = target.Scheme
	}
	if target.Hostname() != service.Host() || target.User != nil || strings.Contains(location, `\`) {
		return "", access.ErrRedirect
	}
	if err := access.CheckPath(target.Path); err != nil {
		return "", err
	}
	at := url.URL{Path: prefix + there.Path() + target.Path, RawPath: prefix + there.Path() + target.EscapedPath(),
		RawQuery: target.RawQuery, Fragment: target.Fragment}
	return at.String(), nil
}

func decode(path string) string {
	decoded, _ := url.PathUnescape(path) // it has been read before
	return decoded
}

func portOf(u *url.URL) (int, error) {
	switch {
	case !slices.Contains([]string{access.HTTP, access.HTTPS}, u.Scheme):
		return 0, access.ErrRedirect
	case u.Port() != "":
		return strconv.Atoi(u.Port())
	case u.Scheme == access.HTTP:
		return 80, nil
	}
	return 443, nil
}

func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}
