package scope

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
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
	chain := KeepSender(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
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
			soon, later, past := time.Now().Add(time.Minute), time.Now().Add(time.Hour), tokenUntil(time.Now().Add(-time.Hour))
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
			const opaque = "abcdef.0123456789abcdef"
			remembered := tokenUntil(time.Now().Add(-90 * time.Second))
			for _, tokens := range [][]string{{tokenUntil(soon)}, {past}, {opaque, past}, {remembered, tokenUntil(later)}, {remembered, opaque}} {
				if !isOver(start(t, w, account, path, tokens[0], nil, tokens[1:]...)) {
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

// startAs sends a request as somebody else, through what an API server does with it before, and returns what is closed when it ends.
func startAs(t *testing.T, w *Watches, by *user.DefaultInfo, as, sent string, certificate *x509.Certificate,
	more http.Header) (ended <-chan struct{}) {
	t.Helper()
	authenticate := w.credentials.Authenticator(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: by}, true, nil
	}))
	waits := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	impersonate := impersonation.WithConstrainedImpersonation(waits, w.authorizer, scheme.Codecs)
	chain := KeepSender(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		response, _, err := authenticate.AuthenticateRequest(r)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Del("Authorization")
		impersonate.ServeHTTP(rw, r.WithContext(request.WithUser(r.Context(), response.User)))
	}))
	r := authorized(t, nil, http.MethodGet, "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1/proxy/api/v1/pods", nil)
	maps.Copy(r.Header, more)
	r.Header.Set("Impersonate-User", as)
	r.Header.Set("Impersonate-Group", "ops")
	r.Header.Set("Authorization", "Bearer "+sent)
	if certificate != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	}
	done := make(chan struct{})
	go func() {
		chain.ServeHTTP(httptest.NewRecorder(), r)
		close(done)
	}()
	synctest.Wait()
	return done
}

// What is open as somebody else ends with the credential, the account and the right to impersonate of who has it open, and with the right
// of who is impersonated. It goes on without what is of others.
func TestWatchesEndWithTheirImpersonator(t *testing.T) {
	t.Parallel()
	shown := &user.DefaultInfo{Name: fleet.ClusterUser("c1", "a"), Groups: fleet.ClusterGroups("c1"),
		Extra: map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}}}
	// loses has a user lose the rights with a verb, as far as they are for a resource.
	loses := func(who *user.DefaultInfo, verb, resource string) func(*Watches, *losing) {
		return func(w *Watches, rights *losing) {
			rights.user, rights.verb, rights.resource = who.Name, verb, resource
			w.checkAll(subjectsOf(who))
		}
	}
	deletes := func(account *user.DefaultInfo) func(*Watches, *losing) {
		return func(w *Watches, _ *losing) { w.endAll(subject{"User", account.Name}, errAccountGone) }
	}
	outdates := func(w *Watches, _ *losing) { w.credentials.set("c1", time.Now().Add(time.Second)) }
	passes := func(d time.Duration) func(*Watches, *losing) { return func(*Watches, *losing) { <-time.After(d) } }
	bob := &user.DefaultInfo{Name: "bob"}
	for name, test := range map[string]struct {
		by          *user.DefaultInfo
		token, cert time.Duration
		happens     func(*Watches, *losing)
		ends        bool
	}{
		"a token expires":                {account, time.Minute, 0, passes(time.Minute), true},
		"a token does not expire yet":    {account, time.Hour, 0, passes(time.Minute), false},
		"a certificate expires":          {shown, 0, time.Minute, passes(time.Minute), true},
		"a certificate does not count":   {shown, 0, time.Hour, outdates, true},
		"the account is deleted":         {account, 0, 0, deletes(account), true},
		"another account is deleted":     {account, 0, 0, deletes(admin), false},
		"the right to be the user":       {account, 0, 0, loses(account, "impersonate", "users"), true},
		"the right to be in the group":   {account, 0, 0, loses(account, "impersonate", "groups"), true},
		"the right of the user":          {account, 0, 0, loses(bob, "get", "managedclusters"), true},
		"the right of the impersonator":  {account, 0, 0, loses(account, "get", "managedclusters"), false},
		"the user's right to be another": {account, 0, 0, loses(bob, "impersonate", "users"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rights := &losing{}
				w := NewWatches(rights, NewCutOff(), NewCredentials())
				close(w.credentials.known)
				sent, certificate := "", (*x509.Certificate)(nil)
				if test.token != 0 {
					sent = tokenUntil(time.Now().Add(test.token))
				}
				if test.cert != 0 {
					certificate = &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(test.cert)}
				}
				ended := startAs(t, w, test.by, "bob", sent, certificate, nil)
				if isOver(ended) {
					t.Fatal("it ends before anything happens")
				}
				test.happens(w, rights)
				if isOver(ended) != test.ends {
					t.Errorf("it is over: %t", !test.ends)
				}
				w.endAll(subject{"User", "bob"}, nil)
				if synctest.Wait(); len(w.open) > 0 {
					t.Errorf("watches that are over are kept: %v", w.open)
				}
			})
		})
	}
}

