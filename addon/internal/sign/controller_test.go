package sign_test

import (
	"context"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/sign"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

const signer = "example.com/hello"

// hello signs everything.
type hello struct{ addon.Agent }

func (hello) Options() addon.Options {
	return addon.Options{Name: "hello", Registration: &addon.Registration{
		Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
			return []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.CustomSigner,
				CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: signer}}}, nil
		},
		Sign: func(context.Context, addon.Installation, *certificatesv1.CertificateSigningRequest) ([]byte, error) {
			return []byte("certificate"), nil
		},
	}}
}

// "No new certificates": a request that was approved before its cluster was denied is signed only if the cluster is accepted again.
func TestNothingIsSignedForADeniedCluster(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	cluster.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"open-cluster-management.io/cluster-name": "c1",
			"open-cluster-management.io/addon-name": "hello"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer},
		Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved}}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, addOn, csr).WithStatusSubresource(csr).Build()
	agents, err := catalogue.Of(hello{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(1)
	controller := sign.New(c, recorder, sign.Options{Catalogue: agents})
	for _, accepted := range []bool{false, true} {
		cluster.Spec.HubAcceptsClient = accepted
		if err := c.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			t.Fatal(err)
		}
		if signed := len(csr.Status.Certificate) > 0; signed != accepted {
			t.Errorf("accepted: %t, signed: %t", accepted, signed)
		}
		if again := result.RequeueAfter > 0; again == accepted {
			t.Errorf("accepted: %t, looked at again: %t", accepted, again)
		}
		if said := len(recorder.Events) > 0; said == accepted {
			t.Errorf("accepted: %t, an event: %t", accepted, said)
		} else if said {
			if event := <-recorder.Events; !strings.Contains(event, "is not signed: ManagedCluster c1 is denied") {
				t.Error(event)
			}
		}
	}
}

// What was requested before the cluster was cut off may have been requested by whoever took it over: it is not signed when the cluster is
// accepted again.
func TestNothingIsSignedFromBeforeACutOff(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cutOff := time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1",
			Annotations: map[string]string{"capstan.io/credentials-not-before": cutOff.Format(time.RFC3339)}},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	request := func(name string, created time.Time) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(created),
				Labels: map[string]string{"open-cluster-management.io/cluster-name": "c1", "open-cluster-management.io/addon-name": "hello"}},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer},
			Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved}}},
		}
	}
	before, after := request("before", cutOff.Add(-time.Second)), request("after", cutOff)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, addOn, before, after).WithStatusSubresource(before).Build()
	agents, err := catalogue.Of(hello{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(2)
	for _, csr := range []*certificatesv1.CertificateSigningRequest{before, after} {
		if _, err := sign.New(c, recorder, sign.Options{Catalogue: agents}).Reconcile(t.Context(),
			ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			t.Fatal(err)
		}
		if signed := len(csr.Status.Certificate) > 0; signed != (csr == after) {
			t.Errorf("the request from %s is signed: %t", csr.Name, signed)
		}
	}
	if event := <-recorder.Events; !strings.Contains(event,
		"CertificateSigningRequest before is not signed: it is older than the certificates that hold") {
		t.Error(event)
	}
}
