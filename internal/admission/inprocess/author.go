package inprocess

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// identifying is a plugin that knows the gRPC server of the hub.
type identifying struct {
	// grpcServer is the user as whom the server writes.
	grpcServer string
}

func newIdentifying(opts Options) identifying {
	return identifying{fleet.GRPCServerUser(opts.HubNamespace)}
}

// author returns for whom a request is made: the user who sends it or, if that is the gRPC server of the hub, whom the server writes for.
// So agents, and those who join, have the same limits by gRPC as on the API.
//
// The server records who requests a certificate or a cluster. All else that it writes is of the agent of a cluster: its ManagedCluster,
// or what is in its namespace.
func (p *identifying) author(request admission.Attributes) user.Info {
	sender := request.GetUserInfo()
	if sender.GetName() != p.grpcServer {
		return sender
	}
	object, err := meta.Accessor(request.GetObject())
	resource := request.GetResource().GroupResource()
	switch {
	case err != nil:
		return sender
	case resource == certificateRequests:
		return certificateRequester(recordedUser(object, fleet.AnnotationCSRUser, sender.GetName()))
	case resource == managedClusters && request.GetOperation() == admission.Create:
		return joining(recordedUser(object, fleet.AnnotationRequestedBy, sender.GetName()))
	case resource == managedClusters:
		return agentOf(object.GetName(), sender.GetName())
	case object.GetNamespace() != "":
		return agentOf(object.GetNamespace(), sender.GetName())
	}
	return sender
}

// recordedUser returns the user in an annotation of the gRPC server; the server itself, if it records nobody.
func recordedUser(object metav1.Object, annotation, server string) string {
	if name := object.GetAnnotations()[annotation]; name != "" {
		return name
	}
	return server
}

// certificateRequester is who requests a certificate by gRPC: the agent of a cluster, or somebody who joins. Administrators do not come
// that way.
func certificateRequester(name string) user.Info {
	if cluster, _, err := fleet.ParseClusterUser(name); err == nil {
		return agentOf(cluster, name)
	}
	return joining(name)
}

func agentOf(cluster, name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: fleet.ClusterGroups(cluster)}
}

func joining(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{fleet.GroupBootstrap}}
}
