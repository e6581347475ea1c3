package addons

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// AF-23: what an add-on knows from elsewhere reaches the hub when it says so: its manifests, and whether it wants a certificate.
func TestEngineTrigger(t *testing.T) {
	t.Parallel()
	const cluster, name = "engine-trigger", "engine-trigger"
	framework.AcceptAll(t, cluster)
	h := framework.Hub.Client(t)
	a := newEngineAgent(name, engineConfigMap("default", name, "before"))
	var desired atomic.Bool
	a.options.Registration.Approve = func(context.Context, addon.Installation, *certificatesv1.CertificateSigningRequest) (bool, error) {
		return desired.Load(), nil
	}
	var signs atomic.Bool
	var asked atomic.Int32
	certificate, key := engineAuthority(t)
	signWith, err := addon.SignWith(certificate, key, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a.options.Registration.Sign = func(ctx context.Context, i addon.Installation, csr *certificatesv1.CertificateSigningRequest) ([]byte,
		error) {
		if !signs.Load() {
			asked.Add(1)
			return nil, nil
		}
		return signWith(ctx, i, csr)
	}
	m := runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied")
	csr, _ := engineRequest(t, cluster, name, fleet.SignerKubeAPIServerClient, engineSubject(cluster, name))
	framework.Create(t, framework.AsAgent(t, framework.Hub, cluster), csr)
	awaitEngineWithheld(t, addOn, csr.Name)
	deploys := func(value string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			work := &workv1.ManifestWork{}
			err := h.Get(ctx, client.ObjectKey{Namespace: cluster, Name: "addon-" + name + "-deploy-0"}, work)
			if err != nil || strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), value) {
				return err
			}
			return fmt.Errorf("the work has %s, want %s", work.Spec.Workload.Manifests[0].Raw, value)
		})
	}
	deploys("before")

	a.set(func(a *engineAgent) { a.objects[0] = engineConfigMap("default", name, "after") })
	desired.Store(true)
	m.Trigger(cluster, name)
	deploys("after")
	awaitEngineIssued(t, csr)
	// What nobody signs now, a user may later.
	for attempt, again := range []func(){
		func() { m.Trigger(cluster, name) },
		func() {
			framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = nil })
		},
	} {
		signs.Store(false)
		asked.Store(0)
		csr, _ := engineRequest(t, cluster, name, engineSigner, pkix.Name{CommonName: name, Organization: []string{"engines"}})
		framework.Create(t, framework.AsAgent(t, framework.Hub, cluster), csr)
		env.Eventually(t, func(context.Context) error {
			if asked.Load() == 0 {
				return fmt.Errorf("nobody is asked to sign CertificateSigningRequest %d", attempt)
			}
			return nil
		})
		signs.Store(true)
		again()
		awaitEngineIssued(t, csr)
	}
}
