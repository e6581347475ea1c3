package serviceaccount

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
)

var began = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

func token(t *testing.T, claims map[string]any) []byte {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return []byte("e30." + base64.RawURLEncoding.EncodeToString(payload) + ".sig")
}

func claimsFor(lifetime time.Duration) map[string]any {
	return map[string]any{
		"sub": "system:serviceaccount:accounts:ci", "iat": began.Unix(), "exp": began.Add(lifetime).Unix(),
		"kubernetes.io": map[string]any{"serviceaccount": map[string]any{"uid": "sa"}},
	}
}

// MS-03: a token is kept until 80 % of the lifetime that it really has have passed, as long as it is of the account and of this owner.
func TestStale(t *testing.T) {
	t.Parallel()
	w := requirements{
		account:  &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "accounts", Name: "ci", UID: "sa"}},
		owner:    &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "ci", UID: "owner"}},
		ca:       []byte("ca"),
		validity: time.Hour,
	}
	good := func(token []byte, change ...func(*corev1.Secret)) *corev1.Secret {
		secret := &corev1.Secret{Data: map[string][]byte{"token": token, "ca.crt": []byte("ca")}}
		secret.OwnerReferences = []metav1.OwnerReference{{UID: "owner"}}
		secret.Annotations = map[string]string{"capstan.io/requested-validity": "1h0m0s"}
		for _, one := range change {
			one(secret)
		}
		return secret
	}
	with := func(name string, value any) []byte {
		claims := claimsFor(time.Hour)
		claims[name] = value
		return token(t, claims)
	}
	withValidity := func(validity string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Annotations["capstan.io/requested-validity"] = validity }
	}
	for name, test := range map[string]struct {
		secret *corev1.Secret
		after  time.Duration
		why    string
	}{
		"young":                 {good(token(t, claimsFor(time.Hour))), 0, ""},
		"before 80 %":           {good(token(t, claimsFor(time.Hour))), 48*time.Minute - time.Second, ""},
		"80 %":                  {good(token(t, claimsFor(time.Hour))), 48 * time.Minute, "most of the lifetime"},
		"shortened by the API":  {good(token(t, claimsFor(10*time.Minute))), 8 * time.Minute, "most of the lifetime"},
		"lengthened by the API": {good(token(t, claimsFor(24*time.Hour))), 2 * time.Hour, ""},
		"to be shorter":         {good(token(t, claimsFor(24*time.Hour)), withValidity("24h0m0s")), 0, "lives longer than 1h0m0s"},
		"to be longer":          {good(token(t, claimsFor(time.Hour)), withValidity("30m0s")), 0, ""},
		"of another agent": {good(token(t, claimsFor(24*time.Hour)), func(s *corev1.Secret) { s.Annotations = nil }), time.Hour,
			""},
		"missing":            {nil, 0, "there is no Secret"},
		"no token":           {good(nil), 0, "no JSON Web Token"},
		"nonsense":           {good([]byte("a.!.c")), 0, "not in base64"},
		"no JSON":            {good([]byte("a.YQ.c")), 0, "not in JSON"},
		"no end":             {good(with("exp", 0)), 0, "until when"},
		"of another account": {good(with("sub", "system:serviceaccount:accounts:other")), 0, `of "system:serviceaccount:accounts:other"`},
		"of the account before": {good(with("kubernetes.io", map[string]any{"serviceaccount": map[string]any{"uid": "gone"}})), 0,
			"does not exist any more"},
		"without an account": {good(with("kubernetes.io", nil)), 0, ""},
		"another authority":  {good(token(t, claimsFor(time.Hour)), func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("old") }), 0, "authority"},
		"another owner": {good(token(t, claimsFor(time.Hour)), func(s *corev1.Secret) { s.OwnerReferences[0].UID = "gone" }), 0,
			"ManagedServiceAccount that does not exist"},
	} {
		why, _ := w.stale(test.secret, began.Add(test.after))
		if (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
			t.Errorf("%s: %q, want %q", name, why, test.why)
		}
	}
	if _, claims := w.stale(good(token(t, claimsFor(time.Hour))), began); !claims.due().Equal(began.Add(48 * time.Minute)) {
		t.Errorf("due at %s", claims.due())
	}
}
