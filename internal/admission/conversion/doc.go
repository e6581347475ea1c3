// Package conversion converts the add-on objects whose versions v1alpha1, which the hub stores, and v1beta1 differ:
// ClusterManagementAddOn and ManagedClusterAddOn. AddOnDeploymentConfig and AddOnTemplate are the same in both.
//
// What a conversion returns shares memory with what it was given, so neither may be changed afterwards; annotations are
// copied.
//
// Three things of v1alpha1 have no place in v1beta1 and are dropped: addOnConfiguration of both kinds, the organisational
// units of a registration for the API server of the hub, and a kubeClientDriver without such a registration.
package conversion
