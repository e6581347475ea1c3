// Package fleet is the vocabulary of the project: the labels, annotations, finalizers, conditions, taints, claims,
// identities and object names by which hub, agents, add-ons and the command line know each other. They are names on
// the wire, shared with the clients of the Open Cluster Management API, so none of them can change.
package fleet
