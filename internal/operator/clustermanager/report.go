package clustermanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// Conditions and reasons that Open Cluster Management does not have.
const (
	// conditionConfigurationSupported reports whether this version can do all that the spec says.
	conditionConfigurationSupported = "ConfigurationSupported"
	reasonSupported                 = "Supported"            // True
	reasonUnsupportedFields         = "UnsupportedFields"    // False
	reasonUnusableCertificates      = "UnusableCertificates" // False: those of users
	reasonRemoving                  = "ClusterManagerGoing"  // of the condition Progressing: True
	// Reasons of the condition MigrationSucceeded.
	reasonMigrated        = "StorageVersionMigrationSucceed"    // True
	reasonMigrating       = "StorageVersionMigrationProcessing" // False
	reasonMigrationFailed = "StorageVersionMigrationFailed"     // False
)

// report writes the status of a ClusterManager.
type report struct{ cm *operatorv1.ClusterManager }

func newReport(cm *operatorv1.ClusterManager) *report {
	cm.Status.ObservedGeneration = cm.Generation
	return &report{cm}
}

func (r *report) set(condition metav1.Condition) {
	condition.ObservedGeneration, condition.Message = r.cm.Generation, text.Stable(condition.Message)
	meta.SetStatusCondition(&r.cm.Status.Conditions, condition)
}

// failed says which stage failed. What is known of the objects stays as it was when all of them were applied last.
func (r *report) failed(reason string, err error) error {
	r.set(metav1.Condition{Type: fleet.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: err.Error()})
	return err
}

// featureGates says which feature gates of the spec there are not.
func (r *report) featureGates(p planned) {
	r.set(frame.ValidFeatureGates(p.registration, p.work, p.placing, p.addOn, p.server))
}

// configuration says what of the spec cannot be done, and what is wrong with certificates of users. Neither keeps the rest from being
// installed.
func (r *report) configuration(p planned, problems []string) {
	condition := metav1.Condition{Type: conditionConfigurationSupported, Status: metav1.ConditionTrue, Reason: reasonSupported,
		Message: "This version can do all that the spec asks for"}
	if len(problems) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonUnusableCertificates, strings.Join(problems, "; ")
	}
	if fields := unsupported(p); len(fields) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonUnsupportedFields
		condition.Message = strings.Join(append([]string{"This version ignores: " + strings.Join(fields, "; ")}, problems...), "; ")
	}
	r.set(condition)
}

// unsupported are the fields that this version ignores, with what it does instead.
func unsupported(p planned) (fields []string) {
	if _, err := (work{p}).broker(); err != nil {
		fields = append(fields, fmt.Sprintf("spec.workConfiguration.workDriver %s: works reach clusters with the driver %s alone; %v",
			workOf(p.ClusterManager).WorkDriver, operatorv1.WorkDriverTypeKube, err))
	}
	return slices.Concat(fields, unsupportedImports(p), unsupportedServer(p.ClusterManager))
}

// unsupportedImports are the renderers that change nothing.
func unsupportedImports(p planned) (fields []string) {
	const field = "spec.registrationConfiguration.importerConfiguration.renderers"
	known, unknown := registration{p}.renderers()
	for _, name := range unknown {
		fields = append(fields, fmt.Sprintf("%s %s: the renderers are %s", field, name, strings.Join(fleet.ImportRenderers(), " and ")))
	}
	if len(known) > 0 && !p.registration.Enabled(featuregates.ClusterImporter) {
		fields = append(fields, fmt.Sprintf("%s: clusters are imported with the feature gate %s alone", field, featuregates.ClusterImporter))
	}
	return fields
}

// degradation is a condition that says whether the Deployment of a component works.
type degradation struct {
	component, condition string
	// functional, missing and unavailable are its reasons.
	functional, missing, unavailable string
	// works is its message while nothing is wrong.
	works string
}

var degradations = []degradation{
	{registrationController, fleet.ConditionHubRegistrationDegraded, fleet.ReasonRegistrationFunctional,
		fleet.ReasonGetRegistrationDeploymentFailed, fleet.ReasonUnavailableRegistrationPod, "The registration controllers work"},
	{placementController, fleet.ConditionHubPlacementDegraded, fleet.ReasonPlacementFunctional,
		fleet.ReasonGetPlacementDeploymentFailed, fleet.ReasonUnavailablePlacementPod, "The placement controllers work"},
}

// components reports on the Deployments that conditions are about, as they are, whether or not the spec could be applied. get reads one of
// them. It returns when to look again: why a pod does not run may change without an event.
func (r *report) components(ctx context.Context, reader client.Reader, get frame.GetDeployment) (due time.Duration) {
	for _, d := range degradations {
		condition := metav1.Condition{Type: d.condition, Status: metav1.ConditionFalse, Reason: d.functional, Message: d.works}
		live, err := get(ctx, types.NamespacedName{Namespace: namespaceOf(r.cm), Name: r.cm.Name + "-" + d.component})
		if err != nil {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, d.missing, err.Error()
		} else if problem := frame.Problem(ctx, reader, live); problem != "" {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, d.unavailable, problem
			due = frame.PollInterval
		}
		r.set(condition)
	}
	return due
}

// applied says that all stages have succeeded.
func (r *report) applied(scheme *runtime.Scheme, desired *plan, rolling []string) error {
	related, err := frame.Related(scheme, desired.all()...)
	if err != nil {
		return err
	}
	r.cm.Status.RelatedResources = related
	r.cm.Status.Generations = frame.Generations(objects(desired.deployments)...)
	r.set(metav1.Condition{Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, Reason: fleet.ReasonClusterManagerApplied,
		Message: "The components of the hub are applied"})
	progress := metav1.Condition{Type: fleet.ConditionProgressing, Status: metav1.ConditionFalse, Reason: fleet.ReasonClusterManagerUpToDate,
		Message: "The components of the hub are up to date"}
	if len(rolling) > 0 {
		progress.Status, progress.Reason = metav1.ConditionTrue, fleet.ReasonClusterManagerDeploymentRolling
		progress.Message = "Deployments that are rolling: " + strings.Join(rolling, ", ")
	}
	r.set(progress)
	return nil
}

// migrated says whether objects are stored in old versions: those that are left, until the components run, or that an error keeps there.
func (r *report) migrated(left string, err error) error {
	condition := metav1.Condition{Type: fleet.ConditionMigrationSucceeded, Status: metav1.ConditionTrue, Reason: reasonMigrated,
		Message: "Nothing is stored in an old version"}
	switch {
	case err != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonMigrationFailed, err.Error()
	case left != "":
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonMigrating
		condition.Message = "Objects may be stored in old versions, and are migrated once the Deployments run: " + left
	}
	r.set(condition)
	return err
}
