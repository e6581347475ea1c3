package clustermanager

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

// CM-23: a condition tells about certificates of users that cannot be used.
func TestUnusableCertificates(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{}
	r := newReport(cm)
	supported := func() metav1.Condition {
		r.configuration(newPlanned(cm, testInputs(cm)))
		return *meta.FindStatusCondition(cm.Status.Conditions, conditionConfigurationSupported)
	}
	if got := supported(); got.Status != metav1.ConditionTrue {
		t.Errorf("%v", got)
	}
	r.certificates([]string{"Secret hub/work-webhook-serving-cert: its certificate expired"})
	got := meta.FindStatusCondition(cm.Status.Conditions, conditionConfigurationSupported)
	if got.Status != metav1.ConditionFalse || got.Reason != reasonUnusableCertificates ||
		!strings.Contains(got.Message, "work-webhook-serving-cert") {
		t.Errorf("%v", got)
	}
	if got := supported(); got.Status != metav1.ConditionTrue {
		t.Errorf("corrected: %v", got)
	}
}
