package managedcluster

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CAPICluster is the cluster of Cluster API that the annotation of a ManagedCluster names; valid is false if it has none, or one that is
// not NAMESPACE/NAME.
func CAPICluster(cluster metav1.Object) (namespace, name string, valid bool) {
	namespace, name, found := strings.Cut(cluster.GetAnnotations()[fleet.AnnotationCAPICluster], "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", false
	}
	return namespace, name, true
}
