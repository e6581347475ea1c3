package admission

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	decided "github.com/capstan-io/capstan/internal/machinery/acceptance"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// bindCredentials writes down from when on certificates hold for a cluster: since it was created, so that those of a cluster that had the
// name before open nothing, and since it was last cut off, so that what was stolen before stays of no use when it is accepted again. A time
// that comes with a new cluster stays: the cluster is restored, and its agents keep their certificates. An administrator may change it
// later.
func bindCredentials(cluster, old *clusterv1.ManagedCluster, agent bool, now metav1.Time) error {
	var before string
	if old != nil {
		before = old.Annotations[fleet.AnnotationCredentialsNotBefore]
	}
	given := cluster.Annotations[fleet.AnnotationCredentialsNotBefore]
	if given != before {
		if err := validateNotBefore(cluster, agent, now); err != nil {
			return err
		}
	}
	switch {
	case cutsOff(cluster, old):
		// What was issued in this second is too old, too. A new cluster may get its first certificate in the second in which it is created.
		setNotBefore(cluster, now.Add(time.Second))
	case old == nil && given == "":
		setNotBefore(cluster, now.Time)
	}
	return nil
}

func setNotBefore(cluster *clusterv1.ManagedCluster, at time.Time) {
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fleet.AnnotationCredentialsNotBefore, at.UTC().Format(time.RFC3339))
}

// cutsOff tells whether a cluster is cut off by this write, or was by a hub that did not write down when. One that is created so may be
// restored.
func cutsOff(cluster, old *clusterv1.ManagedCluster) bool {
	return old != nil && decided.CutOff(cluster) && (!decided.CutOff(old) || cluster.Annotations[fleet.AnnotationCredentialsNotBefore] == "")
}

// validateNotBefore judges a time that the sender gives. What is no time, or is yet to come, would refuse the agents of the cluster
// everything.
func validateNotBefore(cluster *clusterv1.ManagedCluster, agent bool, now metav1.Time) error {
	path := field.NewPath("metadata", "annotations").Key(fleet.AnnotationCredentialsNotBefore)
	given := cluster.Annotations[fleet.AnnotationCredentialsNotBefore]
	notBefore, err := fleet.CredentialsNotBefore(cluster.Annotations)
	switch {
	case agent:
		return apierrors.NewForbidden(managedClusterResource, cluster.Name, fmt.Errorf(
			"agents cannot set %s to %q: from when on certificates hold is for administrators of the hub; leave it as it is", path, given))
	case err != nil:
		return badRequest(managedClusterKind, cluster.Name, field.ErrorList{field.Invalid(path, given, err.Error())})
	case notBefore.After(now.Time):
		return badRequest(managedClusterKind, cluster.Name, field.ErrorList{field.Invalid(path, given, fmt.Sprintf(
			"it is yet to come, and no certificate would hold until then: write %s or earlier", now.UTC().Format(time.RFC3339)))})
	}
	return nil
}
