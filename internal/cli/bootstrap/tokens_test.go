package bootstrap_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/bootstrap"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

const (
	tokenPath   = "/api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token"
	secretsPath = "/api/v1/namespaces/kube-system/secrets"
)

// CA-13: the token of the bootstrap service account, for an hour.
func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	fake.Handle("POST "+tokenPath, fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	token, err := bootstrap.ServiceAccountToken(t.Context(), fake.Client(t))
	if err != nil || token != "secret" {
		t.Fatalf("token %q, error %v", token, err)
	}
	body := fake.Requests("POST")[0].Body
	if !strings.Contains(body, `"expirationSeconds":3600`) || !strings.Contains(body, authenticationv1.SchemeGroupVersion.String()) {
		t.Errorf("asked for %s", body)
	}
}

func TestServiceAccountTokenMissing(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	fake.Handle("POST "+tokenPath, fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	fake.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	hub := fake.Client(t)
	_, err := bootstrap.ServiceAccountToken(t.Context(), hub)
	mention(t, err, "open-cluster-management/agent-registration-bootstrap is missing", "--use-bootstrap-token")

	fake.Handle("GET /apis/cluster.open-cluster-management.io/v1", http.NotFound)
	if _, err := bootstrap.ServiceAccountToken(t.Context(), hub); !errors.Is(err, hubapi.ErrNotAHub) {
		t.Errorf("error %v, want ErrNotAHub", err)
	}
}

// CA-13: the newest bootstrap token that is good for joining.
func TestBootstrapToken(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	fake := fakehub.New(t)
	put := func(name, label, id, secret, expires string, age time.Duration) {
		fake.Put(t, secretsPath+"/"+name, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: "kube-system", Labels: map[string]string{"app": label}, CreationTimestamp: metav1.NewTime(now.Add(-age)),
			},
			Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(secret), "expiration": []byte(expires)},
		})
	}
	later, before := now.Add(time.Hour).Format(time.RFC3339), now.Add(-time.Second).Format(time.RFC3339)
	put("bootstrap-token-older1", "cluster-manager", "older1", "aaaaaaaaaaaaaaaa", later, 3*time.Hour)
	put("bootstrap-token-newer2", "cluster-manager", "newer2", "bbbbbbbbbbbbbbbb", later, 2*time.Hour)
	put("bootstrap-token-gone33", "cluster-manager", "gone33", "cccccccccccccccc", before, time.Hour)
	put("bootstrap-token-other4", "kubeadm", "other4", "dddddddddddddddd", later, time.Minute)
	put("something-else", "cluster-manager", "else55", "eeeeeeeeeeeeeeee", later, time.Minute)
	put("bootstrap-token-broken", "cluster-manager", "broken", "short", later, time.Minute)
	put("bootstrap-token-liar66", "cluster-manager", "older1", "ffffffffffffffff", later, time.Minute)

	hub := fake.Client(t)
	token, err := bootstrap.Token(t.Context(), hub, now)
	if err != nil || token != "newer2.bbbbbbbbbbbbbbbb" {
		t.Errorf("token %q, error %v", token, err)
	}
	fake.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	_, err = bootstrap.Token(t.Context(), hub, now.Add(2*time.Hour))
	mention(t, err, "expired", "app=cluster-manager")
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
