package hubaccess

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// fakeHub answers reviews: it denies what contains the text.
func fakeHub(t *testing.T, denied string) string {
	t.Helper()
	return hubThat(t, func(right string) bool { return denied == "" || !strings.Contains(right, denied) })
}

// hubThat answers reviews of rights, such as "get managedclusters c1".
func hubThat(t *testing.T, allows func(right string) bool) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		review, ok := decoded.(*authorizationv1.SelfSubjectAccessReview)
		if err != nil || !ok {
			t.Errorf("%T: %v", decoded, err)
			return
		}
		review.Status.Allowed = allows(describe(*review.Spec.ResourceAttributes))
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func secretFor(url string) *corev1.Secret {
	return &corev1.Secret{Data: map[string][]byte{fleet.KeyClusterName: []byte("c1"), fleet.KeyKubeconfig: fmt.Appendf(nil,
		`{"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, url)}}
}

// KL-31: the reasons of the condition, and messages that say what to do.
func TestCheck(t *testing.T) {
	t.Parallel()
	good, noLease, noJoin := fakeHub(t, ""), fakeHub(t, "update leases"), fakeHub(t, "create managedclusters")
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(stranger.Close)
	without := func(key string) *corev1.Secret {
		secret := secretFor(good)
		delete(secret.Data, key)
		return secret
	}
	broken := &corev1.Secret{Data: map[string][]byte{fleet.KeyKubeconfig: []byte("{"), fleet.KeyClusterName: []byte("c1")}}
	for name, test := range map[string]struct {
		credentials Credentials
		reason      string
		message     string
	}{
		"works": {Credentials{Hub: secretFor(good)}, "HubConnectionFunctional", "as cluster c1"},
		"nothing": {Credentials{}, "BootstrapSecretMissing,HubKubeConfigSecretMissing",
			"Secret ns/bootstrap-hub-kubeconfig does not exist; create it with a kubeconfig of the hub under the key kubeconfig"},
		"may register": {Credentials{Bootstrap: secretFor(good)}, "BootstrapSecretFunctional,HubKubeConfigSecretMissing",
			"accept the cluster on the hub"},
		"may not register": {Credentials{Bootstrap: secretFor(noJoin)}, "BootstrapSecretUnauthorized,HubKubeConfigSecretMissing",
			"lacks rights on the hub " + noJoin + ": create managedclusters.cluster.open-cluster-management.io. Put a new one there"},
		"unknown token": {Credentials{Bootstrap: secretFor(stranger.URL)}, "BootstrapSecretError,HubKubeConfigSecretMissing",
			"which is wrong or has expired. Put a new one there, with the token of capstan get token"},
		"broken bootstrap": {Credentials{Bootstrap: broken}, "BootstrapSecretError,HubKubeConfigSecretMissing", "is no kubeconfig"},
		"no kubeconfig": {Credentials{Bootstrap: secretFor(good), Hub: without(fleet.KeyKubeconfig)},
			"BootstrapSecretFunctional,HubKubeConfigMissing",
			"delete it"},
		"no cluster name": {Credentials{Bootstrap: secretFor(good), Hub: without(fleet.KeyClusterName)},
			"BootstrapSecretFunctional,ClusterNameMissing",
			"delete it"},
		"no hub": {Credentials{Bootstrap: secretFor(good), Hub: secretFor("http://127.0.0.1:1")}, "BootstrapSecretFunctional,HubKubeConfigError",
			"connection refused"},
		"not accepted": {Credentials{Bootstrap: secretFor(good), Hub: secretFor(noLease)}, "BootstrapSecretFunctional,HubKubeConfigUnauthorized",
			"update leases.coordination.k8s.io managed-cluster-lease in namespace c1. Accept the cluster there: " +
				"capstan accept --clusters c1"},
		"several hubs":        {Credentials{SkipBootstrap: true}, "HubKubeConfigSecretMissing", "does not exist"},
		"several hubs, works": {Credentials{SkipBootstrap: true, Hub: secretFor(good)}, "HubConnectionFunctional", "as cluster c1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.credentials.Namespace = "ns"
			wantConnection(t, Check(t.Context(), test.credentials), test.reason, test.message)
		})
	}
}

// wantConnection fails the test unless the condition is that of a connection with a reason, which alone says that it works.
func wantConnection(t *testing.T, got metav1.Condition, reason, message string) {
	t.Helper()
	degraded := metav1.ConditionTrue
	if reason == "HubConnectionFunctional" {
		degraded = metav1.ConditionFalse
	}
	if got.Type != "HubConnectionDegraded" || got.Status != degraded || got.Reason != reason || !strings.Contains(got.Message, message) {
		t.Errorf("got %+v", got)
	}
}

// KL-18, KL-31: the operator does not run the program that makes the tokens of an agent that registers by AWS IAM. So it knows whether the
// agent has registered, and the agent whether it reaches the hub.
func TestCheckByAWS(t *testing.T) {
	t.Parallel()
	byProgram := func(missing ...string) *corev1.Secret {
		secret := &corev1.Secret{Data: map[string][]byte{fleet.KeyClusterName: []byte("c1"), fleet.KeyKubeconfig: []byte(
			`{"clusters":[{"name":"c","cluster":{"server":"https://hub.example.com"}}],` +
				`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
				`"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"aws","interactiveMode":"Never"}}}],` +
				`"current-context":"c"}`)}}
		for _, key := range missing {
			delete(secret.Data, key)
		}
		return secret
	}
	bootstrap := secretFor(fakeHub(t, ""))
	for name, test := range map[string]struct {
		credentials Credentials
		reason      string
		message     string
	}{
		"has registered": {Credentials{Bootstrap: bootstrap, Hub: byProgram(), AWS: true}, "HubConnectionFunctional",
			"has registered by AWS IAM, as cluster c1. It alone can use the kubeconfig of Secret ns/hub-kubeconfig-secret"},
		"has registered, and nobody else can": {Credentials{Hub: byProgram(), AWS: true}, "HubConnectionFunctional", "as cluster c1"},
		"may register": {Credentials{Bootstrap: bootstrap, AWS: true}, "BootstrapSecretFunctional,HubKubeConfigSecretMissing",
			"the agent creates it once AWS lets it into the hub: accept the cluster on the hub"},
		"no kubeconfig": {Credentials{Bootstrap: bootstrap, Hub: byProgram(fleet.KeyKubeconfig), AWS: true},
			"BootstrapSecretFunctional,HubKubeConfigMissing", "delete it"},
		"no cluster name": {Credentials{Bootstrap: bootstrap, Hub: byProgram(fleet.KeyClusterName), AWS: true},
			"BootstrapSecretFunctional,ClusterNameMissing", "delete it"},
		"with another driver": {Credentials{Bootstrap: bootstrap, Hub: byProgram()}, "BootstrapSecretFunctional,HubKubeConfigError",
			"runs a program to get a credential"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.credentials.Namespace = "ns"
			wantConnection(t, Check(t.Context(), test.credentials), test.reason, test.message)
		})
	}
	if (Credentials{AWS: true}).hash() == (Credentials{}).hash() {
		t.Error("the result with one driver counts for another")
	}
}

