package autoapprove

import (
	"context"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// The requests of a cluster are looked at again when what they were withheld for is over, and not whenever it changes.
func TestIsReleased(t *testing.T) {
	t.Parallel()
	cluster := func(accepted bool, labels map[string]string, conditions ...metav1.Condition) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: labels}}
		c.Spec.HubAcceptsClient, c.Status.Conditions = accepted, conditions
		return c
	}
	decided := metav1.Condition{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionFalse}
	available := metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionTrue}
	unknown := metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionUnknown}
	cut := map[string]string{"capstan.io/cut-off": "true"}
	for name, test := range map[string]struct {
		before, after *clusterv1.ManagedCluster
		want          bool
	}{
		"lost":                        {cluster(true, nil, available), cluster(true, nil, unknown), true},
		"found":                       {cluster(true, nil, unknown), cluster(true, nil, available), false},
		"a heartbeat":                 {cluster(true, nil, available), cluster(true, nil, available), false},
		"denied while lost":           {cluster(true, nil, decided, unknown), cluster(false, nil, decided, unknown), false},
		"accepted again":              {cluster(false, nil, decided, unknown), cluster(true, nil, decided, unknown), true},
		"accepted after the cut-off":  {cluster(false, cut), cluster(true, cut), true},
		"no longer cut off":           {cluster(false, cut), cluster(false, nil), true},
		"no longer cut off, denied":   {cluster(false, cut, decided), cluster(false, nil, decided), false},
		"accepted for the first time": {cluster(false, nil), cluster(true, nil), false},
	} {
		if got := isReleased().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if isReleased().Create(event.CreateEvent{Object: cluster(true, nil)}) {
		t.Error("a new cluster is one that its requests waited for")
	}
	if !isReleased().Delete(event.DeleteEvent{Object: cluster(true, nil)}) {
		t.Error("a cluster that has gone still withholds its requests")
	}
}

// Many clusters may be lost at once: the undecided requests of each are found by its index, without a look at those of all.
func TestWithheldRequestsOfACluster(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	request := func(name, cluster string, conditions ...certificatesv1.CertificateSigningRequestCondition) client.Object {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"open-cluster-management.io/cluster-name": cluster}},
			Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: conditions},
		}
	}
	denied := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied}
	hub := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(request("undecided", "c1"), request("denied", "c1", denied), request("of-another", "c2")).
		WithIndex(&certificatesv1.CertificateSigningRequest{}, signingrequest.IndexCluster, signingrequest.ClusterOf).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if (&client.ListOptions{}).ApplyOptions(opts).FieldSelector == nil {
					t.Error("the requests of all clusters are read")
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	want := []ctrl.Request{{NamespacedName: client.ObjectKey{Name: "undecided"}}}
	if got := New(hub, nil, Options{}).withheld(t.Context(), cluster); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
