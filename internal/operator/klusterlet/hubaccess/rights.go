package hubaccess

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	certificates = "certificates.k8s.io"
	clusters     = "cluster.open-cluster-management.io"
	works        = "work.open-cluster-management.io"
)

// neededToRegister are the rights that a bootstrap kubeconfig needs.
var neededToRegister = slices.Concat(
	rights(of(clusters, "managedclusters"), "create", "get"),
	rights(of(certificates, "certificatesigningrequests"), "create", "get", "list", "watch"),
)

// neededBy are the rights that the agent of a cluster needs.
func neededBy(cluster string) []authorizationv1.ResourceAttributes {
	return slices.Concat(
		rights(of(certificates, "certificatesigningrequests"), "get", "list", "watch"),
		rights(named(of(clusters, "managedclusters"), cluster), "get", "list", "update", "watch"),
		rights(named(sub(of(clusters, "managedclusters"), "status"), cluster), "patch", "update"),
		rights(sub(of(fleet.GroupRegister, fleet.ResourceManagedClusters), fleet.SubresourceClientCertificates), fleet.VerbRenew),
		rights(named(in(of("coordination.k8s.io", "leases"), cluster), fleet.ClusterNamespaceLease), "get", "update"),
		rights(in(of("", "events"), cluster), "create", "patch", "update"),
		rights(in(of("events.k8s.io", "events"), cluster), "create", "patch", "update"),
		rights(in(of(works, "manifestworks"), cluster), "get", "list", "watch", "update"),
		rights(in(sub(of(works, "manifestworks"), "status"), cluster), "patch", "update"),
	)
}

func of(group, resource string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Group: group, Resource: resource}
}

func sub(on authorizationv1.ResourceAttributes, subresource string) authorizationv1.ResourceAttributes {
	on.Subresource = subresource
	return on
}

func named(on authorizationv1.ResourceAttributes, name string) authorizationv1.ResourceAttributes {
	on.Name = name
	return on
}

func in(on authorizationv1.ResourceAttributes, namespace string) authorizationv1.ResourceAttributes {
	on.Namespace = namespace
	return on
}

func rights(on authorizationv1.ResourceAttributes, verbs ...string) (all []authorizationv1.ResourceAttributes) {
	for _, verb := range verbs {
		on.Verb = verb
		all = append(all, on)
	}
	return all
}
