package scope

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// tokenUntil is a token that ends then; never, if the time is zero.
func tokenUntil(ends time.Time) string {
	encode, claims := base64.RawURLEncoding.EncodeToString, `{"sub":"a"}`
	if !ends.IsZero() {
		claims = fmt.Sprintf(`{"sub":"a","exp":%d}`, ends.Unix())
	}
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + ".c2ln"
}

// start sends a request that goes on until its context ends, and returns what is closed then.
func start(t *testing.T, w *Watches, who user.Info, path, sent string, certificate *x509.Certificate,
	protocols ...string) (ended <-chan struct{}) {
	t.Helper()
	return pass(t, w, who, path, sent, certificate, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, protocols...)
}

// pass sends a request as an API server would pass it on, and returns what is closed when it has been answered. More tokens are WebSocket
// protocols of it.
func pass(t *testing.T, w *Watches, who user.Info, path, sent string, certificate *x509.Certificate,
	answer http.HandlerFunc, protocols ...string) (answered <-chan struct{}) {
	t.Helper()
	done := make(chan struct{})
	handler := w.Handler(answer)
	chain := KeepToken(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Del("Authorization") // as authentication does
		handler.ServeHTTP(rw, r)
	}))
	r := authorized(t, who, http.MethodGet, path, map[string][]string{"watch": {"1"}})
	r.Header.Set("Authorization", "Bearer "+sent)
	for _, further := range protocols {
		encoded := base64.RawURLEncoding.EncodeToString([]byte(further))
		r.Header.Add("Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io."+encoded)
	}
	if certificate != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	}
	go func() {
		chain.ServeHTTP(httptest.NewRecorder(), r)
		close(done)
	}()
	synctest.Wait()
	return done
}

// CP-09: what is open ends with the token or certificate that it was opened with, a stream into a cluster and the tunnel of an agent as
// well as a watch of the hub.
func TestWatchesEndWithTheirTokens(t *testing.T) {
	t.Parallel()
	const watch, cluster = "/api/v1/namespaces/c1/configmaps", "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1/"
	shown := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}}}
	for _, path := range []string{watch, cluster + "proxy/api/v1/pods", cluster + "tunnel"} {
		synctest.Test(t, func(t *testing.T) {
			w := NewWatches(&allowing{}, NewCutOff(), NewCredentials())
			close(w.credentials.known)
			soon, later, past := time.Now().Add(time.Minute), time.Now().Add(time.Hour), tokenUntil(time.Now().Add(-2*time.Minute))
			ends := map[string]<-chan struct{}{
				"a token":                             start(t, w, account, path, tokenUntil(soon), nil),
				"a token, with one of before":         start(t, w, account, path, tokenUntil(soon), nil, past),
				"a token with a word behind it":       start(t, w, account, path, tokenUntil(soon)+" x", nil),
				"a certificate":                       start(t, w, shown, path, "", &x509.Certificate{NotAfter: soon}),
				"a certificate, with another's token": start(t, w, shown, path, tokenUntil(later), &x509.Certificate{NotAfter: soon}),
			}
			goOn := map[string]<-chan struct{}{
				"a later token":                     start(t, w, account, path, tokenUntil(later), nil),
				"a later token, with one of before": start(t, w, account, path, tokenUntil(later), nil, past),
				"an opaque one, with one of before": start(t, w, account, path, "abcdef.0123456789abcdef", nil, past),
				"a token without an end":            start(t, w, account, path, tokenUntil(time.Time{}), nil),
				"a token that is no JWT":            start(t, w, admin, path, "abcdef.0123456789abcdef", nil),
				"a token for the cluster":           start(t, w, &user.DefaultInfo{Name: user.Anonymous}, path, tokenUntil(soon), nil),
			}
			<-time.After(time.Minute - time.Second)
			for name, ended := range ends {
				if isOver(ended) {
					t.Errorf("%s: it ends before", name)
				}
			}
			<-time.After(time.Second)
			for name, ended := range ends {
				if !isOver(ended) {
					t.Errorf("%s: it goes on", name)
				}
			}
			for name, ended := range goOn {
				if isOver(ended) {
					t.Errorf("%s: it ends", name)
				}
			}
			for _, ended := range []string{tokenUntil(soon), past} {
				if !isOver(start(t, w, account, path, ended, nil)) {
					t.Error("what begins with a token that has ended goes on")
				}
			}
			w.mu.Lock()
			for s := range w.open {
				for one := range w.open[s] {
					one.end(nil)
				}
			}
			w.mu.Unlock()
		})
	}
}

