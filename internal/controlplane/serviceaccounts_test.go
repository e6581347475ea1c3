package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

// SC-08: the key of service account tokens rotates while the hub runs. New tokens are of the new key, and those
// from before go on working.
func TestServiceAccountKeyRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clock := testclock.NewFakeClock(time.Now())
	makeOldTokenKey(t, certDir(filepath.Join(dir, "data")), clock.Now().Add(-pki.ServiceAccountTokenLifetime-35*24*time.Hour))
	h := newHub(t, dir, func(o *Options) { o.Clock = clock })

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	accounts, secrets := h.client.CoreV1().ServiceAccounts("default"), h.client.CoreV1().Secrets("default")
	_, err := accounts.Create(t.Context(), account, create)
	must(t, err)
	_, err = secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, create)
	must(t, err)
	issue := func() string {
		issued, err := accounts.CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, create)
		must(t, err)
		return issued.Status.Token
	}
	kept := ""
	eventually(t, func(ctx context.Context) string {
		secret, err := secrets.Get(ctx, "kept", get)
		if kept = string(secret.Data[corev1.ServiceAccountTokenKey]); err != nil || kept == "" {
			return fmt.Sprintf("no token in the Secret: %v", err)
		}
		return ""
	})
	before := issue()
	if keyID(t, before) != keyID(t, kept) {
		t.Error("there are two keys that sign")
	}

	after := ""
	eventually(t, func(context.Context) string {
		if clock.HasWaiters() { // so that each step is noticed
			clock.Step(24 * time.Hour)
		}
		after = issue()
		if keyID(t, after) == keyID(t, before) {
			return "the key stays"
		}
		return ""
	})
	for which, token := range map[string]string{"before": before, "after": after, "in the Secret": kept} {
		_, err := h.withToken(t, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, create)
		if err != nil {
			t.Errorf("the token %s: %v", which, err)
		}
	}
	published, err := h.client.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	must(t, err)
	for _, token := range []string{before, after} {
		if !strings.Contains(string(published), keyID(t, token)) {
			t.Errorf("key %s is not published: %s", keyID(t, token), published)
		}
	}
}

// makeOldTokenKey leaves in a certificate folder a key of service account tokens that was made at a time, and nothing
// else.
func makeOldTokenKey(t *testing.T, dir string, at time.Time) {
	t.Helper()
	_, err := pki.Open(t.Context(), pki.Options{Dir: dir, Clock: testclock.NewFakeClock(at)})
	must(t, err)
	for _, folder := range []string{dir, filepath.Join(dir, "ca-bundle")} {
		files, err := os.ReadDir(folder)
		must(t, err)
		for _, file := range files {
			if !file.IsDir() && !strings.HasPrefix(file.Name(), string(pki.ServiceAccounts)) {
				must(t, os.Remove(filepath.Join(folder, file.Name())))
			}
		}
	}
}

func keyID(t *testing.T, token string) string {
	t.Helper()
	parsed, err := jwt.ParseSigned(token)
	must(t, err)
	return parsed.Headers[0].KeyID
}
