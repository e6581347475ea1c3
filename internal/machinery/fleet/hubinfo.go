package fleet

// ConfigMapHubInfo in NamespaceHub says what a standalone hub runs, which nothing else on its API does.
const ConfigMapHubInfo = "hub-info"

// ConfigMapWorksHeld in NamespaceHub keeps from agents, as long as it is there, the works of a standalone hub and whatever else they change
// their clusters by.
const ConfigMapWorksHeld = "works-held"

// Keys of ConfigMapHubInfo.
const (
	HubInfoVersion      = "version"
	HubInfoControllers  = "controllers"   // groups, separated by commas
	HubInfoFeatureGates = "feature-gates" // NAME=true or NAME=false, separated by commas
)

// LeaseHubControllers is the Lease of the processes that run all controllers of a hub in an existing cluster. The Leases of those
// that run some have the groups behind it, each after a dash.
const LeaseHubControllers = "capstan-hub-controllers"
