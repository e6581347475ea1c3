package install_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/fleet"
)

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
		"nobody has said":           {"host", []string{fleet.ConditionRegistrationApplied, fleet.ConditionConfigured}, false, false},
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
