package autoaccept_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/autoaccept"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// R8, RG-14: a cluster that was accepted before is not accepted again, even if its agent has wiped all traces from what it may
// write, and a request for a former cluster of its name accepts none.
func TestAcceptedOnce(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		finalizers  []string
		annotations map[string]string
		requested   time.Duration // after the cluster was created
		want        bool
	}{
		"new":                                {want: true},
		"accepted before":                    {finalizers: []string{fleet.FinalizerManagedCluster}, want: false},
		"requested while a webhook was down": {requested: -5 * time.Minute, want: true},
		"requested for a former cluster":     {requested: -5*time.Minute - time.Second, want: false},
		"requested before it was created": {requested: -time.Second, annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T12:00:00Z"}, want: true},
		"requested five minutes before it was created": {requested: -5 * time.Minute, annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T12:00:00Z"}, want: true},
		"requested for a former cluster, by its certificates": {requested: -5*time.Minute - time.Second, annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T12:00:00Z"}, want: false},
		"requested since it was created": {annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T12:00:00Z"}, want: true},
		"requested before it was restored": {requested: -time.Second, annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-04-01T12:00:00Z"}, want: true},
		"requested before it was cut off and restored": {requested: -2 * time.Minute, annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T11:59:00Z"}, want: false},
		"requested before it was cut off": {annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T12:00:01Z"}, want: false},
		"requested since it was cut off": {requested: time.Second, annotations: map[string]string{
			"capstan.io/credentials-not-before": "2026-05-01T12:00:01Z"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: test.finalizers,
				Annotations: test.annotations, CreationTimestamp: metav1.NewTime(created)}}
			request := approvedRequest(t, "c1", "trusted")
			request.CreationTimestamp = metav1.NewTime(created.Add(test.requested))
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, clusterv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, request).
				WithIndex(&certificatesv1.CertificateSigningRequest{}, signingrequest.IndexCluster, signingrequest.ClusterOf).Build()
			controller := autoaccept.New(c, events.NewFakeRecorder(10), autoaccept.Options{Users: []string{"trusted"}, Clock: clock.RealClock{}})
			if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			if cluster.Spec.HubAcceptsClient != test.want {
				t.Errorf("accepted: %v, want %v", cluster.Spec.HubAcceptsClient, test.want)
			}
			marked := controllerutil.ContainsFinalizer(cluster, fleet.FinalizerManagedCluster)
			if marked != (test.want || test.finalizers != nil) {
				t.Errorf("the finalizers are %q", cluster.Finalizers)
			}
		})
	}
}

// RG-14: a cluster of AWS is accepted if its whole ARN is one that is trusted, its annotations are those of that ARN and this hub, and no
// other cluster claims that: anyone who may join can.
func TestAcceptedByARN(t *testing.T) {
	t.Parallel()
	pair := eks.Pair{Hub: eks.Cluster{Region: "us-west-2", Account: "123456789012", Name: "hub1"},
		Managed: eks.Cluster{Region: "us-west-2", Account: "210987654321", Name: "c1"}}
	other := pair
	other.Hub.Name = "hub2"
	second := pair
	second.Managed.Name = "c2"
	elsewhere := pair // whose role is the same
	elsewhere.Managed.Region = "us-east-1"
	withoutSuffix := map[string]string{fleet.AnnotationManagedClusterARN: pair.Managed.ARN()}
	for name, test := range map[string]struct {
		pattern     string
		annotations map[string]string
		rival       map[string]string // annotations of another cluster
		want        bool
		contested   bool // by the rival
	}{
		"trusted":                   {"arn:aws:eks:us-west-2:210987654321:cluster/.*", pair.Annotations(), nil, true, false},
		"part of its ARN":           {"arn:aws:eks:us-west-2:210987654321:cluster/", pair.Annotations(), nil, false, false},
		"for another hub":           {".*", other.Annotations(), nil, false, false},
		"without annotations":       {".*", nil, nil, false, false},
		"without a suffix":          {".*", withoutSuffix, nil, false, false},
		"claimed by another":        {".*", pair.Annotations(), pair.Annotations(), false, true},
		"whose role another claims": {".*", pair.Annotations(), elsewhere.Annotations(), false, true},
		"claimed without a suffix":  {".*", pair.Annotations(), withoutSuffix, true, false},
		"beside another":            {".*", pair.Annotations(), second.Annotations(), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patterns, err := eks.ParsePatterns([]string{test.pattern})
			if err != nil {
				t.Fatal(err)
			}
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Annotations: test.annotations}}
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, clusterv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			rival := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "another", Annotations: test.rival}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, rival).
				WithIndex(&clusterv1.ManagedCluster{}, autoaccept.IndexRole, autoaccept.RoleOf(pair.Hub)).
				WithIndex(&certificatesv1.CertificateSigningRequest{}, signingrequest.IndexCluster, signingrequest.ClusterOf).Build()
			recorder := events.NewFakeRecorder(10)
			controller := autoaccept.New(c, recorder, autoaccept.Options{ARNs: patterns, Hub: pair.Hub, Clock: clock.RealClock{}})
			accepts := func() bool {
				if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
					t.Fatal(err)
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
					t.Fatal(err)
				}
				return cluster.Spec.HubAcceptsClient
			}
			if got := accepts(); got != test.want {
				t.Errorf("accepted: %v, want %v", got, test.want)
			}
			if !test.contested {
				if n := len(recorder.Events); n > 0 {
					t.Errorf("%d events, one of them: %s", n, <-recorder.Events)
				}
				return
			}
			const advice = "kubectl delete managedcluster NAME"
			if event := <-recorder.Events; !strings.Contains(event, "ManagedClusterAutoAcceptanceWithheld ManagedCluster another claims arn:") ||
				!strings.HasSuffix(event, advice) {
				t.Errorf("event %s", event)
			}
			if err := c.Delete(t.Context(), rival); err != nil {
				t.Fatal(err)
			}
			if !accepts() {
				t.Error("it is not accepted when the other one is gone")
			}
		})
	}
}

// approvedRequest is the request of a user for an agent of the cluster, approved by the hub.
func approvedRequest(t *testing.T, cluster, user string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: fleet.ClusterUser(cluster, "a1"), Organization: fleet.ClusterGroups(cluster)},
		nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{fleet.LabelClusterName: cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, Username: user, SignerName: fleet.SignerKubeAPIServerClient,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
		Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: fleet.CSRApprovalReason},
		}},
	}
}
