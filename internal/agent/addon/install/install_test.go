package install_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-60, RG-63: an add-on is not hosted if no condition says after half a minute whether it is.
func TestModeTimeout(t *testing.T) {
	t.Parallel()
	start, places := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), install.Modes{}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	addOn.UID = "1"
	metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, fleet.AnnotationHostingClusterName, "host")
	expect := func(after time.Duration, hosted bool, wait time.Duration) {
		t.Helper()
		if got, left := places.Hosted(addOn, start.Add(after)); got != hosted || left != wait {
			t.Errorf("after %s: hosted %t, to be known in %s", after, got, left)
		}
	}
	expect(0, false, 30*time.Second)
	expect(29*time.Second, false, time.Second)
	expect(30*time.Second, false, 0)
	expect(time.Hour, false, 0)
	addOn.UID = "2"
	expect(time.Hour, false, 30*time.Second)
	addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHostingClusterValidity, Status: metav1.ConditionTrue}}
	expect(time.Hour, true, 0)
	addOn.Status.Conditions = nil
	expect(2*time.Hour, false, 30*time.Second)
}

// AM-03, RG-60, RG-63: the annotation of a cluster makes none of its add-ons a hosted one.
func TestHosted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hosting       string
		conditions    []string
		hosted, known bool
	}{
		"in default mode":           {"", nil, false, true},
		"in default mode again":     {"", []string{fleet.ConditionHostingClusterValidity}, false, true},
		"not said yet":              {"host", []string{fleet.ConditionRegistrationApplied, fleet.ConditionConfigured}, false, false},
		"hosted":                    {"host", []string{fleet.ConditionHostingClusterValidity}, true, true},
		"hosted, and deployed":      {"host", []string{fleet.ConditionManifestApplied, fleet.ConditionHostingClusterValidity}, true, true},
		"does not know hosted mode": {"host", []string{fleet.ConditionManifestApplied}, false, true},
	} {
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, fleet.AnnotationHostingClusterName, test.hosting)
		for _, condition := range test.conditions {
			addOn.Status.Conditions = append(addOn.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse})
		}
		if hosted, known := install.Hosted(addOn); hosted != test.hosted || known != test.known {
			t.Errorf("%s: hosted %t, known %t", name, hosted, known)
		}
	}
}
