package aggregated

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

const apiServiceName, servingSecret = "v1alpha1.cluster.core.oam.dev", "cluster-gateway-serving-cert"

// fixture is a cluster with the APIService.
type fixture struct {
	client   *fake.Clientset
	services *aggregatorfake.Clientset
	clock    *clocktesting.FakeClock
}

func newFixture() *fixture {
	api := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName}}
	api.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "gateway"}
	return &fixture{client: fake.NewClientset(), services: aggregatorfake.NewClientset(api), clock: clocktesting.NewFakeClock(time.Now())}
}

// replica is one of the processes on the same Secret.
func (f *fixture) replica() *certificate {
	return &certificate{apiService: apiServiceName, secret: servingSecret, client: f.client,
		services: f.services.ApiregistrationV1(), clock: f.clock}
}

// through has a process write to the cluster through a reaction, which may fail.
func (f *fixture) through(c *certificate, reaction clienttesting.ReactionFunc) {
	client, services := &fake.Clientset{}, &aggregatorfake.Clientset{}
	for all, tracker := range map[*clienttesting.Fake]clienttesting.ObjectTracker{
		&client.Fake: f.client.Tracker(), &services.Fake: f.services.Tracker()} {
		for _, verb := range []string{"create", "update", "patch"} {
			all.AddReactor(verb, "*", reaction)
		}
		all.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	}
	c.client, c.services = client, services.ApiregistrationV1()
}

func (f *fixture) trusted(t *testing.T) []byte {
	t.Helper()
	api, err := f.services.ApiregistrationV1().APIServices().Get(t.Context(), apiServiceName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return api.Spec.CABundle
}

func (f *fixture) renewed(t *testing.T, c *certificate) []byte {
	t.Helper()
	if err := c.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	chain, _ := c.CurrentCertKeyContent()
	return chain
}

func leafOf(t *testing.T, chain []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(chain)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// store has the Secret have a certificate that is valid for some time.
func (f *fixture) store(t *testing.T, validity time.Duration) []byte {
	t.Helper()
	options := certutil.SelfSignedCertKeyOptions{Host: "gateway.ns.svc", MaxAge: validity}
	chain, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: servingSecret},
		Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}}
	if _, err := f.client.CoreV1().Secrets("ns").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return chain
}

