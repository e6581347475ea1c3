package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/addon/lease"
	"github.com/capstan-io/capstan/addon/restart"
)

type agentFlags struct {
	hubKubeconfig string
	kubeconfig    string
	cluster       string
	namespace     string
	target        string
	leaseInterval time.Duration
}

func newAgentCommand() *cobra.Command {
	f := agentFlags{namespace: "open-cluster-management-agent-addon", target: "default", leaseInterval: 15 * time.Second}
	command := &cobra.Command{
		Use:   "agent",
		Short: "Copy ConfigMaps from the cluster's namespace on the hub to the cluster",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return f.run(command.Context()) },
	}
	command.Flags().StringVar(&f.hubKubeconfig, "hub-kubeconfig", f.hubKubeconfig, "File with the add-on's access to the hub (required).")
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig,
		"File with the access to the managed cluster (default: that of the pod).")
	command.Flags().StringVar(&f.cluster, "cluster-name", f.cluster, "Name of the cluster on the hub (required).")
	command.Flags().StringVar(&f.namespace, "addon-namespace", f.namespace, "Namespace of the agent, where its lease is.")
	command.Flags().StringVar(&f.target, "target-namespace", f.target, "Namespace that the ConfigMaps are copied to.")
	command.Flags().DurationVar(&f.leaseInterval, "lease-interval", f.leaseInterval,
		"How often the agent says that it is alive; it is missed after three times as long.")
	for _, required := range []string{"hub-kubeconfig", "cluster-name"} {
		if err := command.MarkFlagRequired(required); err != nil {
			panic(err)
		}
	}
	return command
}

func (f *agentFlags) run(ctx context.Context) error {
	managed, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w", f.kubeconfig, err)
	}
	changes, err := restart.OnChange(f.hubKubeconfig)
	if err != nil {
		return fmt.Errorf("--hub-kubeconfig: %w", err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", f.hubKubeconfig)
	if err != nil {
		return fmt.Errorf("--hub-kubeconfig %q: %w", f.hubKubeconfig, err)
	}
	mgr, err := ctrl.NewManager(managed, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{f.target: {}}},
	})
	if err != nil {
		return fmt.Errorf("reach the managed cluster: %w", err)
	}
	hub, err := cluster.New(access, func(o *cluster.Options) {
		o.Cache.DefaultNamespaces = map[string]cache.Config{f.cluster: {}}
	})
	if err != nil {
		return fmt.Errorf("reach the hub: %w", err)
	}
	copies := &copier{hub: hub.GetClient(), managed: mgr.GetClient(), from: f.cluster, to: f.target}
	alive, err := lease.New(managed, lease.Options{AddOn: addOnName, Namespace: f.namespace, Interval: f.leaseInterval})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(hub), mgr.Add(alive), mgr.Add(changes), copies.register(mgr, hub)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
