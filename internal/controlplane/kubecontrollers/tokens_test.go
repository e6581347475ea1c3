package kubecontrollers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/serviceaccount"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/controlplane/serviceaccounttoken"
)

// SC-08: a token in a Secret stays as it is until its key is about to end, and is then signed by the key of the time.
func TestTokensInSecretsFollowTheKey(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(time.Now())
	store, err := pki.Open(t.Context(), pki.Options{Dir: t.TempDir(), Clock: clock})
	must(t, err)
	keys, err := serviceaccounttoken.Load(store.ServiceAccountKeys())
	must(t, err)
	generator := keys.Generator(serviceaccount.LegacyIssuer)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	claims, private := serviceaccount.LegacyClaims(*account, *secret)
	first, err := generator.GenerateToken(t.Context(), claims, private)
	must(t, err)
	secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(first)}
	end := keys.VerifiesUntil(first)

	client := fake.NewClientset(account, secret)
	factory := informers.NewSharedInformerFactory(client, 0)
	r := &tokenRenewal{keys: keys, generator: generator, client: client,
		accounts: factory.Core().V1().ServiceAccounts().Lister(), secrets: factory.Core().V1().Secrets().Lister()}
	factory.Core().V1().ServiceAccounts().Informer()
	factory.Core().V1().Secrets().Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	token := func() string {
		got, err := client.CoreV1().Secrets("default").Get(t.Context(), "kept", metav1.GetOptions{})
		must(t, err)
		return string(got.Data[corev1.ServiceAccountTokenKey])
	}

	for clock.Now().Before(end.Add(-renewalAhead)) {
		must(t, r.renew(t.Context(), clock.Now()))
		if token() != first {
			t.Fatalf("the token changed %s before its key ends", end.Sub(clock.Now()))
		}
		clock.SetTime(store.NextRenewal())
		_, err = store.Renew(t.Context())
		must(t, err)
		must(t, keys.Reload())
	}
	must(t, r.renew(t.Context(), clock.Now()))
	if left := keys.VerifiesUntil(token()).Sub(clock.Now()); left < pki.ServiceAccountTokenLifetime/2 {
		t.Errorf("the key of the token in the Secret has %s left", left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