// stored is the certificate in the Secret.
func (f *fixture) stored(t *testing.T) []byte {
	t.Helper()
	secret, err := f.client.CoreV1().Secrets("ns").Get(t.Context(), servingSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret.Data[corev1.TLSCertKey]
}

// listener counts how often it is notified.
type listener int

func (l *listener) Enqueue() { *l++ }

// CG-01: processes share a certificate, which the API server verifies by the name of the Service.
func TestCertificateIsShared(t *testing.T) {
	t.Parallel()
	f := newFixture()
	first, second, notified := f.replica(), f.replica(), listener(0)
	second.AddListener(&notified)
	chain := f.renewed(t, first)
	if !bytes.Equal(f.renewed(t, second), chain) || notified != 1 {
		t.Errorf("two processes have different certificates, or the server was told %d times", notified)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(f.trusted(t)) {
		t.Fatalf("the APIService trusts %q", f.trusted(t))
	}
	leaf := leafOf(t, chain)
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "gateway.ns.svc", Roots: roots}); err != nil {
		t.Error(err)
	}
	// Nothing is done twice.
	if !bytes.Equal(f.renewed(t, first), chain) || !bytes.Equal(f.renewed(t, second), chain) || notified != 1 {
		t.Errorf("the certificate is made again, or the server was told %d times", notified)
	}
	api, err := f.services.ApiregistrationV1().APIServices().Get(t.Context(), apiServiceName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	api.Spec.CABundle = nil
	if _, err := f.services.ApiregistrationV1().APIServices().Update(t.Context(), api, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if f.renewed(t, first); !bytes.Equal(f.trusted(t), chain) {
		t.Error("a caBundle that somebody has removed is not put back")
	}
}

// CG-01: a certificate is renewed in time, and the API server accepts the old one meanwhile.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	f := newFixture()
	start := f.clock.Now()
	first, second := f.replica(), f.replica()
	old := f.renewed(t, first)
	f.clock.Step(validity * 3 / 4)
	if !bytes.Equal(f.renewed(t, first), old) {
		t.Error("it is renewed too early")
	}
	f.clock.Step(validity / 10)
	f.renewed(t, first)
	renewed := f.stored(t)
	if bytes.Equal(renewed, old) {
		t.Fatal("it is not renewed in time")
	}
	if trusted := f.trusted(t); !bytes.Contains(trusted, renewed) || !bytes.Contains(trusted, old) {
		t.Error("the API server does not accept both")
	}
	f.clock.SetTime(start) // certificates are dated by the clock of the machine
	if !bytes.Equal(f.renewed(t, second), renewed) {
		t.Error("another process does not take the new one over")
	}
}

// CG-01, CP-07: clients that verify the certificate of before have ten minutes to read what verifies the next one.
func TestCertificateIsShownOnceVerified(t *testing.T) {
	t.Parallel()
	const due, since = 14 * time.Minute, time.Hour // of certificates: they are valid since an hour before they are made
	for name, tt := range map[string]struct {
		// left is how long the certificate of before is valid yet.
		left   time.Duration
		change func(t *testing.T, f *fixture, c *certificate)
		// shown is how long it is shown yet.
		shown time.Duration
	}{
		"clients verify it": {left: due, shown: readInterval},
		"it ends soon":      {left: 5 * time.Minute, shown: 5 * time.Minute},
		"it has ended":      {left: -time.Minute},
		"it is not trusted any more": {left: due, change: func(t *testing.T, f *fixture, _ *certificate) {
			if err := f.client.CoreV1().Secrets("ns").Delete(t.Context(), servingSecret, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}},
		"clients know another name": {left: due, change: func(_ *testing.T, _ *fixture, c *certificate) { c.hosts = []string{"users.ns.svc"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			c, start := f.replica(), f.clock.Now()
			before := f.store(t, since+tt.left)
			f.clock.SetTime(leafOf(t, before).NotBefore)
			if !bytes.Equal(f.renewed(t, c), before) {
				t.Fatal("a certificate is replaced from its beginning on")
			}
			f.clock.SetTime(start)
			if tt.change != nil {
				tt.change(t, f, c)
			}
			if shown := f.renewed(t, c); bytes.Equal(shown, before) != (tt.shown > 0) || bytes.Equal(f.stored(t), before) {
				t.Fatal("it is not renewed, or clients are shown the wrong one")
			}
			if tt.shown == 0 {
				return
			}
			f.clock.SetTime(start.Add(tt.shown - 2*time.Second)) // certificates are dated in seconds
			if !bytes.Equal(f.renewed(t, c), before) {
				t.Error("clients are shown the new one too early")
			}
			f.clock.SetTime(start.Add(tt.shown))
			if !bytes.Equal(f.renewed(t, c), f.stored(t)) {
				t.Error("clients are not shown the new one")
			}
		})
	}
}

// CG-01: a certificate is of use from its beginning on, which is still to come where its maker's clock was ahead, until a fifth is left.
func TestCertificateIsValidNow(t *testing.T) {
	t.Parallel()
	f := newFixture()
	c := f.replica()
	chain := f.renewed(t, c)
	leaf := leafOf(t, chain)
	due := leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 5)
	for at, good := range map[time.Time]bool{
		leaf.NotBefore.Add(-time.Second): false, leaf.NotBefore: true, due.Add(-time.Second): true, due: false, leaf.NotAfter: false,
	} {
		f.clock.SetTime(at)
		if c.good(chain, c.key, "gateway.ns.svc") != good {
			t.Errorf("at %s, a certificate from %s to %s is good: %t", at, leaf.NotBefore, leaf.NotAfter, !good)
		}
	}
}

// CG-01, CP-03: of two processes that renew the certificate at the same time one does, and what it shows is verified all the time.
func TestCertificateIsRenewedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture()
	start := f.clock.Now()
	first, second := f.replica(), f.replica()
	old := f.renewed(t, first)
	var renewed []byte
	f.through(second, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if renewed == nil { // before its first write
			f.renewed(t, first)
			renewed = f.stored(t)
		}
		conflict := action.Matches("update", "secrets")
		return conflict, nil, apierrors.NewConflict(corev1.Resource("secrets"), servingSecret, nil)
	})
	f.clock.Step(validity * 9 / 10)
	if err := second.renew(t.Context()); !apierrors.IsConflict(err) || bytes.Equal(renewed, old) {
		t.Errorf("the second one, too, renews the certificate: %v", err)
	}
	if trusted := f.trusted(t); !bytes.HasPrefix(trusted, renewed) || !bytes.Contains(trusted, old) {
		t.Error("the API server does not accept both the certificate that the first shows and the one that the second does")
	}
	f.clock.SetTime(start)
	if !bytes.Equal(f.renewed(t, second), renewed) {
		t.Error("the second one does not take the certificate over")
	}
}

