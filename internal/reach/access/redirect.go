package access

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ErrRedirect is why an answer is not passed on.
var ErrRedirect = errors.New("it answers with a redirect to somewhere else, which is not passed on")

// RewriteLocation has an answer name the place on the hub of what its Location leads to, which rewrite finds. If there is none, a redirect
// is an error: clients follow it with their credential for the hub. Any other answer, such as one that something is created, loses the
// Location. Of several, only the first counts: clients that do not follow that may follow another one.
func RewriteLocation(answer *http.Response, rewrite func(location string) (string, error)) error {
	location := answer.Header.Get("Location")
	if location == "" {
		answer.Header.Del("Location")
		return nil
	}
	to, err := rewrite(location)
	switch {
	case err == nil:
		answer.Header.Set("Location", to)
	case answer.StatusCode/100 == 3:
		return err
	default:
		answer.Header.Del("Location")
	}
	return nil
}

// Redirect returns where the hub has what a cluster redirects to, or ErrRedirect. Clients follow redirects with their credential for the
// hub, so a cluster may only send them to itself. What is relative, is so to the path on the cluster that was requested: a client may have
// requested it by the prefix alone, and would then leave that. Endpoint is the URL of the cluster, of which without a host only the path
// counts, and prefix what comes before a path of the cluster on the hub.
func Redirect(location string, requested, endpoint *url.URL, prefix string) (string, error) {
	target, err := url.Parse(location)
	if err != nil || target.Host != "" && target.Host != endpoint.Host || target.Host == "" && target.Scheme != "" || target.Opaque != "" {
		return "", ErrRedirect
	}
	// Browsers leave out spaces around a location, and take a backslash for a slash.
	if strings.TrimSpace(location) != location || strings.Contains(target.Path, `\`) ||
		slices.Contains(strings.Split(target.Path, "/"), "..") {
		return "", ErrRedirect
	}
	path := target.EscapedPath()
	switch {
	case target.Host != "" && path == "":
		path = "/"
	case strings.HasPrefix(path, "/"):
		path = below(endpoint, path)
	case strings.HasPrefix(location, "/"): // with a host that is empty
		return "", ErrRedirect
	default:
		target = requested.ResolveReference(target)
		path = target.EscapedPath()
	}
	to := prefix + path
	if target.RawQuery != "" {
		to += "?" + target.RawQuery
	}
	if target.Fragment != "" {
		to += "#" + target.EscapedFragment()
	}
	return to, nil
}

// below is a path without that of the endpoint, if it begins with it.
func below(endpoint *url.URL, path string) string {
	rest, is := strings.CutPrefix(path, strings.TrimSuffix(endpoint.EscapedPath(), "/"))
	if is && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}
