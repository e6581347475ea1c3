package hubapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
)

const clustersPath = "/apis/cluster.open-cluster-management.io/v1/managedclusters"

// CA-04: every error of a hub says what to do next.
func TestErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer http.HandlerFunc
		is     func(error) bool
		says   []string
	}{
		"not a hub": {
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) },
			is:     func(err error) bool { return errors.Is(err, hubapi.ErrNotAHub) },
			says: []string{"is not an Open Cluster Management hub", "cluster.open-cluster-management.io/v1", `context "hub"`, "--context",
				"capstan up"},
		},
		"unauthorized": {
			answer: fakehub.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"),
			is:     apierrors.IsUnauthorized,
			says:   []string{"does not accept the credentials", "log in again"},
		},
		"forbidden": {
			answer: fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, `User "jane" cannot list resource`),
			is:     apierrors.IsForbidden,
			says:   []string{`User "jane" cannot list`, "ask an administrator"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := fakehub.New(t)
			fake.Handle("GET "+clustersPath, test.answer)
			_, err := managedclusters.List(t.Context(), fake.Client(t), "")
			mention(t, err, append(test.says, "list clusters")...)
			if !test.is(err) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}

func mention(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is missing in: %v", word, err)
		}
	}
}

func TestErrorNothingListens(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	hub := fake.Client(t)
	fake.Close()
	_, err := managedclusters.List(t.Context(), hub, "")
	mention(t, err, "nothing answers at "+fake.URL, "--context")
	_, err = hubapi.Invitation{Server: fake.URL, Token: accountToken}.Trust(t.Context())
	mention(t, err, "nothing answers at "+fake.URL, "--hub-apiserver", "capstan get token")
}

// A hub that serves TLS answers a plain request with a text.
func TestErrorPlainHTTP(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	_, err := hubapi.Invitation{Server: strings.Replace(fake.URL, "https", "http", 1), Token: accountToken}.Trust(t.Context())
	mention(t, err, "does not answer as an API server does", "https://")
}

func TestErrorNoAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and that is all
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	hub, err := hubapi.Invitation{Server: "https://" + silent.Addr().String()}.Hub(hubapi.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = managedclusters.List(ctx, hub, "")
	mention(t, err, "did not answer in time", "--timeout")
}

func TestErrorUnknownAuthority(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	hub, err := hubapi.Invitation{Server: fake.URL}.Hub(hubapi.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = managedclusters.List(t.Context(), hub, "")
	mention(t, err, "does not trust", "capstan get token", "--ca-file")
}

func TestPublished(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	hub := fake.Client(t)
	expect := func(what, server string, pins ...string) {
		t.Helper()
		published, err := hub.Published(t.Context())
		if err != nil || published.Server != server || !slices.Equal(published.Pins, pins) {
			t.Errorf("%s: %+v, error %v, want %s, %v", what, published, err, server, pins)
		}
	}
	put := func(path string, data map[string]string) {
		fake.Put(t, path, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: data,
		})
	}
	expect("nothing published", fake.URL)
	put("/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt", map[string]string{"ca.crt": string(fake.CA())})
	expect("only a CA published", fake.URL, hubPin(fake))
	put(clusterInfo, map[string]string{
		"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'https://hub.example.com'}}]"})
	expect("a server whose certificate anybody can verify", "https://hub.example.com")
	publish(t, fake, fake.CA(), nil)
	expect("a server and its CA", fake.URL, hubPin(fake))
}

func managedCluster(name string, accepted bool) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted},
	}
}
