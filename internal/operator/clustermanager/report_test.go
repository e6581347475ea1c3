package clustermanager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-23: a condition reports certificates of users that cannot be used, next to what else is not done. It changes only when that does.
func TestUnusableCertificates(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{}
	problems := []string{"Secret hub/work-webhook-serving-cert: its certificate expired"}
	report := func(problems []string) metav1.Condition {
		newReport(cm).configuration(newPlanned(cm, testInputs(cm)), problems)
		return *meta.FindStatusCondition(cm.Status.Conditions, conditionConfigurationSupported)
	}
	if got := report(nil); got.Status != metav1.ConditionTrue {
		t.Errorf("%v", got)
	}
	if got := report(problems); got.Status != metav1.ConditionFalse || got.Reason != reasonUnusableCertificates || got.Message != problems[0] {
		t.Errorf("%v", got)
	}
	since := metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	cm.Status.Conditions[0].LastTransitionTime = since
	if got := report(problems); !got.LastTransitionTime.Equal(&since) {
		t.Errorf("it seems to be so since %s", got.LastTransitionTime)
	}
	cm.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{WorkDriver: "mqtt"}
	if got := report(problems); got.Status != metav1.ConditionFalse || got.Reason != reasonUnsupportedFields ||
		!strings.Contains(got.Message, "workDriver") || !strings.Contains(got.Message, problems[0]) {
		t.Errorf("%v", got)
	}
	cm.Spec.WorkConfiguration = nil
	if got := report(nil); got.Status != metav1.ConditionTrue {
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

// CM-24: conditions say how the Deployments do that there are, for the generation of now; their times change with their status alone.
func TestComponents(t *testing.T) {
	t.Parallel()
	running := func(namespace, component string, available int32) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "indigo-" + component},
			Spec:   appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{}},
			Status: appsv1.DeploymentStatus{AvailableReplicas: available}}
	}
	const (
		registrationWorks = "False RegistrationFunctional The registration controllers work"
		placementWorks    = "False PlacementFunctional The placement controllers work"
		placementMissing  = `True GetPlacementDeploymentFailed deployments.apps "indigo-placement-controller" not found`
	)
	for name, test := range map[string]struct {
		edit                    func(*operatorv1.ClusterManager)
		deployments             []client.Object
		registration, placement string
		due                     time.Duration
	}{
		"all work": {edit: named("indigo"), registration: registrationWorks, placement: placementWorks,
			deployments: []client.Object{running(fleet.NamespaceHub, registrationController, 2),
				running(fleet.NamespaceHub, placementController, 3)}},
		"one is missing": {edit: named("indigo"), registration: registrationWorks, placement: placementMissing,
			deployments: []client.Object{running(fleet.NamespaceHub, registrationController, 2)}},
		"none is there": {edit: named("indigo"), placement: placementMissing,
			registration: `True GetRegistrationDeploymentFailed deployments.apps "indigo-registration-controller" not found`},
		"a pod is missing": {edit: named("indigo"), placement: placementWorks, due: frame.PollInterval,
			registration: "True UnavailableRegistrationPod 1 of 2 pods of Deployment open-cluster-management-hub/indigo-registration-controller " +
				"are unavailable",
			deployments: []client.Object{running(fleet.NamespaceHub, registrationController, 1),
				running(fleet.NamespaceHub, placementController, 2)}},
		"hosted": {edit: named("indigo", hostedAt("hub.example.com")), registration: registrationWorks, placement: placementMissing,
			deployments: []client.Object{running("indigo", registrationController, 2), running(fleet.NamespaceHub, placementController, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &operatorv1.ClusterManager{}
			test.edit(cm)
			cm.Generation = 2
			earlier := metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
			for _, d := range degradations {
				cm.Status.Conditions = append(cm.Status.Conditions, metav1.Condition{Type: d.condition, Status: metav1.ConditionFalse,
					Reason: d.functional, Message: d.works, ObservedGeneration: 1, LastTransitionTime: earlier})
			}
			c := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(test.deployments...).Build()
			due := (&report{cm}).components(t.Context(), c, func(ctx context.Context, key types.NamespacedName) (*appsv1.Deployment, error) {
				live := &appsv1.Deployment{}
				return live, c.Get(ctx, key, live)
			})
			if due != test.due {
				t.Errorf("due in %s, want %s", due, test.due)
			}
			for kind, want := range map[string]string{fleet.ConditionHubRegistrationDegraded: test.registration,
				fleet.ConditionHubPlacementDegraded: test.placement} {
				condition := meta.FindStatusCondition(cm.Status.Conditions, kind)
				if got := fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message); got != want {
					t.Errorf("%s is %s, want %s", kind, got, want)
				}
				if condition.ObservedGeneration != 2 ||
					condition.LastTransitionTime.Equal(&earlier) != (condition.Status == metav1.ConditionFalse) {
					t.Errorf("%s is of generation %d since %s", kind, condition.ObservedGeneration, condition.LastTransitionTime)
				}
			}
		})
	}
}
