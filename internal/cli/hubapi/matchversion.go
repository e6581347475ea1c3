package hubapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	baseversion "k8s.io/component-base/version"
)

// versionLimit is how much is read of the version of a server, in bytes.
const versionLimit = 64 << 10

// matchVersion makes the requests of a config fail if the server is of another minor version of Kubernetes than this program. Patches
// are no matter: those of servers and of the libraries of this program go apart.
func matchVersion(config *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	server.Path = path.Join("/", server.Path, "version")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &versionMatch{next: next, url: server} })
	return nil
}

// versionMatch reads the version of the server before the first request.
type versionMatch struct {
	next http.RoundTripper
	url  *url.URL

	mu      sync.Mutex
	matches bool
}

// RoundTrip implements http.RoundTripper.
func (m *versionMatch) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := m.check(request); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, fmt.Errorf("--match-server-version: %w", err)
	}
	return m.next.RoundTrip(request)
}

func (m *versionMatch) check(before *http.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.matches {
		return nil
	}
	server, err := m.serverVersion(before)
	if err != nil {
		return err
	}
	const own = baseversion.DefaultKubeBinaryVersion
	if minor := fmt.Sprintf("%d.%d", server.Major(), server.Minor()); minor != own {
		return fmt.Errorf("the server is of version %s of Kubernetes, and this program is of version %s: use a program of the same version, "+
			"or leave the flag out", minor, own)
	}
	m.matches = true
	return nil
}

// serverVersion reads it with the credentials of a request.
func (m *versionMatch) serverVersion(before *http.Request) (*version.Version, error) {
	request := before.Clone(before.Context())
	request.Method, request.URL, request.Body, request.ContentLength = http.MethodGet, m.url, nil, 0
	request.Header.Del("Content-Type")
	request.Header.Set("Accept", "application/json")
	response, err := m.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, versionLimit)).Decode(&info); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s does not tell the version of the server (status %d)", m.url, response.StatusCode)
	}
	server, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("%s says gitVersion %q: %w", m.url, info.GitVersion, err)
	}
	return server, nil
}