// CG-01, CP-03: a certificate whose process has stored it and then ended is taken over by the others, once the API server verifies it, too.
func TestCertificateThatIsOnlyStored(t *testing.T) {
	t.Parallel()
	f := newFixture()
	start := f.clock.Now()
	first, second := f.replica(), f.replica()
	old := f.renewed(t, first)
	f.through(second, func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.Matches("patch", "apiservices"), nil, errors.New("ended")
	})
	f.clock.Step(validity * 9 / 10)
	if err := second.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "caBundle of APIService") {
		t.Errorf("%v", err)
	}
	if chain, _ := second.CurrentCertKeyContent(); chain != nil {
		t.Error("the process shows what the API server does not verify")
	}
	f.clock.SetTime(start)
	f.renewed(t, first)
	renewed := f.stored(t)
	if trusted := f.trusted(t); bytes.Equal(renewed, old) || !bytes.HasPrefix(trusted, renewed) || !bytes.Contains(trusted, old) {
		t.Error("the API server does not accept both")
	}
}

// CG-01: what was in a Secret that somebody deletes is not trusted any more, also if the next one cannot be made at once.
func TestCertificateOfADeletedSecret(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"none", "apiservices", "secrets"} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			old := f.renewed(t, f.replica())
			if err := f.client.CoreV1().Secrets("ns").Delete(t.Context(), servingSecret, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			failing := f.replica()
			f.through(failing, func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetResource().Resource == fails, nil, errors.New("refused")
			})
			if err := failing.renew(t.Context()); (err == nil) != (fails == "none") {
				t.Errorf("%v", err)
			}
			chain := f.renewed(t, f.replica())
			if trusted := f.trusted(t); !bytes.HasPrefix(trusted, chain) || bytes.Contains(trusted, old) {
				t.Error("the API server does not accept the new certificate, or still the old one")
			}
		})
	}
}

// CG-01: certificates of before are trusted until they expire, and only the newest of them.
func TestCertificatesOfBefore(t *testing.T) {
	t.Parallel()
	f := newFixture()
	c := f.replica()
	chain := f.renewed(t, c)
	if kept, err := c.stillShown(bytes.Repeat(chain, maxBefore)); err != nil || !bytes.Equal(kept, bytes.Repeat(chain, maxBefore/2)) {
		t.Errorf("of too many, %s are kept, %v", kept, err)
	}
	f.clock.Step(validity)
	if kept, err := c.stillShown(chain); err != nil || len(kept) > 0 {
		t.Errorf("%s is kept after its end, %v", kept, err)
	}
}

// CP-07: a certificate is valid for the names by which clients know the process besides, and a Secret has what verifies it.
func TestCertificateForClients(t *testing.T) {
	t.Parallel()
	f := newFixture()
	before := f.renewed(t, f.replica())
	c := f.replica()
	c.hosts, c.caSecret = []string{"users.ns.svc", "*.example.com", "192.0.2.1"}, "ca"
	chain := f.renewed(t, c)
	if bytes.Equal(chain, before) || !bytes.Equal(f.renewed(t, c), chain) {
		t.Error("a certificate for fewer names is not replaced, or one for these is")
	}
	if !bytes.Equal(f.renewed(t, f.replica()), chain) {
		t.Error("a process without other names replaces the certificate")
	}
	published := func() []byte {
		secret, err := f.client.CoreV1().Secrets("ns").Get(t.Context(), "ca", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Data["ca.crt"]
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(published()) {
		t.Fatalf("the Secret has %q", published())
	}
	leaf := leafOf(t, chain)
	for _, host := range []string{"gateway.ns.svc", "users.ns.svc", "proxy.example.com", "192.0.2.1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	f.clock.Step(validity * 9 / 10)
	if f.renewed(t, c); bytes.Equal(f.stored(t), chain) || !bytes.Equal(published(), f.trusted(t)) {
		t.Error("what is renewed is not verified by the Secret")
	}
}

// CG-01: what is missing is said, with its name; a certificate of another Service is replaced.
func TestCertificateProblems(t *testing.T) {
	t.Parallel()
	f := newFixture()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: servingSecret}, Data: map[string][]byte{"tls.crt": []byte("x")}}
	if _, err := f.client.CoreV1().Secrets("ns").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := f.replica()
	f.renewed(t, c)
	services := f.services.ApiregistrationV1().APIServices()
	api, err := services.Get(t.Context(), apiServiceName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	api.Spec.Service.Name = "other"
	if api, err = services.Update(t.Context(), api, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if chain := f.renewed(t, c); !c.good(chain, c.key, "other.ns.svc") {
		t.Error("the certificate is not one for the Service")
	}
	api.Spec.Service = nil
	if _, err = services.Update(t.Context(), api, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "set spec.service") {
		t.Errorf("without a Service: %v", err)
	}
	if err := services.Delete(t.Context(), apiServiceName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "get APIService v1alpha1.cluster.core.oam.dev") {
		t.Errorf("without an APIService: %v", err)
	}
}
