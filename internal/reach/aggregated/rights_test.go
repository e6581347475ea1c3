package aggregated

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// CP-07 CG-02: a request that goes on ends when its user has lost the right to it, and not while nobody can say so; one that is over at
// once is not checked again. The cause of the end says that the right is lost.
func TestWhileAuthorized(t *testing.T) {
	t.Parallel()
	const untilAnswer, untilLost = time.Hour, time.Minute + time.Second
	for name, test := range map[string]struct {
		verb, subresource string
		decision          authorizer.Decision
		err               error
		want              time.Duration
	}{
		"watch, right lost":          {"watch", "", authorizer.DecisionNoOpinion, nil, untilLost},
		"proxy, right denied":        {"create", "proxy", authorizer.DecisionDeny, nil, untilLost},
		"proxy, right there":         {"get", "proxy", authorizer.DecisionAllow, nil, untilAnswer},
		"proxy, API server away":     {"get", "proxy", authorizer.DecisionNoOpinion, errors.New("connection refused"), untilAnswer},
		"forwarded port, right lost": {"create", "portforward", authorizer.DecisionNoOpinion, nil, untilLost},
		"tunnel of an agent":         {"create", "attach", authorizer.DecisionDeny, nil, untilAnswer},
		"list, which is soon over":   {"list", "", authorizer.DecisionDeny, nil, untilAnswer},
		"verb proxy, without rights": {"proxy", "", authorizer.DecisionDeny, nil, untilLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				rights := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					if time.Since(began) < untilLost {
						return authorizer.DecisionAllow, "", nil
					}
					return test.decision, "", test.err
				})
				var cause error
				handler := newRights(rights).handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
						cause = context.Cause(r.Context())
					case <-time.After(untilAnswer):
					}
				}))
				ctx := request.WithUser(request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: test.verb,
					Subresource: test.subresource, APIGroup: "proxy.capstan.io", Resource: "managedclusters", Name: "c1"}),
					&user.DefaultInfo{Name: "alice"})
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
				if took := time.Since(began); took < test.want || took > test.want+2*time.Second {
					t.Errorf("the request has ended after %s, want %s", took, test.want)
				}
				if apierrors.IsForbidden(cause) != (test.want == untilLost) {
					t.Errorf("the request has ended because of %v", cause)
				}
			})
		})
	}
}

// CP-07 CG-02: who may only read has no connection upgraded, and one that is ends with the right to create it.
func TestUpgradesNeedTwoRights(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// may is for how long the user has the right.
		may  time.Duration
		want int
	}{"to read": {0, http.StatusForbidden}, "to create": {time.Minute, http.StatusOK}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetVerb() == "get" || time.Since(began) < test.may {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			config := &genericapiserver.Config{BuildHandlerChainFunc: func(h http.Handler, _ *genericapiserver.Config) http.Handler { return h }}
			api := &API{Handler: func(next http.Handler) http.Handler { return next }}
			api.handle(config, newRights(rights))
			handler := config.BuildHandlerChainFunc(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
				&genericapiserver.Config{Serializer: scheme.Codecs, Authorization: genericapiserver.AuthorizationInfo{Authorizer: rights}})
			ctx := request.WithUser(request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "get",
				Subresource: "proxy", APIGroup: "reach.capstan.io", Resource: "managedclusters", Name: "c1"}), &user.DefaultInfo{Name: "alice"})
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
			r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if took := time.Since(began); w.Code != test.want || took < test.may || took > test.may+2*rightInterval {
				t.Errorf("with the right %s: %d after %s", name, w.Code, took)
			}
		})
	}
}

// CG-02: a request ends with a right, too, that who answers it knows to be needed, and that is not checked any more then.
func TestFurtherRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := newRights(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetResource() == "pods" && time.Since(began) > time.Minute {
				return authorizer.DecisionNoOpinion, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		}))
		alice := &user.DefaultInfo{Name: "alice"}
		handler := r.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			lasting.Follow(r.Context(), authorizer.AttributesRecord{User: alice, Verb: "get", Resource: "pods", ResourceRequest: true})
			<-r.Context().Done()
		}))
		ctx := request.WithUser(request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "get",
			Subresource: "proxy", APIGroup: "cluster.core.oam.dev", Resource: "clustergateways", Name: "c1"}), alice)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*rightInterval {
			t.Errorf("it ended after %s", took)
		}
		if synctest.Wait(); len(r.inUse) > 0 {
			t.Errorf("%d rights are checked for nothing", len(r.inUse))
		}
	})
}

// CG-02: however many further rights there are, those to enter clusters are checked as often as before.
func TestFurtherRightsTakeTurnsOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ofAlice, further atomic.Int32
		r := newRights(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "alice" {
				ofAlice.Add(1)
			}
			if a.GetResource() == "pods" {
				further.Add(1)
			}
			return authorizer.DecisionAllow, "", nil
		}))
		bob := &user.DefaultInfo{Name: "bob"}
		handler := r.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for i := range 1000 {
				lasting.Follow(r.Context(), authorizer.AttributesRecord{User: bob, Verb: "get", Resource: "pods", Namespace: fmt.Sprintf("n%d", i),
					ResourceRequest: true})
			}
			<-r.Context().Done()
		}))
		asBob := request.WithUser(request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "get",
			Subresource: "proxy", APIGroup: "cluster.core.oam.dev", Resource: "clustergateways", Name: "c1"}), bob)
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(asBob, http.MethodGet, "/", http.NoBody))
		start(ctx, r, "alice", "c1", "/proxy/0")
		const intervals = 30
		<-time.After(intervals * rightInterval)
		synctest.Wait()
		if checks := ofAlice.Load(); checks < intervals-5 {
			t.Errorf("in %d intervals, the right of alice is checked %d times", intervals, checks)
		}
		if most := int32(intervals * rightInterval / time.Second * rightRate); further.Load() > most {
			t.Errorf("%d further rights are checked, want %d at most", further.Load(), most)
		}
	})
}

