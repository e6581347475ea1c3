package scope

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/scheme"
)

// Agents and add-ons wait for what a hub that has just started has to know of them, and are to retry if that takes long. Nobody else waits,
// nor do service accounts in the namespaces of the hub.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cutOff, credentials, suspension := NewCutOff(), NewCredentials(), NewSuspension()
		wait := NewWait(cutOff, credentials, suspension)
		send := func(who user.Info) <-chan *httptest.ResponseRecorder {
			known := credentials.Authenticator(authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
				r.Header.Del("Authorization") // as authenticators do
				return &authenticator.Response{User: who}, true, nil
			}))
			inside := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "" {
					t.Error("a request has lost its token")
				}
			})
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Header.Set("Authorization", "Bearer a")
			request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
			answer := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				received := httptest.NewRecorder()
				wait.Handler(inside, known, scheme.Codecs).ServeHTTP(received, request)
				answer <- received
			}()
			synctest.Wait()
			return answer
		}
		atOnce := func(want int, all ...user.Info) {
			t.Helper()
			for _, who := range all {
				answer := send(who)
				if len(answer) != 1 {
					t.Errorf("%s waits", who.GetName())
					continue
				}
				if got := <-answer; got.Code != want || (got.Header().Get("Retry-After") != "") != (want == http.StatusServiceUnavailable) {
					t.Errorf("%s gets %d with %v, want %d", who.GetName(), got.Code, got.Header(), want)
				}
			}
		}
		certified := &user.DefaultInfo{Name: agent.Name, Groups: agent.Groups, Extra: map[string][]string{user.CredentialIDKey: {certificateID}}}
		ofClusters := []user.Info{agent, certified, aws, addOn, account}
		others := []user.Info{admin, joiner, manager}
		atOnce(http.StatusOK, others...)
		var waiting []<-chan *httptest.ResponseRecorder
		for _, who := range ofClusters {
			waiting = append(waiting, send(who))
		}
		close(cutOff.known)
		close(suspension.known)
		synctest.Wait()
		for i, answer := range waiting {
			if len(answer) != 0 {
				t.Errorf("%s is answered before the hub knows all", ofClusters[i].GetName())
			}
		}
		wait.End()
		wait.End() // more attempts may fail
		for i, answer := range waiting {
			if got := <-answer; got.Code != http.StatusServiceUnavailable {
				t.Errorf("%s, who has waited, gets %d", ofClusters[i].GetName(), got.Code)
			}
		}
		atOnce(http.StatusServiceUnavailable, ofClusters...)
		atOnce(http.StatusOK, others...)
		close(credentials.known)
		atOnce(http.StatusOK, append(ofClusters, others...)...)
	})
}

// Who impersonates an agent does not wait longer than the agent would.
func TestWaitOfImpersonators(t *testing.T) {
	t.Parallel()
	cutOff := NewCutOff()
	NewWait(cutOff, NewCredentials(), NewSuspension()).End()
	if decision, _, err := cutOff.Authorize(t.Context(), authorizer.AttributesRecord{User: agent}); decision != authorizer.DecisionDeny ||
		err == nil {
		t.Errorf("%v, %v", decision, err)
	}
}
