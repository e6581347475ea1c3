package conversion

import (
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const rounds = 500

// WH-13: there and back again, nothing is lost but what has no place on the other side.
func TestRoundTripClusterManagementAddOn(t *testing.T) {
	t.Parallel()
	fill := filler(t)
	for range rounds {
		stored := new(addonv1alpha1.ClusterManagementAddOn)
		fill.Fill(stored)
		stored.Spec.AddOnConfiguration = addonv1alpha1.ConfigCoordinates{}
		beforeStored := stored.DeepCopy()
		expectSame(t, beforeStored, ClusterManagementAddOnToV1Alpha1(ClusterManagementAddOnToV1Beta1(stored)))
		expectSame(t, beforeStored, stored)

		served := new(addonv1beta1.ClusterManagementAddOn)
		fill.Fill(served)
		expectSame(t, served.DeepCopy(), ClusterManagementAddOnToV1Beta1(ClusterManagementAddOnToV1Alpha1(served)))
	}
}

// WH-13: there and back again, nothing is lost but what has no place on the other side.
func TestRoundTripManagedClusterAddOn(t *testing.T) {
	t.Parallel()
	fill := filler(t)
	for range rounds {
		stored := new(addonv1alpha1.ManagedClusterAddOn)
		fill.Fill(stored)
		forgetWhatV1Beta1Lacks(stored)
		beforeStored := stored.DeepCopy()
		back, err := ManagedClusterAddOnToV1Alpha1(ManagedClusterAddOnToV1Beta1(stored))
		if err != nil {
			t.Fatal(err)
		}
		expectSame(t, beforeStored, back)
		expectSame(t, beforeStored, stored)

		served := new(addonv1beta1.ManagedClusterAddOn)
		fill.Fill(served)
		forgetWhatV1Alpha1Lacks(served)
		beforeServed := served.DeepCopy()
		converted, err := ManagedClusterAddOnToV1Alpha1(served)
		if err != nil {
			t.Fatal(err)
		}
		expectSame(t, beforeServed, ManagedClusterAddOnToV1Beta1(converted))
		expectSame(t, beforeServed, served)
	}
}

// forgetWhatV1Beta1Lacks is the list of all that does not survive in v1beta1.
func forgetWhatV1Beta1Lacks(addOn *addonv1alpha1.ManagedClusterAddOn) {
	addOn.Status.AddOnConfiguration = addonv1alpha1.ConfigCoordinates{}
	forHub := false
	for i := range addOn.Status.Registrations {
		if addOn.Status.Registrations[i].SignerName == fleet.SignerKubeAPIServerClient {
			forHub = true
			addOn.Status.Registrations[i].Subject.OrganizationUnits = nil
		}
	}
	if !forHub {
		addOn.Status.KubeClientDriver = ""
	}
	for i := range addOn.Status.ConfigReferences {
		reference := &addOn.Status.ConfigReferences[i]
		reference.ConfigReferent = addonv1beta1.ConfigReferent{}
		if reference.DesiredConfig != nil {
			reference.ConfigReferent = reference.DesiredConfig.ConfigReferent
		}
	}
}

// forgetWhatV1Alpha1Lacks is the list of all that does not survive in v1alpha1.
func forgetWhatV1Alpha1Lacks(addOn *addonv1beta1.ManagedClusterAddOn) {
	var first addonv1beta1.KubeClientDriver
	for _, registration := range addOn.Status.Registrations {
		if first == "" && registration.KubeClient != nil {
			first = registration.KubeClient.Driver
		}
	}
	for i := range addOn.Status.Registrations {
		if addOn.Status.Registrations[i].KubeClient != nil {
			addOn.Status.Registrations[i].KubeClient.Driver = first
		}
	}
}

func expectSame(t *testing.T, want, got any) {
	t.Helper()
	// The kind is tested elsewhere; and what is empty is written like what is not there.
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
		t.Fatalf("- went in, + came out:\n%s", diff)
	}
}

// filler fills objects at random, but with registrations that fit their types and namespaces that are some.
func filler(t *testing.T) *randfill.Filler {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	return randfill.New().RandSource(rand.NewSource(seed)).NilChance(0.3).NumElements(1, 4).Funcs(
		func(spec *addonv1alpha1.ManagedClusterAddOnSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.InstallNamespace = []string{"", "ns", "open-cluster-management-agent-addon"}[c.Intn(3)]
		},
		func(registration *addonv1alpha1.RegistrationConfig, c randfill.Continue) {
			c.FillNoCustom(registration)
			if c.Bool() {
				registration.SignerName = fleet.SignerKubeAPIServerClient
			}
		},
		func(registration *addonv1beta1.RegistrationConfig, c randfill.Continue) {
			if c.Bool() {
				registration.Type, registration.KubeClient = addonv1beta1.KubeClient, new(addonv1beta1.KubeClientConfig)
				c.Fill(registration.KubeClient)
			} else {
				registration.Type, registration.CustomSigner = addonv1beta1.CustomSigner, new(addonv1beta1.CustomSignerConfig)
				c.Fill(registration.CustomSigner)
			}
		},
	)
}
