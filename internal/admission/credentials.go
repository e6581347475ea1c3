package admission

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	decided "github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// bindCredentials records from when on certificates are valid for a cluster: since the cluster was created, so that certificates of a
// former cluster of the same name are not valid, and since it was last cut off, so that stolen credentials stay useless when it is
// accepted again. A time in the manifest of a new cluster is kept: the cluster is being restored, and its agents keep their
// certificates. An administrator may change it later.
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
		// Certificates that were issued in this second are too old, too. A new cluster may get its first certificate in the second in which
		// it is created.
		setNotBefore(cluster, now.Add(time.Second))
	case old == nil && given == "":
		setNotBefore(cluster, now.Time)
	}
	return nil
}

func setNotBefore(cluster *clusterv1.ManagedCluster, at time.Time) {
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fleet.AnnotationCredentialsNotBefore, at.UTC().Format(time.RFC3339))
}

// cutsOff reports whether this write cuts the cluster off, or an earlier one under a hub that did not record the time. A cluster that is
// created with the label may be restored, and does not count.
func cutsOff(cluster, old *clusterv1.ManagedCluster) bool {
	return old != nil && decided.CutOff(cluster) && (!decided.CutOff(old) || cluster.Annotations[fleet.AnnotationCredentialsNotBefore] == "")
}

// validateNotBefore checks a time that the sender sets. An invalid time, or one in the future, would make the hub refuse all requests
// of the cluster's agents.
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
