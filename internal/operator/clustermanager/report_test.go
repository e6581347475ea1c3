package clustermanager

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

// CM-23: a condition reports certificates of users that cannot be used.
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

// CM-24, CM-26: the condition is only true when nothing is stored in an old version any more.
func TestMigrated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left string
		err  error
		want string
	}{
		"nothing old": {want: "True StorageVersionMigrationSucceed Nothing is stored in an old version"},
		"while Deployments roll": {left: "sets (v1beta1)", want: "False StorageVersionMigrationProcessing " +
			"Objects may be stored in old versions, and are migrated once the Deployments run: sets (v1beta1)"},
		"an error":                  {err: errors.New("no"), want: "False StorageVersionMigrationFailed no"},
		"an error that leaves some": {left: "sets (v1beta1)", err: errors.New("no"), want: "False StorageVersionMigrationFailed no"},
	} {
		cm := &operatorv1.ClusterManager{}
		err := newReport(cm).migrated(test.left, test.err)
		condition := meta.FindStatusCondition(cm.Status.Conditions, "MigrationSucceeded")
		if got := fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message); got != test.want ||
			!errors.Is(err, test.err) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
