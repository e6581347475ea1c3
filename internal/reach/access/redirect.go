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
// Location.
func RewriteLocation(answer *http.Response, rewrite func(location string) (string, error)) error {
	location := answer.Header.Get("Location")
	if location == "" {
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
// hub, so a cluster may only send them to itself. Endpoint is the URL of the cluster, of which without a host only the path counts, and
// prefix what comes before a path of the cluster on the hub.
func Redirect(location string, endpoint *url.URL, prefix string) (string, error) {
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
	case strings.HasPrefix(location, "/"): // with a host that is empty
		return "", ErrRedirect
	default:
		return location, nil // it is below the path of the request
	}
	if rest, below := strings.CutPrefix(path, strings.TrimSuffix(endpoint.EscapedPath(), "/")); below && (rest == "" || rest[0] == '/') {
		path = rest
	}
	to := prefix + path
	if target.RawQuery != "" {
		to += "?" + target.RawQuery
	}
	return to, nil
}
