// Package install has the commands that install hubs and agents in clusters, upgrade them, and take them out: "capstan init",
// "join", "upgrade", "unjoin" and "clean", and the hub's side of add-ons.
package install

import (
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/program"
)

// Cluster is a Kubernetes cluster that a hub or an agent is installed in, with nodes that run pods, as the command line finds it: by a
// kubeconfig, and with what a user needs to be allowed there.
type Cluster struct {
	*installation.Cluster
	hub *hubapi.Hub
}

// connect finds the access to a cluster and makes a client of it; nothing is sent yet.
func connect(target hubapi.Target) (*Cluster, error) {
	hub, err := hubapi.Connect(target)
	if err != nil {
		return nil, err
	}
	return clusterOf(hub), nil
}

// clusterOf returns the cluster that a hub is, or that a client of package hubapi leads to.
func clusterOf(hub *hubapi.Hub) *Cluster {
	return &Cluster{installation.NewCluster(hub, program.Version()), hub}
}

// Server is the URL of the cluster's API server.
func (c *Cluster) Server() string { return c.hub.Server }

// Source is where the access to the cluster was found.
func (c *Cluster) Source() hubapi.Source { return c.hub.Source }

// Hub is the client for what a hub serves in this cluster.
func (c *Cluster) Hub() *hubapi.Hub { return c.hub }
