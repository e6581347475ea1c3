package fleet

// Taints that the hub puts on clusters by itself. Both have the effect NoSelect and no value.
const (
	// TaintUnreachable is on a cluster whose agent has never said, or no longer says, whether it is available.
	TaintUnreachable = "cluster.open-cluster-management.io/unreachable"
	// TaintUnavailable is on a cluster whose agent says that its API server does not answer.
	TaintUnavailable = "cluster.open-cluster-management.io/unavailable"
)
