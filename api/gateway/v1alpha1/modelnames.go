package v1alpha1

// modelPrefix begins the names of the types of this package in OpenAPI documents.
const modelPrefix = "dev.oam.core.cluster.v1alpha1."

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (ClusterGateway) OpenAPIModelName() string { return modelPrefix + "ClusterGateway" }

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (ClusterGatewayList) OpenAPIModelName() string { return modelPrefix + "ClusterGatewayList" }

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (VirtualCluster) OpenAPIModelName() string { return modelPrefix + "VirtualCluster" }

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (VirtualClusterList) OpenAPIModelName() string { return modelPrefix + "VirtualClusterList" }
