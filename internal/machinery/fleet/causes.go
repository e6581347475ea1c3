package fleet

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CauseClusterTakesNoWorks is among the causes of a refused ManifestWork of a cluster that is denied or being deleted. It is an
// extension. A controller that creates works waits for the cluster then, and does not try again and again.
const CauseClusterTakesNoWorks metav1.CauseType = "ClusterTakesNoWorks"
