package scope

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var epoch = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

// shown is a request with a certificate that is valid from some time on.
func shown(notBefore time.Time) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotBefore: notBefore, NotAfter: notBefore.AddDate(1, 0, 0)}}}
	return r
}

// byCertificate is a client that the API server knows by the certificate, or not.
func byCertificate(who *user.DefaultInfo, is bool) authenticator.Request {
	known := *who
	if is {
		known.Extra = map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}}
	}
	return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &known}, true, nil
	})
}

func clusterSince(name, notBefore string) *metav1.PartialObjectMetadata {
	cluster := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	if notBefore != "" {
		cluster.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: notBefore}
	}
	return cluster
}

// "The same name accepted again revives nothing": who shows a certificate for a cluster that is older than the cluster is refused, and
// nobody else.
func TestOldCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	c := NewCredentials()
	close(c.known)
	c.observe(clusterSince("c1", epoch.Format(time.RFC3339)))
	c.observe(clusterSince("c2", ""))
	c.observe(clusterSince("broken", "yesterday"))
	other := &user.DefaultInfo{Name: fleet.ClusterUser("c2", "a"), Groups: fleet.ClusterGroups("c2")}
	broken := &user.DefaultInfo{Name: fleet.ClusterUser("broken", "a"), Groups: fleet.ClusterGroups("broken")}
	gone := &user.DefaultInfo{Name: fleet.ClusterUser("gone", "a"), Groups: fleet.ClusterGroups("gone")}
	userAlone := &user.DefaultInfo{Name: agent.Name}
	for name, test := range map[string]struct {
		who     *user.DefaultInfo
		by      bool
		since   time.Time
		refused bool
	}{
		"the agent, before":                 {agent, true, epoch.Add(-time.Second), true},
		"the agent, in that second":         {agent, true, epoch, false},
		"the agent, after":                  {agent, true, epoch.Add(time.Second), false},
		"by the user alone, before":         {userAlone, true, epoch.Add(-time.Second), true},
		"an add-on, before":                 {addOn, true, epoch.Add(-time.Second), true},
		"an add-on, after":                  {addOn, true, epoch, false},
		"a token next to a certificate":     {account, false, epoch.Add(-time.Hour), false},
		"the agent, by the word of a proxy": {agent, false, epoch.Add(-time.Hour), false},
		"an administrator":                  {admin, true, epoch.Add(-time.Hour), false},
		"who joins":                         {joiner, true, epoch.Add(-time.Hour), false},
		"of a cluster that says nothing":    {other, true, epoch.Add(-time.Hour), false},
		"of a cluster that says no time":    {broken, true, epoch.Add(time.Hour), true},
		"of a cluster that is gone":         {gone, true, epoch.Add(-time.Hour), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, ok, err := c.Authenticator(byCertificate(test.who, test.by)).AuthenticateRequest(shown(test.since))
			if refused := err != nil; refused != test.refused || ok == refused || (response == nil) != refused {
				t.Fatalf("%v, %t, %v", response, ok, err)
			}
			if test.refused && (!strings.Contains(err.Error(), fleet.AnnotationCredentialsNotBefore) ||
				!strings.Contains(err.Error(), "join again")) {
				t.Errorf("it does not say why, and what to do: %v", err)
			}
		})
	}
	failing := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, errors.New("no") })
	if _, ok, err := c.Authenticator(failing).AuthenticateRequest(shown(epoch)); ok || err == nil {
		t.Errorf("whom others refuse is let in: %t, %v", ok, err)
	}
}

// A hub that has just started lets nobody in before it knows, and has nobody else wait. Then it follows what changes.
func TestCredentialsAfterARestart(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, clusterSince("c1", epoch.Format(time.RFC3339)))
	synctest.Test(t, func(t *testing.T) {
		c := NewCredentials()
		check := func(who *user.DefaultInfo, since time.Time) <-chan error {
			answer := make(chan error, 1)
			go func() {
				_, _, err := c.Authenticator(byCertificate(who, true)).AuthenticateRequest(shown(since))
				answer <- err
			}()
			synctest.Wait()
			return answer
		}
		if answer := check(admin, epoch); len(answer) != 1 {
			t.Error("an administrator waits")
		}
		old, now := check(agent, epoch.Add(-time.Second)), check(addOn, epoch)
		if len(old)+len(now) > 0 {
			t.Error("agents are answered before it is known from when on their certificates hold")
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, _, err := c.Authenticator(byCertificate(agent, true)).AuthenticateRequest(shown(epoch).WithContext(ended)); err == nil {
			t.Error("a request that has ended is let in")
		}

		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- c.Run(ctx, client) }()
		if err := <-old; err == nil {
			t.Error("the old certificate is let in")
		}
		if err := <-now; err != nil {
			t.Errorf("the new one is refused: %v", err)
		}
		clusters := client.Resource(managedClusters.WithVersion("v1")).(metadatafake.MetadataClient)
		if _, err := clusters.UpdateFake(clusterSince("c1", epoch.Add(time.Hour).Format(time.RFC3339)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := <-check(agent, epoch); err == nil {
			t.Error("a certificate from before the cluster was cut off is let in")
		}
		if err := clusters.Delete(ctx, "c1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := <-check(agent, epoch); err != nil {
			t.Errorf("the cluster is gone, and with it what its agent was refused for: %v", err)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// What a client watches by a certificate ends when that holds no more, and what is watched by one that holds goes on.
func TestWatchesEndWithTheirCertificates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		credentials := NewCredentials()
		close(credentials.known)
		w := NewWatches(&allowing{}, NewCutOff(), credentials)
		watching := func(since time.Time) (ended chan struct{}) {
			ended = make(chan struct{})
			known := *agent
			known.Extra = map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}}
			r := authorized(t, &known, http.MethodGet, "/api/v1/namespaces/c1/configmaps", map[string][]string{"watch": {"1"}})
			r.TLS = shown(since).TLS
			handler := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
			go func() {
				handler.ServeHTTP(httptest.NewRecorder(), r)
				close(ended)
			}()
			synctest.Wait()
			return ended
		}
		old, now := watching(epoch.Add(-time.Second)), watching(epoch)
		if isOver(old) || isOver(now) {
			t.Fatal("a watch ends before its certificate does")
		}
		credentials.observe(clusterSince("c1", epoch.Format(time.RFC3339)))
		if !isOver(old) || isOver(now) {
			t.Errorf("by the old certificate, it is over: %t; by the new one: %t", isOver(old), isOver(now))
		}
		credentials.observe(clusterSince("c1", epoch.Add(time.Hour).Format(time.RFC3339)))
		if !isOver(now) {
			t.Error("the watch goes on")
		}
	})
}