// CP-09: the cause of the end is an error of the API that says what has ended, for whoever has not answered yet.
func TestWhyWhatIsOpenEnds(t *testing.T) {
	t.Parallel()
	const path = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1/proxy/api/v1/pods"
	shown := &user.DefaultInfo{Name: agent.Name, Groups: agent.Groups, Extra: map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}}}
	nothing := func(*Watches, *allowing) {}
	for name, test := range map[string]struct {
		who user.Info
		// token and certificate are for how long these are valid; nothing else is sent.
		token, certificate time.Duration
		refused            bool
		happens            func(*Watches, *allowing)
		is                 func(error) bool
		want               string
	}{
		"a token expires":     {account, time.Minute, 0, false, nothing, apierrors.IsUnauthorized, "the token has expired"},
		"a token had expired": {account, -20 * time.Second, 0, false, nothing, apierrors.IsUnauthorized, "the token has expired"},
		"a certificate":       {shown, 0, time.Minute, false, nothing, apierrors.IsUnauthorized, "the certificate has expired"},
		"one of before": {shown, 0, time.Hour, false, func(w *Watches, _ *allowing) { w.credentials.set("c1", time.Now().Add(time.Minute)) },
			apierrors.IsUnauthorized, "the agent has to join again"},
		"the right": {account, 0, 0, false, func(w *Watches, rights *allowing) {
			rights.refuse.Store(true)
			w.checkAll(subjectsOf(account))
		}, apierrors.IsForbidden, `cannot get resource "managedclusters/proxy"`},
		"the right was lost": {account, 0, 0, true, nothing, apierrors.IsForbidden, "has been lost since it began"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rights := &allowing{}
				rights.refuse.Store(test.refused)
				w := NewWatches(rights, NewCutOff(), NewCredentials())
				close(w.credentials.known)
				sent, certificate := "", (*x509.Certificate)(nil)
				if test.token != 0 {
					sent = tokenUntil(time.Now().Add(test.token))
				}
				if test.certificate != 0 {
					certificate = &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(test.certificate)}
				}
				var cause error
				answered := pass(t, w, test.who, path, sent, certificate, func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					cause = context.Cause(r.Context())
				})
				test.happens(w, rights)
				<-answered
				if !test.is(cause) || !strings.Contains(cause.Error(), test.want) {
					t.Errorf("it has ended because of %v, want %q", cause, test.want)
				}
			})
		})
	}
}

// CP-09: what a service account has open ends with the account, also if there is another one of that name at once.
func TestWatchesEndWithTheirAccount(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"deleted", "replaced"} {
		synctest.Test(t, func(t *testing.T) {
			object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "a-agent", UID: "1"}}
			api := fake.NewClientset(object)
			w, shared := NewWatches(&allowing{}, NewCutOff(), NewCredentials()), informers.NewSharedInformerFactory(api, 0)
			if err := w.Follow(shared); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			shared.Start(ctx.Done())
			shared.WaitForCacheSync(ctx.Done())
			ended, other := open(t, w, account), open(t, w, admin)
			object = object.DeepCopy()
			object.Labels = map[string]string{"a": "b"}
			accounts := api.CoreV1().ServiceAccounts("c1")
			if _, err := accounts.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if isOver(ended) {
				t.Fatal("it ends with a change of the account")
			}
			var err error
			if how == "deleted" {
				err = accounts.Delete(ctx, object.Name, metav1.DeleteOptions{})
			} else {
				object = object.DeepCopy()
				object.UID = "2"
				_, err = accounts.Update(ctx, object, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if !isOver(ended) || isOver(other) {
				t.Errorf("%s: it is over: %t, and that of another: %t", how, isOver(ended), isOver(other))
			}
			w.endAll(subject{"User", admin.Name}, nil)
			cancel()
			shared.Shutdown()
		})
	}
}