// Who may impersonate a user only to read has no connection upgraded as that, and one that is ends with the right to do so to create.
func TestUpgradesAsSomebodyElseAreCreated(t *testing.T) {
	t.Parallel()
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for name, test := range map[string]struct {
		header http.Header
		// creates is whether the sender may first create as the user. It goes on without or not.
		creates, goesOn bool
	}{
		"no upgrade":          {nil, false, true},
		"upgrade to read":     {upgrade, false, false},
		"upgrade to create":   {upgrade, true, false},
		"no upgrade, but may": {nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var creates atomic.Bool
				creates.Store(test.creates)
				rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					on, constrained := strings.CutPrefix(a.GetVerb(), "impersonate-on:user-info:")
					if a.GetVerb() == "impersonate" || constrained && on != "get" && !creates.Load() {
						return authorizer.DecisionNoOpinion, "", nil
					}
					return authorizer.DecisionAllow, "", nil
				})
				w := NewWatches(rights, NewCutOff(), NewCredentials())
				ended := startAs(t, w, account, "bob", "", nil, test.header)
				if isOver(ended) != (!test.goesOn && !test.creates) {
					t.Errorf("at first, it is over: %t", isOver(ended))
				}
				creates.Store(false)
				w.checkAll(subjectsOf(account))
				if isOver(ended) == test.goesOn {
					t.Errorf("without the right, it is over: %t", !test.goesOn)
				}
				w.endAll(subject{"User", "bob"}, nil)
			})
		})
	}
}

// Whether a user may be impersonated is decided for as long as the request goes on, apart from what that knows.
func TestImpersonationIsCheckedWithinTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(context.WithValue(t.Context(), senderKey{}, &sender{}))
		waits := authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			if ctx.Value(senderKey{}) != nil {
				t.Error("the check has what the request knows")
			}
			<-ctx.Done()
			return authorizer.DecisionNoOpinion, "", ctx.Err()
		})
		as := &impersonated{by: account, as: http.Header{"Impersonate-User": {"bob"}}, about: []*request.RequestInfo{{Verb: "get"}}}
		decided := make(chan error)
		go func() { decided <- as.check(ctx, waits) }()
		synctest.Wait()
		end()
		if err := <-decided; err != nil {
			t.Errorf("when the request ends, the right is said to be gone: %v", err)
		}
	})
}

// losing allows all but one right of a user.
type losing struct{ user, verb, resource string }

func (l *losing) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	// Constrained impersonation is by other rights, which nobody has here.
	constrained := strings.HasPrefix(a.GetVerb(), "impersonate") && a.GetVerb() != "impersonate"
	if constrained || a.GetUser().GetName() == l.user && a.GetVerb() == l.verb && a.GetResource() == l.resource {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}
