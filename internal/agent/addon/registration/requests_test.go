package registration

import (
	"context"
	"crypto/x509/pkix"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-60: a request that waits when the hub cuts the cluster off is never decided upon. Once the cluster is accepted again, another is made.
func TestRequestFromBeforeACutOff(t *testing.T) {
	t.Parallel()
	self := identity.Identity{Cluster: "c1", Agent: "a1"}
	keys := hubkubeconfig.PendingKey{File: filepath.Join(t.TempDir(), "key"), InUse: func() []byte { return nil }}
	key, _, err := keys.PendingKey()
	if err != nil {
		t.Fatal(err)
	}
	desired := &clientcert.AddOn{Name: "hello", SignerName: "example.com/a", Subject: pkix.Name{CommonName: "hello"}}
	asked, err := cert.MakeCSR(key, &desired.Subject, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(&certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "earlier", CreationTimestamp: metav1.NewTime(start),
			Labels: map[string]string{fleet.LabelClusterName: self.Cluster, fleet.LabelAddOnName: desired.Name}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Username: self.User(), Request: asked, SignerName: desired.SignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
				certificatesv1.UsageClientAuth}},
	}).Build()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	all := &requests{}
	if err := all.Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	created := make(chan struct{}, 1)
	w := &desiredSecret{addOn: desired.Name}
	for i, notBefore := range []time.Time{start, start.Add(time.Hour)} {
		owner := reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(i)}}
		obtained := all.obtain(w.id(), owner, &clientcert.Requester{Hub: hub, Keys: keys, Identity: self, AddOn: desired,
			Renews: true, NotBefore: notBefore, Record: func(_, reason, _, _ string, _ ...any) {
				if reason == fleet.EventCSRCreated {
					created <- struct{}{}
				}
			}})
		if obtained != nil {
			t.Errorf("got %+v at once", obtained)
		}
	}
	select {
	case <-created:
	case <-ctx.Done():
		t.Error("no other request is made")
	}
	stop()
	for range 2 { // whose folder goes with the test
		queue.Get()
	}
}
