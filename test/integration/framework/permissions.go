package framework

// The API groups of the table.
const (
	AddOnAPI        = "addon.open-cluster-management.io"
	Authentication  = "authentication.k8s.io"
	AuthenticateAPI = "authentication.open-cluster-management.io"
	Authorization   = "authorization.k8s.io"
	Certificates    = "certificates.k8s.io"
	ClusterAPI      = "cluster.open-cluster-management.io"
	Coordination    = "coordination.k8s.io"
	EventsAPI       = "events.k8s.io"
	ProfileAPI      = "multicluster.x-k8s.io"
	RbacAPI         = "rbac.authorization.k8s.io"
	WorkAPI         = "work.open-cluster-management.io"
)
