package fleet

// Reasons of the events that the hub and the agents write (contract section 12).
const (
	EventManagedClusterAccepted        = "ManagedClusterAccepted"
	EventManagedClusterDenied          = "ManagedClusterDenied"
	EventManagedClusterCSRAutoApproved = "ManagedClusterCSRAutoApproved"
	EventCustomClusterClaimsTruncated  = "CustomClusterClaimsTruncated"
)
