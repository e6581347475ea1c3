package clientcert_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	self  = identity.Identity{Cluster: "cluster1", Agent: "agent1"}
)

// credential is valid from start to an hour after.
func credential(t *testing.T) *hubkubeconfig.Credential {
	t.Helper()
	key, encoded, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: self.User()}, NotBefore: start,
		NotAfter: start.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, crypto.Signer(key).Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.EncodeCertificates(parsed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := hubkubeconfig.New(&clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: "https://hub.example.com"}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}},
		CurrentContext: "hub",
	}, self, certificate, encoded)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newHub is a hub with certificate requests.
func newHub(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(objects...).Build()
}

// RG-07 RG-11: an agent that may not request a certificate, because the hub is full of undecided requests, says so on the
// hub and in an event. It requests again when they are gone.
func TestHaltedRenewal(t *testing.T) {
	t.Parallel()
	var stale []client.Object
	for i := range 10 {
		stale = append(stale, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("cluster1-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster},
		}, Spec: certificatesv1.CertificateSigningRequestSpec{Username: self.User()}})
	}
	hub := newHub(stale...)
	store := &hubkubeconfig.Store{Dir: t.TempDir()}
	if err := store.Save(t.Context(), credential(t)); err != nil {
		t.Fatal(err)
	}
	reasons, reported := make(chan string, 100), make(chan metav1.Condition, 100)
	clk := clocktesting.NewFakeClock(start.Add(55 * time.Minute))
	rotation := &clientcert.Rotation{Store: store, Identity: self, Clock: clk, Report: func(cond metav1.Condition) { reported <- cond },
		Requester: &clientcert.Requester{
			Hub: hub, Identity: self, Renews: true, Record: func(_, reason, _, _ string, _ ...any) { reasons <- reason },
		}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rotation.Start(ctx) }()
	eventually(t, "the rotation does not wait", clk.HasWaiters)
	for _, want := range []string{fleet.EventCertificateRotationStarted, fleet.EventClientCertificateCreationHalted} {
		if got := <-reasons; got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
	cond := <-reported
	eventually(t, "the rotation does not wait for its next attempt", clk.HasWaiters)
	if cond.Type != "ClusterCertificateRotated" || cond.Status != metav1.ConditionFalse || cond.Reason != "ClientCertificateUpdateFailed" {
		t.Errorf("condition %+v", cond)
	}
	_, advised, _ := strings.Cut(cond.Message, "kubectl delete csr -l ")
	selector, err := labels.Parse(advised)
	if err != nil {
		t.Fatalf("%v in %q", err, cond.Message)
	}
	err = hub.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Minute)
	eventually(t, "no request is made", func() bool {
		select {
		case reason := <-reasons:
			return reason == fleet.EventCSRCreated
		default:
			return false
		}
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// RG-11: a renewal that the hub does not decide upon is reported after a minute, and the Secret is looked after meanwhile. The certificate
// is used as soon as it is there.
func TestUndecidedRenewal(t *testing.T) {
	t.Parallel()
	secrets := fake.NewClientBuilder().Build()
	key := client.ObjectKey{Namespace: "agent", Name: "hub-kubeconfig-secret"}
	store := &hubkubeconfig.Store{Dir: t.TempDir(), Client: secrets, Secret: key, Record: func(string, string, string, string, ...any) {}}
	if err := store.Save(t.Context(), credential(t)); err != nil {
		t.Fatal(err)
	}
	watching := make(chan struct{}, 100)
	hub := interceptor.NewClient(newHub(), interceptor.Funcs{
		Watch: func(ctx context.Context, hub client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			w, err := hub.Watch(ctx, list, opts...)
			watching <- struct{}{}
			return w, err
		},
	})
	reported := make(chan metav1.Condition, 100)
	clk := clocktesting.NewFakeClock(start.Add(49 * time.Minute))
	rotation := &clientcert.Rotation{Store: store, Identity: self, Clock: clk, Report: func(cond metav1.Condition) { reported <- cond },
		Requester: &clientcert.Requester{Hub: hub, Keys: store, Identity: self, Renews: true}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rotation.Start(ctx) }()
	<-watching
	eventually(t, "the rotation does not wait", clk.HasWaiters)
	clk.Step(time.Minute)
	if cond := <-reported; cond.Status != metav1.ConditionFalse ||
		!strings.Contains(cond.Message, "waits for its decision since 2026-11-21T12:49:00Z") {
		t.Errorf("condition %+v", cond)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = key.Namespace, key.Name
	if err := secrets.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rotation does not wait again", clk.HasWaiters)
	clk.Step(5 * time.Minute)
	eventually(t, "the Secret is not made again", func() bool { return secrets.Get(t.Context(), key, secret) == nil })
	<-reported

	list := &certificatesv1.CertificateSigningRequestList{}
	if err := hub.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Fatalf("requests %v, %v", list.Items, err)
	}
	next := credential(t)
	list.Items[0].Status.Certificate = next.Certificate
	if err := hub.Status().Update(t.Context(), &list.Items[0]); err != nil {
		t.Fatal(err)
	}
	if cond := <-reported; cond.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v", cond)
	}
	if have, err := store.Load(); err != nil || string(have.Certificate) != string(next.Certificate) {
		t.Errorf("another certificate is in use, %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// RG-08: a renewal ends when the agent is to use a command that makes tokens: nobody needs the certificate any more.
func TestRenewalEndsWithTheCertificate(t *testing.T) {
	t.Parallel()
	store := &hubkubeconfig.Store{Dir: t.TempDir()}
	if err := store.Save(t.Context(), credential(t)); err != nil {
		t.Fatal(err)
	}
	watching := make(chan context.Context, 100)
	hub := interceptor.NewClient(newHub(), interceptor.Funcs{
		Watch: func(ctx context.Context, hub client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			w, err := hub.Watch(ctx, list, opts...)
			watching <- ctx
			return w, err
		},
	})
	clk := clocktesting.NewFakeClock(start.Add(49 * time.Minute))
	rotation := &clientcert.Rotation{Store: store, Identity: self, Clock: clk,
		Requester: &clientcert.Requester{Hub: hub, Keys: store, Identity: self, Renews: true}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rotation.Start(ctx) }()
	renewal := <-watching
	eventually(t, "the rotation does not wait", clk.HasWaiters)
	command, err := hubkubeconfig.WithCommand(&clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: "https://hub.example.com"}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}},
		CurrentContext: "hub",
	}, self, "hub", &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "aws"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), command); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Minute)
	eventually(t, "the renewal goes on", func() bool { return renewal.Err() != nil })
	if ctx.Err() != nil {
		t.Error("the rotation has ended")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// RG-08 RG-22: by a clock that is behind the hub's, a certificate is renewed when it has had its time, while the hub still takes it.
func TestRenewalByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	store := &hubkubeconfig.Store{Dir: t.TempDir()}
	if err := store.Save(t.Context(), credential(t)); err != nil {
		t.Fatal(err)
	}
	const behind = 15 * time.Minute
	clk := clocktesting.NewFakeClock(start.Add(-behind))
	reasons := make(chan string, 100)
	rotation := &clientcert.Rotation{Store: store, Identity: self, Clock: clk, Requester: &clientcert.Requester{
		Hub: newHub(), Identity: self, Renews: true, Record: func(_, reason, _, _ string, _ ...any) { reasons <- reason },
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rotation.Start(ctx) }()
	eventually(t, "the certificate is not renewed before its end by the clock of the hub", func() bool {
		select {
		case reason := <-reasons:
			return reason == fleet.EventCertificateRotationStarted
		default:
		}
		if clk.HasWaiters() && clk.Now().Before(start.Add(time.Hour-behind-time.Minute)) {
			clk.Step(time.Minute)
		}
		return false
	})
	if hub := clk.Now().Add(behind); hub.Before(start.Add(45 * time.Minute)) {
		t.Errorf("renewed at %s of the hub already", hub)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// RG-07: requests under the name of the cluster that are not the agent's own do not hold up its renewal.
func TestForeignRequestsDoNotHalt(t *testing.T) {
	t.Parallel()
	var foreign []client.Object
	for i := range 20 {
		foreign = append(foreign, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("cluster1-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster},
		}, Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:abcdef"}})
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	requester := &clientcert.Requester{Hub: newHub(foreign...), Identity: self, Renews: true, Record: func(_, reason, _, _ string, _ ...any) {
		if reason == fleet.EventCSRCreated {
			stop()
		}
	}}
	if _, _, err := requester.Request(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v before a request was made", err)
	}
}

// RG-07 RG-61: an add-on has ten requests of its own, which are not those of its cluster or of other add-ons.
func TestHaltedAddOn(t *testing.T) {
	t.Parallel()
	const user = "system:open-cluster-management:cluster:cluster1:addon:hello:agent:hello"
	var stale []client.Object
	for i := range 20 {
		addOn := []string{"hello", "other"}[i%2]
		stale = append(stale, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("addon-%d", i), Labels: map[string]string{fleet.LabelClusterName: self.Cluster, fleet.LabelAddOnName: addOn},
		}, Spec: certificatesv1.CertificateSigningRequestSpec{Username: self.User()}})
	}
	hub := newHub(stale...)
	desired := &clientcert.AddOn{Name: "hello", SignerName: "example.com/a", Subject: pkix.Name{CommonName: user, Organization: []string{"g"}}}
	requester := &clientcert.Requester{Hub: hub, Identity: self, AddOn: desired, Renews: true}
	var halted *clientcert.HaltedError
	_, _, err := requester.Request(t.Context())
	if !errors.As(err, &halted) || halted.Requests != 10 {
		t.Fatalf("with ten of its own: %v", err)
	}
	_, advised, _ := strings.Cut(err.Error(), "kubectl delete csr -l ")
	selector, err := labels.Parse(advised)
	if err != nil || !selector.Matches(labels.Set(stale[0].GetLabels())) || selector.Matches(labels.Set(stale[1].GetLabels())) {
		t.Fatalf("the requests to delete are those with %q: %v", advised, err)
	}
	err = hub.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	requester.Record = func(_, reason, _, _ string, _ ...any) {
		if reason == fleet.EventCSRCreated {
			stop()
		}
	}
	if _, _, err := requester.Request(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("without them: %v", err)
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := hub.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		if csr.Spec.Username != "" {
			continue
		}
		block, _ := pem.Decode(csr.Spec.Request)
		request, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if csr.GenerateName != "addon-cluster1-hello-" || csr.Spec.SignerName != "example.com/a" || csr.Labels[fleet.LabelAddOnName] != "hello" ||
			request.Subject.String() != "CN="+user+",O=g" || strings.Join(request.DNSNames, " ") != "hello.addon.open-cluster-management.io" {
			t.Errorf("asks for %s of %v: %+v", request.Subject, request.DNSNames, csr.ObjectMeta)
		}
		return
	}
	t.Error("there is no request")
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatal(what)
	}
}

// RG-08 RG-09: every five minutes the files follow the Secret, and a Secret that was deleted is made again; the agent
// that does not renew only follows, and sees the end of the certificate.
func TestResync(t *testing.T) {
	t.Parallel()
	secrets := fake.NewClientBuilder().Build()
	key := client.ObjectKey{Namespace: "agent", Name: "hub-kubeconfig-secret"}
	saved := 0
	registration := &hubkubeconfig.Store{Dir: t.TempDir(), Client: secrets, Secret: key, Record: func(_, reason, _, _ string, _ ...any) {
		if reason == fleet.EventSecretSave {
			saved++
		}
	}}
	work := &hubkubeconfig.Store{Dir: t.TempDir(), Client: secrets, Secret: key}
	if err := registration.Save(t.Context(), credential(t)); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(start.Add(time.Minute))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	renewing := &clientcert.Rotation{Requester: &clientcert.Requester{Identity: self}, Store: registration, Identity: self, Clock: clk}
	go func() { ended <- renewing.Start(ctx) }()
	eventually(t, "the rotation does not wait", clk.HasWaiters)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = key.Namespace, key.Name
	if err := secrets.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	clk.Step(5 * time.Minute)
	eventually(t, "the Secret is not made again", func() bool { return secrets.Get(t.Context(), key, secret) == nil })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if saved != 2 {
		t.Errorf("%d events tell that the Secret was saved, want one when it was made and one when it was made again", saved)
	}

	if err := work.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	clk = clocktesting.NewFakeClock(start.Add(time.Minute))
	go func() { ended <- (&clientcert.Rotation{Store: work, Identity: self, Clock: clk}).Start(t.Context()) }()
	eventually(t, "the follower does not wait", clk.HasWaiters)
	next := credential(t)
	if err := registration.Save(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	clk.Step(5 * time.Minute)
	eventually(t, "the next certificate is not taken over", func() bool {
		have, err := work.Load()
		return err == nil && string(have.Certificate) == string(next.Certificate)
	})
	eventually(t, "the follower does not wait again", clk.HasWaiters)
	clk.SetTime(start.Add(time.Hour))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("the follower of an expired certificate ended with %v", err)
	}
}

// RG-03: an agent does not go on with the credential of another agent, which another writer may have put there.
func TestCredentialOfAnother(t *testing.T) {
	t.Parallel()
	store := &hubkubeconfig.Store{Dir: t.TempDir()}
	if err := store.Save(t.Context(), credential(t)); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(start.Add(time.Minute))
	for name, test := range map[string]struct {
		before identity.Identity
		want   string
	}{
		"its own":             {self, ""},
		"of another cluster":  {identity.Identity{Cluster: "cluster2", Agent: "agent1"}, self.User()},
		"of an earlier agent": {identity.Identity{Cluster: "cluster1", Agent: "agent2"}, self.User()},
	} {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- (&clientcert.Rotation{Store: store, Identity: test.before, Clock: clk}).Start(ctx) }()
		if test.want == "" {
			eventually(t, "the rotation does not wait", clk.HasWaiters)
			stop()
		}
		if err := <-ended; (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: it ends with %v", name, err)
		}
	}
}
