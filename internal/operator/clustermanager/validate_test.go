package clustermanager

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CM-04: a hosted hub whose webhooks could not be reached is refused with the fields that are missing, before anything is applied.
func TestHostedWithoutAddresses(t *testing.T) {
	t.Parallel()
	const registration, work = "spec.deployOption.hosted.registrationWebhookConfiguration.address is empty",
		"spec.deployOption.hosted.workWebhookConfiguration.address is empty"
	for name, test := range map[string]struct {
		edit func(*operatorv1.ClusterManager)
		want []string
	}{
		"default": {edit: func(*operatorv1.ClusterManager) {}},
		"both":    {edit: hostedAt("hub.example.com")},
		"neither": {want: []string{registration, work}, edit: func(cm *operatorv1.ClusterManager) {
			cm.Spec.DeployOption.Mode = operatorv1.InstallModeHosted
		}},
		"name": {want: []string{`metadata.name is "open-cluster-management-hub"`}, edit: func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			cm.Name = fleet.NamespaceHub
		}},
		"one": {want: []string{work}, edit: func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			cm.Spec.DeployOption.Hosted.WorkWebhookConfiguration = operatorv1.HostedWebhookConfiguration{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
			test.edit(cm)
			err := validate(cm)
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say: %s", err, want)
				}
			}
			if err == nil {
				return
			}
			// The controller has no client: it would panic if it sent a request.
			if due, refused := (&Controller{}).install(t.Context(), cm); refused != nil || due != 0 {
				t.Errorf("due %s, error %v", due, refused)
			}
			applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
			if applied == nil || applied.Status != metav1.ConditionFalse || applied.Message != err.Error() {
				t.Errorf("condition %v", applied)
			}
		})
	}
}
