package clientcert_test

import (
	"context"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
)

// RG-06 RG-07: what becomes of a request while the agent cannot reach the hub is found out when it can again. The watch that it
// begins then tells of nothing but what happens from then on.
func TestDecidedWithoutAWatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens     func(context.Context, client.Client, *certificatesv1.CertificateSigningRequest) error
		certificate string
		err         string
	}{
		"deleted": {func(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
			return hub.Delete(ctx, csr)
		}, "", "was deleted"},
		"issued": {func(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Certificate = []byte("issued")
			return hub.Status().Update(ctx, csr)
		}, "issued", ""},
		"denied": {func(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
			return hub.Status().Update(ctx, csr)
		}, "", "was denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watches := 0
			hub := interceptor.NewClient(newHub(), interceptor.Funcs{
				Watch: func(ctx context.Context, hub client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
					w := watch.NewFake()
					if watches++; watches > 1 {
						return w, nil
					}
					// The first one breaks.
					go func() {
						defer w.Stop()
						list := &certificatesv1.CertificateSigningRequestList{}
						if err := hub.List(ctx, list); err != nil || len(list.Items) != 1 {
							t.Errorf("requests %v, %v", list.Items, err)
							return
						}
						if err := test.happens(ctx, hub, &list.Items[0]); err != nil {
							t.Error(err)
						}
					}()
					return w, nil
				},
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			certificate, _, err := (&clientcert.Requester{Hub: hub, Identity: self}).Request(ctx)
			if string(certificate) != test.certificate || (err == nil) != (test.err == "") || err != nil &&
				!strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v", certificate, err)
			}
		})
	}
}