// KL-31: a check runs in the background when the credentials change, soon again while it fails, and rarely while it succeeds.
func TestChecks(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	done, status := make(chan string, 10), metav1.ConditionTrue
	checks := New(t.Context(), clock, func(name string) { done <- name })
	checks.check = func(context.Context, Credentials) metav1.Condition { return metav1.Condition{Status: status} }
	checked := func() {
		t.Helper()
		select {
		case name := <-done:
			if name != "k" {
				t.Errorf("a check of %s ended", name)
			}
		case <-time.After(time.Minute):
			t.Fatal("no check ended")
		}
	}
	first := Credentials{Namespace: "a"}
	if condition, _ := checks.Result("k", first); condition != nil {
		t.Errorf("there is a result before a check: %v", condition)
	}
	checked()
	condition, due := checks.Result("k", first)
	if condition == nil || condition.Status != metav1.ConditionTrue || due != 30*time.Second {
		t.Errorf("got %v, due in %s", condition, due)
	}
	status = metav1.ConditionFalse
	clock.Step(30 * time.Second)
	if condition, _ = checks.Result("k", first); condition == nil || condition.Status != metav1.ConditionTrue {
		t.Errorf("while it is checked again, the result is %v", condition)
	}
	checked()
	if condition, due = checks.Result("k", first); condition.Status != metav1.ConditionFalse || due != 10*time.Minute {
		t.Errorf("got %v, due in %s", condition, due)
	}
	if condition, _ = checks.Result("k", Credentials{Namespace: "b"}); condition != nil {
		t.Errorf("the result of other credentials counts: %v", condition)
	}
	checked()
	checks.Forget("k")
	if condition, _ = checks.Result("k", Credentials{Namespace: "b"}); condition != nil {
		t.Errorf("a forgotten result counts: %v", condition)
	}
	checked()
}

// KL-31: when a cluster is accepted, as the condition advises, the next check finds that, half a minute after the one before at most.
func TestAdviceToAccept(t *testing.T) {
	t.Parallel()
	var accepted atomic.Bool
	hub := hubThat(t, func(right string) bool { return accepted.Load() || !strings.Contains(right, "managed-cluster-lease") })
	clock := clocktesting.NewFakeClock(time.Now())
	done := make(chan string, 1)
	checks := New(t.Context(), clock, func(name string) { done <- name })
	credentials := Credentials{Namespace: "ns", SkipBootstrap: true, Hub: secretFor(hub)}
	checked := func() *metav1.Condition {
		t.Helper()
		checks.Result("k", credentials)
		<-done
		condition, _ := checks.Result("k", credentials)
		return condition
	}
	if condition := checked(); condition == nil || !strings.Contains(condition.Message, "capstan accept --clusters c1") {
		t.Fatalf("before: %+v", condition)
	}
	accepted.Store(true)
	clock.Step(30 * time.Second)
	if condition := checked(); condition == nil || condition.Status != metav1.ConditionFalse {
		t.Errorf("after: %+v", condition)
	}
}

// KL-29: whether the work agent may start.
func TestHasCredential(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{"HubConnectionFunctional": true, "BootstrapSecretMissing,HubKubeConfigUnauthorized": true,
		"BootstrapSecretFunctional,HubKubeConfigSecretMissing": false} {
		if got := HasCredential(&metav1.Condition{Reason: reason}); got != want {
			t.Errorf("%s: %t", reason, got)
		}
	}
	if HasCredential(nil) {
		t.Error("an unknown condition counts as a credential")
	}
}
