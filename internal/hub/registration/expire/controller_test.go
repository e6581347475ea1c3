package expire_test

import (
	"context"
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/expire"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// ManagedClusters that joiners made and nobody accepts expire. Those that administrators made, or decided on, or whose agent still tries to
// join, stay, and so do all that the hub may not delete: it tries again in an hour, without an error. Times are compared every few minutes,
// as timers stand still while a machine does.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const after = 24 * time.Hour
	now := time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		age     time.Duration
		change  func(*clusterv1.ManagedCluster)
		request *certificatesv1.CertificateSigningRequest
		refused bool
		gone    bool
		again   time.Duration
	}{
		"new":                              {age: time.Hour, again: 5 * time.Minute},
		"almost old":                       {age: after - time.Minute, again: time.Minute},
		"old":                              {age: after, gone: true},
		"old and kept":                     {age: after, refused: true, again: time.Hour},
		"old and still asks":               {age: after, request: &certificatesv1.CertificateSigningRequest{}, again: time.Hour},
		"old and approved within the hour": {age: after, request: requestThatIs(certificatesv1.CertificateApproved), again: time.Hour},
		"old and denied a certificate":     {age: after, request: requestThatIs(certificatesv1.CertificateDenied), gone: true},
		"old and approved one that cannot be signed": {age: after, gone: true,
			request: requestThatIs(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed)},
		"made by an administrator": {age: after, change: func(c *clusterv1.ManagedCluster) { c.Annotations = nil }},
		"accepted":                 {age: after, change: func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true }},
		"accepted once": {age: after,
			change: func(c *clusterv1.ManagedCluster) { c.Finalizers = []string{fleet.FinalizerManagedCluster} }},
		"denied": {age: after, change: func(c *clusterv1.ManagedCluster) {
			c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, clusterv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
				Name: "c1", UID: "1", CreationTimestamp: metav1.NewTime(now.Add(-test.age)),
				Annotations: map[string]string{fleet.AnnotationRequestedBy: "system:bootstrap:abcdef"},
			}}
			if test.change != nil {
				test.change(cluster)
			}
			objects := []client.Object{cluster}
			if test.request != nil {
				test.request.ObjectMeta = metav1.ObjectMeta{Name: "r", Labels: map[string]string{fleet.LabelClusterName: "c1"}}
				objects = append(objects, test.request)
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithIndex(&certificatesv1.CertificateSigningRequest{}, signingrequest.IndexCluster, signingrequest.ClusterOf).
				WithInterceptorFuncs(interceptor.Funcs{
					Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
						if test.refused {
							return apierrors.NewForbidden(schema.GroupResource{Resource: "managedclusters"}, o.GetName(), errors.New("no such rule"))
						}
						return c.Delete(ctx, o, options...)
					},
				}).Build()
			controller := expire.New(api, expire.Options{After: after, Clock: clocktesting.NewFakeClock(now)})
			result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
			if err != nil || result.RequeueAfter != test.again {
				t.Errorf("again after %s, error %v, want %s", result.RequeueAfter, err, test.again)
			}
			err = api.Get(t.Context(), client.ObjectKeyFromObject(cluster), &clusterv1.ManagedCluster{})
			if apierrors.IsNotFound(err) != test.gone {
				t.Errorf("gone: %v, want %t", err, test.gone)
			}
		})
	}
}

func requestThatIs(decisions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	request := &certificatesv1.CertificateSigningRequest{}
	for _, decision := range decisions {
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: decision})
	}
	return request
}
