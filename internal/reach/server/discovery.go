package server

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// resources are the subresources that a server answers for, as clients of the API discover them. There is no resource that they are of.
func (s *Server) resources() []metav1.APIResource {
	of := func(subresource string, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: managedClusters.Resource + "/" + subresource, Kind: "ManagedCluster", Verbs: verbs}
	}
	return []metav1.APIResource{of(api.Attach(s.version), verbConnect), of(fleet.SubresourcePortForward, verbConnect),
		of(fleet.SubresourceProxy, "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")}
}

// Install adds the group to an API server, whose handler has to be wrapped by Handler.
func (s *Server) Install(server *genericapiserver.GenericAPIServer) error {
	version := metav1.GroupVersionForDiscovery{GroupVersion: s.version.String(), Version: s.version.Version}
	group := metav1.APIGroup{Name: s.version.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
	listed, err := endpoints.ConvertGroupVersionIntoToDiscovery(s.resources())
	if err != nil {
		return err
	}
	server.AggregatedDiscoveryGroupManager.AddGroupVersion(group.Name, apidiscoveryv2.APIVersionDiscovery{
		Version: version.Version, Resources: listed, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
	server.DiscoveryGroupManager.AddGroup(group)
	paths := server.Handler.NonGoRestfulMux
	paths.Handle("/apis/"+group.Name, discovery.NewAPIGroupHandler(server.Serializer, group))
	paths.Handle("/apis/"+version.GroupVersion, discovery.NewAPIVersionHandler(server.Serializer, s.version,
		discovery.APIResourceListerFunc(s.resources)))
	return nil
}
