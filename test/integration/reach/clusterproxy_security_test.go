package reach

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-09: through the hub and the agent, no header makes a user somebody else, however it is written, and no path leads elsewhere. A port of
// a cluster is forwarded by the right to create that, in no namespace.
func TestHeadersAndPaths(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "headers-paths")
	prefix := api.Path(p.API, p.Name, "proxy")
	for name, lines := range map[string]string{
		"in other letters":    "x-rEMOTE-uSER: system:admin\r\nX-REMOTE-GROUP: system:masters",
		"twice":               "X-Remote-User: system:admin\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\nx-remote-group: a",
		"left out on the way": "Connection: X-Remote-User, X-Remote-Group, Impersonate-User, Impersonate-Group, Authorization",
		"left out, twice":     "Connection: x-remote-user\r\nConnection: impersonate-user, impersonate-group\r\nKeep-Alive: X-Remote-User",
		"a service":           "X-Remote-Service: https://kubernetes.default.svc",
		"more":                "X-Remote-Uid: 0\r\nX-Remote-Extra-Scopes: all\r\nX-Forwarded-User: system:admin",
	} {
		code, answer := p.Raw(t, "POST "+prefix+"/apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nImpersonate-User: "+p.Alice+"\r\n"+lines,
			`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		review := &authenticationv1.SelfSubjectReview{}
		if err := json.Unmarshal([]byte(answer), review); err != nil || code != http.StatusCreated ||
			review.Status.UserInfo.Username != access.Prefix+p.Alice || strings.Join(review.Status.UserInfo.Groups, " ") != "system:authenticated" {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	const elsewhere = 0 // wherever it leads on the hub, it is not to the cluster
	admin := "\r\nImpersonate-User: admin\r\nImpersonate-Group: system:masters"
	for path, want := range map[string]int{
		prefix + "/version":                                         http.StatusOK,
		prefix + "/../../other/proxy/version":                       http.StatusBadRequest,
		prefix + "/%2e%2e/%2E%2E/other/proxy/version":               http.StatusBadRequest,
		prefix + "/..%2f..%2fother/proxy/version":                   http.StatusBadRequest,
		prefix + "/%252e%252e/version":                              http.StatusForbidden, // a name of the cluster, where administrators of the hub have no rights
		strings.Replace(prefix, p.Name, p.Name+"/", 1) + "/version": elsewhere,
		strings.Replace(prefix, p.Name, "/"+p.Name, 1) + "/version": elsewhere,
		strings.Replace(prefix, "/proxy", "/pro%78y", 1):            http.StatusBadRequest,
		strings.Replace(prefix, "/proxy", "%2fproxy", 1):            http.StatusBadRequest,
	} {
		code, answer := p.Raw(t, "GET "+path+" HTTP/1.1"+admin, "")
		if want == elsewhere && strings.Contains(answer, "gitVersion") || want != elsewhere && code != want {
			t.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
	forward := api.Path(p.API, p.Name, "portforward") + "?" + api.QueryAddress + "=kubernetes.default.svc:443"
	inNamespace := strings.Replace(forward, "/v1/", "/v1/namespaces/default/", 1)
	for request, want := range map[string]int{
		"POST " + forward: http.StatusSwitchingProtocols,
		"GET " + forward:  http.StatusMethodNotAllowed,
		"GET " + strings.Replace(forward, "/v1/", "/v1/watch/", 1): http.StatusMethodNotAllowed,
		"GET " + inNamespace:  http.StatusNotFound,
		"POST " + inNamespace: http.StatusNotFound,
	} {
		code, answer := p.Raw(t, request+" HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: "+api.ProtocolPortForward+admin, "")
		if code != want {
			t.Errorf("%s: %d %s, want %d", request, code, answer, want)
		}
	}
}