// start sends a request that goes on until its context ends, and returns what is closed then.
func start(ctx context.Context, r *rights, who, cluster, path string) (ended <-chan struct{}) {
	done := make(chan struct{})
	handler := r.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	ctx = request.WithUser(request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "get", Path: path,
		Subresource: "proxy", APIGroup: "reach.capstan.io", Resource: "managedclusters", Name: cluster}), &user.DefaultInfo{Name: who})
	go func() {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		close(done)
	}()
	return done
}

func isOver(ended <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// CP-07 CG-02: a right is checked once, however many requests need it, and its end is that of these alone.
func TestRightsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var checks, refuse atomic.Int32
		r := newRights(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			checks.Add(1)
			if a.GetUser().GetName() == "alice" && a.GetName() == "c1" && refuse.Load() > 0 {
				return authorizer.DecisionNoOpinion, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		}))
		var ofAlice []<-chan struct{}
		for i := range 100 {
			ofAlice = append(ofAlice, start(ctx, r, "alice", "c1", fmt.Sprintf("/proxy/%d", i)))
		}
		one, end := context.WithCancel(ctx)
		first := start(one, r, "alice", "c1", "/proxy/first")
		synctest.Wait()
		if end(); !isOver(first) || isOver(ofAlice[0]) {
			t.Error("a request that ends takes its right from others")
		}
		elsewhere, ofBob := start(ctx, r, "alice", "c2", "/proxy/0"), start(ctx, r, "bob", "c1", "/proxy/0")
		<-time.After(rightInterval + rightInterval/2)
		if checks.Load() != 3 {
			t.Errorf("%d checks of 3 rights", checks.Load())
		}
		refuse.Add(1)
		<-time.After(rightInterval)
		for _, ended := range ofAlice {
			if !isOver(ended) {
				t.Fatal("a request goes on without the right")
			}
		}
		if isOver(elsewhere) || isOver(ofBob) {
			t.Error("a request with another right ends")
		}
		refuse.Add(-1)
		again := start(ctx, r, "alice", "c1", "/proxy/0")
		<-time.After(2 * rightInterval)
		if isOver(again) {
			t.Error("a request ends though the right is there again")
		}
		cancel()
		if synctest.Wait(); len(r.inUse) > 0 {
			t.Errorf("%d rights are checked for nothing", len(r.inUse))
		}
	})
}

// CP-07 CG-02: rights that the API server may answer differently about are not shared.
func TestRightsAreDistinguished(t *testing.T) {
	t.Parallel()
	base := func() *authorizer.AttributesRecord {
		return &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}, Verb: "get", ResourceRequest: true, Path: "/proxy/0"}
	}
	keys := map[string]string{}
	for name, change := range map[string]func(a *authorizer.AttributesRecord){
		"none": func(*authorizer.AttributesRecord) {},
		"user": func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "bob"} },
		"uid":  func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "alice", UID: "1"} },
		"groups": func(a *authorizer.AttributesRecord) {
			a.User = &user.DefaultInfo{Name: "alice", Groups: []string{"admins"}}
		},
		"extra": func(a *authorizer.AttributesRecord) {
			a.User = &user.DefaultInfo{Name: "alice", Extra: map[string][]string{"scopes": {"a"}}}
		},
		"verb":        func(a *authorizer.AttributesRecord) { a.Verb = "create" },
		"namespace":   func(a *authorizer.AttributesRecord) { a.Namespace = "team" },
		"group":       func(a *authorizer.AttributesRecord) { a.APIGroup = "cluster.core.oam.dev" },
		"version":     func(a *authorizer.AttributesRecord) { a.APIVersion = "v1" },
		"resource":    func(a *authorizer.AttributesRecord) { a.Resource = "clustergateways" },
		"subresource": func(a *authorizer.AttributesRecord) { a.Subresource = "proxy" },
		"name":        func(a *authorizer.AttributesRecord) { a.Name = "c1" },
	} {
		attributes := base()
		change(attributes)
		if other, shared := keys[keyOf(attributes)]; shared {
			t.Errorf("rights that differ in %s and %s are one", name, other)
		}
		keys[keyOf(attributes)] = name
	}
	elsewhere := base()
	elsewhere.Path = "/proxy/1"
	if keys[keyOf(elsewhere)] != "none" {
		t.Error("each path is a right of its own")
	}
}

// CP-07 CG-02: however many rights there are, the API server gets no more checks than it can bear, and each is checked in turn.
func TestRightsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		checks, total := map[string]int{}, 0
		r := newRights(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			mu.Lock()
			defer mu.Unlock()
			checks[a.GetName()]++
			total++
			return authorizer.DecisionAllow, "", nil
		}))
		const clusters, seconds = 1000, 60
		for i := range clusters {
			start(ctx, r, "alice", fmt.Sprintf("c%d", i), "/proxy/0")
		}
		<-time.After(seconds * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if total > seconds*rightRate {
			t.Errorf("%d checks in %d seconds", total, seconds)
		}
		for i := range clusters {
			if name := fmt.Sprintf("c%d", i); checks[name] < 2 {
				t.Errorf("%d checks of %s", checks[name], name)
			}
		}
	})
}
