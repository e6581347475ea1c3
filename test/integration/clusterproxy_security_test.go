package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/env"
)

// raw sends lines of an HTTP/1.1 request to the hub as they are, and returns the answer.
func (p *proxied) raw(t *testing.T, request, body string) (int, string) {
	t.Helper()
	config := asAdmin(t, p.on)
	config.NextProtos = []string{"http/1.1"}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&tls.Dialer{Config: secure}).DialContext(t.Context(), "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(env.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: hub\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", request, len(body), body); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// CP-09: through the hub and the agent, no header makes a user somebody else, however it is written, and no path leads elsewhere.
func TestHeadersAndPaths(t *testing.T) {
	t.Parallel()
	p := newProxied(t, hub, "headers-paths")
	prefix := api.Path(p.api, p.name, "proxy")
	for name, lines := range map[string]string{
		"in other letters":    "x-rEMOTE-uSER: system:admin\r\nX-REMOTE-GROUP: system:masters",
		"twice":               "X-Remote-User: system:admin\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\nx-remote-group: a",
		"left out on the way": "Connection: X-Remote-User, X-Remote-Group, Impersonate-User, Impersonate-Group, Authorization",
		"left out, twice":     "Connection: x-remote-user\r\nConnection: impersonate-user, impersonate-group\r\nKeep-Alive: X-Remote-User",
		"a service":           "X-Remote-Service: https://kubernetes.default.svc",
		"more":                "X-Remote-Uid: 0\r\nX-Remote-Extra-Scopes: all\r\nX-Forwarded-User: system:admin",
	} {
		code, answer := p.raw(t, "POST "+prefix+"/apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nImpersonate-User: "+p.alice+"\r\n"+lines,
			`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		review := &authenticationv1.SelfSubjectReview{}
		if err := json.Unmarshal([]byte(answer), review); err != nil || code != http.StatusCreated ||
			review.Status.UserInfo.Username != access.Prefix+p.alice || strings.Join(review.Status.UserInfo.Groups, " ") != "system:authenticated" {
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
		strings.Replace(prefix, p.name, p.name+"/", 1) + "/version": elsewhere,
		strings.Replace(prefix, p.name, "/"+p.name, 1) + "/version": elsewhere,
		strings.Replace(prefix, "/proxy", "/pro%78y", 1):            http.StatusBadRequest,
		strings.Replace(prefix, "/proxy", "%2fproxy", 1):            http.StatusBadRequest,
	} {
		code, answer := p.raw(t, "GET "+path+" HTTP/1.1"+admin, "")
		if want == elsewhere && strings.Contains(answer, "gitVersion") || want != elsewhere && code != want {
			t.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
}

// CP-10: once it is written that a cluster is denied, deleted or cut off, or has the add-on no more, what is open in its tunnel ends, and
// there is none.
func TestRevokedTunnels(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(t *testing.T, p *proxied){
		"tunnel-denied": func(t *testing.T, p *proxied) {
			mergePatch(t, hub.Client(t), managedCluster(t, p.name), `{"spec":{"hubAcceptsClient":false}}`)
		},
		"tunnel-deleted": func(t *testing.T, p *proxied) {
			deleteCluster(t, hub.Client(t), p.name)
		},
		"tunnel-cut-off": func(t *testing.T, p *proxied) {
			hub.Capstan(t, "", "deny", "--clusters", p.name, "--now").Succeeds(t)
		},
		"tunnel-add-on": func(t *testing.T, p *proxied) {
			if err := hub.Client(t).Delete(t.Context(), p.addOn()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, hub, name)
			p.bind(t, p.alice)
			open, err := p.as(t, p.alice).CoreV1().ConfigMaps(p.name).Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan time.Time, 1)
			go func() {
				for range open.ResultChan() {
				}
				ended <- time.Now()
			}()
			revoke(t, p)
			revoked := time.Now()
			select {
			case at := <-ended:
				t.Logf("what was open ended after %s", at.Sub(revoked).Round(time.Millisecond))
			case <-time.After(env.WaitTimeout):
				t.Fatal("what was open goes on")
			}
			env.Eventually(t, func(ctx context.Context) error {
				if err := p.as(t, p.alice).CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err == nil {
					return fmt.Errorf("the cluster answers")
				}
				return nil
			})
		})
	}
}
