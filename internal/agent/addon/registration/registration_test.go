package registration

import (
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newController(driver addonv1beta1.KubeClientDriver) *Controller {
	return &Controller{
		Options: Options{Identity: identity.Identity{Cluster: "c1", Agent: "a1"}, HubHash: "hash", Driver: driver,
			Clock: clocktesting.NewFakeClock(start)},
		renewalFraction: 0.2, renewed: map[id]time.Time{}, receipts: map[id]clientcert.Receipt{}, silent: map[types.NamespacedName]time.Time{},
	}
}

const bootstrap = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"hub","cluster":{"server":"https://hub","proxy-url":"http://proxy:3128","certificate-authority-data":"Q0E="}}],
"contexts":[{"name":"c","context":{"cluster":"hub"}}],"current-context":"c"}`

// RG-60 RG-61: which Secret a registration is for, and what is requested.
func TestWanted(t *testing.T) {
	t.Parallel()
	credential := &hubkubeconfig.Credential{Kubeconfig: []byte(bootstrap)}
	kube := addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient}
	named := addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{
		Subject: addonv1beta1.KubeClientSubject{User: "u", Groups: []string{"g", "h"}},
	}}
	custom := addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner, CustomSigner: &addonv1beta1.CustomSignerConfig{
		SignerName: "example.com/a", Subject: addonv1beta1.Subject{Groups: []string{"g"}, OrganizationUnits: []string{"o"}},
	}}
	inNamespace := addonv1beta1.ManagedClusterAddOn{Status: addonv1beta1.ManagedClusterAddOnStatus{Namespace: "ns"}}
	annotated := addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		fleet.AnnotationInstallNamespace: "other", fleet.AnnotationHostingClusterName: "hosting",
	}}, Status: addonv1beta1.ManagedClusterAddOnStatus{Conditions: []metav1.Condition{{Type: fleet.ConditionHostingClusterValidity}}}}
	const byDefault = "system:open-cluster-management:cluster:c1:addon:hello"
	for _, test := range []struct {
		name         string
		driver       addonv1beta1.KubeClientDriver
		addOn        addonv1beta1.ManagedClusterAddOn
		registration addonv1beta1.RegistrationConfig
		secret       string
		cluster      string
		request      *clientcert.AddOn
		auth         string // in the kubeconfig; empty for none
	}{
		{"by default", "csr", addonv1beta1.ManagedClusterAddOn{}, kube, "open-cluster-management-agent-addon/hello-hub-kubeconfig", "managed",
			&clientcert.AddOn{
				Name: "hello", SignerName: "kubernetes.io/kube-apiserver-client",
				Subject: pkix.Name{CommonName: byDefault + ":agent:hello", Organization: []string{byDefault}},
			}, "client-certificate: tls.crt"},
		{"with a name", "csr", inNamespace, named, "ns/hello-hub-kubeconfig", "managed", &clientcert.AddOn{
			Name: "hello", SignerName: "kubernetes.io/kube-apiserver-client", Subject: pkix.Name{CommonName: "u", Organization: []string{"g", "h"}},
		}, "client-key: tls.key"},
		{"by token, hosted", "token", annotated, named, "other/hello-hub-kubeconfig", "hosted", nil, "tokenFile: token"},
		{"of a signer", "token", inNamespace, custom, "ns/hello-example.com-a-client-cert", "managed", &clientcert.AddOn{
			Name: "hello", SignerName: "example.com/a", Subject: pkix.Name{CommonName: byDefault + ":agent:hello", Organization: []string{"g"},
				OrganizationalUnit: []string{"o"}},
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.addOn.Name = "hello"
			c := newController(test.driver)
			cluster, _ := c.clusterOf(&test.addOn)
			got, err := c.desiredSecretFor(&test.addOn, cluster, test.registration, credential)
			if err != nil {
				t.Fatal(err)
			}
			if got.secret.String() != test.secret || got.cluster != test.cluster {
				t.Errorf("Secret %s of %s", got.secret, got.cluster)
			}
			if diff := cmp.Diff(test.request, got.request); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, part := range []string{test.auth, "server: https://hub", "proxy-url: http://proxy:3128", "certificate-authority-data: Q0E="} {
				if (got.kubeconfig == nil) != (test.auth == "") || test.auth != "" && !strings.Contains(string(got.kubeconfig), part) {
					t.Errorf("the kubeconfig has no %q: %s", part, got.kubeconfig)
				}
			}
		})
	}
}

// RG-60: of several registrations for the same Secret, the last one counts: requests for both would end each other over and over.
func TestRegistrationsForOneSecret(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := newController(addonv1beta1.KubeClientDriverCSR)
	c.hub, c.Store = fake.NewClientBuilder().WithScheme(scheme).Build(), &hubkubeconfig.Store{Dir: t.TempDir()}
	files := certificateOf(t, pkix.Name{CommonName: "agent"})
	files[fleet.KeyKubeconfig] = []byte(bootstrap)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.Store.Dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kube := func(user string) addonv1beta1.RegistrationConfig {
		return addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient,
			KubeClient: &addonv1beta1.KubeClientConfig{Subject: addonv1beta1.KubeClientSubject{User: user}}}
	}
	custom := func(signer, user string) addonv1beta1.RegistrationConfig {
		return addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner,
			CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: signer, Subject: addonv1beta1.Subject{User: user}}}
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{
		kube("first"), custom("example.com/a-b", "first"), custom("example.com/c", "only"), kube("last"), custom("example.com/a/b", "last"),
	}
	all, err := c.desiredSecrets(t.Context(), addOn, fleet.AddOnCredentialManaged)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range all {
		got = append(got, w.secret.Name+" of "+w.request.Subject.CommonName)
	}
	want := []string{"hello-example.com-c-client-cert of only", "hello-hub-kubeconfig of last", "hello-example.com-a-b-client-cert of last"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// RG-08: a credential is renewed when a fifth of its life is left; by a clock that is far ahead no more than once a minute.
func TestRenewal(t *testing.T) {
	t.Parallel()
	c, w := newController("csr"), &desiredSecret{addOn: "hello"}
	if got := c.renewal(w, start, start.Add(time.Hour)); !got.due.Equal(start.Add(48 * time.Minute)) {
		t.Errorf("due at %s", got.due)
	}
	c.renewed[w.id()] = start
	if got := c.renewal(w, start.Add(-2*time.Hour), start.Add(-time.Hour)); !got.due.Equal(start.Add(time.Minute)) {
		t.Errorf("due at %s after a renewal a moment ago", got.due)
	}
	if got := c.renewal(w, start, start.Add(10*time.Second)); !got.due.Equal(start.Add(8 * time.Second)) {
		t.Errorf("a short-lived one is due at %s", got.due)
	}
}

// RG-08 RG-22: by a clock that is behind the hub's, a credential is renewed when it has had its time, while the hub still takes it.
func TestRenewalByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	c, w := newController("csr"), &desiredSecret{addOn: "hello"}
	clk := clocktesting.NewFakeClock(start.Add(-15 * time.Minute))
	c.Clock = clk
	for _, from := range []time.Time{start, start.Add(48 * time.Minute)} {
		due := clk.Now().Add(48 * time.Minute)
		for range 3 {
			if got := c.renewal(w, from, from.Add(time.Hour)); !got.due.Equal(due) {
				t.Errorf("at %s, what is valid from %s on is due at %s, want %s", clk.Now(), from, got.due, due)
			}
			clk.Step(16 * time.Minute)
		}
	}
}

// New conditions come in the same order each time.
func TestReportInOrder(t *testing.T) {
	t.Parallel()
	for range 50 {
		var conditions []metav1.Condition
		r := newReport(start)
		for _, w := range []*desiredSecret{{}, {request: &clientcert.AddOn{}}} {
			r.add(w, secretState{notBefore: start, notAfter: start.Add(time.Hour)})
		}
		r.write(&conditions)
		if len(conditions) != 2 || conditions[0].Type != "ClusterCertificateRotated" || conditions[1].Type != "TokenRefreshed" {
			t.Fatalf("%+v", conditions)
		}
	}
}

// RG-64 RG-53: one condition for each way to a credential, about what ends or failed first.
func TestReport(t *testing.T) {
	t.Parallel()
	certificate, token := &desiredSecret{request: &clientcert.AddOn{}}, &desiredSecret{}
	certificate.secret.Namespace, certificate.secret.Name = "ns", "s"
	conditions := []metav1.Condition{{Type: "ClusterCertificateRotated", Status: "True"}, {Type: "Available", Status: "True"}}
	write := func(add func(*report)) (lines []string) {
		r := newReport(start)
		add(r)
		r.write(&conditions)
		for _, cond := range conditions {
			lines = append(lines, cond.Type+" "+string(cond.Status)+" "+cond.Reason+" "+cond.Message)
		}
		if !r.next.Equal(start.Add(time.Minute)) && !r.next.Equal(start.Add(resync)) {
			t.Errorf("comes back at %s", r.next)
		}
		return lines
	}
	expect := func(got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("got %q, want %q", got, want)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("got %q, want %q", got[i], want[i])
			}
		}
	}
	expect(write(func(r *report) {
		r.add(certificate, secretState{notBefore: start, notAfter: start.Add(3 * time.Hour), due: start.Add(time.Hour)})
		r.add(certificate, secretState{notBefore: start, notAfter: start.Add(2 * time.Hour), due: start.Add(time.Minute)})
	}), "ClusterCertificateRotated True ClientCertificateUpdated The client certificate is valid from 2026-11-21T12:00:00Z to 2026-11-21T14:00:00Z", "Available")
	expect(write(func(r *report) {
		r.add(certificate, secretState{notAfter: start.Add(time.Hour), err: errors.New("no luck")})
		r.add(token, secretState{notBefore: start, notAfter: start.Add(time.Hour)})
	}), "ClusterCertificateRotated False ClientCertificateUpdateFailed Secret ns/s, which holds a credential until 2026-11-21T13:00:00Z, could not be brought up to date: no luck",
		"Available", "TokenRefreshed True AddonTokenRefreshed The token is valid from")
	expect(write(func(r *report) { r.add(token, secretState{err: errors.New("no luck")}) }),
		"Available", "TokenRefreshed False TokenCreationFailed Secret / could not be brought up to date: no luck")
	expect(write(func(r *report) { r.add(token, secretState{}) }), "Available", "TokenRefreshed False")
	expect(write(func(*report) {}), "Available")
}
