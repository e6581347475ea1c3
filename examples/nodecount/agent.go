package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capstan-io/capstan/addon/lease"
	"github.com/capstan-io/capstan/addon/restart"
)

// agent counts the nodes of a cluster.
type agent struct {
	hub, managed client.Client
	cluster      string
}

func runAgent(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	hubKubeconfig := flags.String("hub-kubeconfig", "", "file with the access to the hub")
	kubeconfig := flags.String("managed-kubeconfig", "", "file with the access to the managed cluster (default: that of the pod)")
	cluster := flags.String("cluster-name", "", "name of the cluster on the hub")
	namespace := flags.String("namespace", "", "namespace of the agent")
	interval := flags.Duration("interval", 30*time.Second, "how often the nodes are counted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *hubKubeconfig == "" || *cluster == "" || *namespace == "" {
		return errors.New("the agent needs -hub-kubeconfig, -cluster-name and -namespace")
	}

	// The agent has to restart for another hub, or another address of it.
	changes, err := restart.OnChange(*hubKubeconfig)
	if err != nil {
		return fmt.Errorf("-hub-kubeconfig: %w", err)
	}
	hubConfig, err := clientcmd.BuildConfigFromFlags("", *hubKubeconfig)
	if err != nil {
		return fmt.Errorf("-hub-kubeconfig %q: %w", *hubKubeconfig, err)
	}
	managedConfig, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("-managed-kubeconfig %q: %w", *kubeconfig, err)
	}
	hub, err := client.New(hubConfig, client.Options{})
	if err != nil {
		return fmt.Errorf("reach the hub: %w", err)
	}
	managed, err := client.New(managedConfig, client.Options{})
	if err != nil {
		return fmt.Errorf("reach the managed cluster: %w", err)
	}
	a := &agent{hub: hub, managed: managed, cluster: *cluster}

	// The lease reports that the add-on works; without the hub, it does not.
	alive, err := lease.New(managedConfig, lease.Options{AddOn: name, Namespace: *namespace, Checks: []lease.Check{a.reachesHub}})
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return changes.Start(ctx) })
	all.Go(func() error { return alive.Start(ctx) })
	all.Go(func() error { return a.count(ctx, *interval) })
	return all.Wait()
}

// count reports the number of nodes to the hub at each interval.
func (a *agent) count(ctx context.Context, interval time.Duration) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := a.report(ctx); err != nil {
			ctrl.Log.Error(err, "The nodes are not counted")
		}
	}, interval)
	return nil
}

// report counts the nodes and reports their number to the hub.
func (a *agent) report(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := a.managed.List(ctx, nodes); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	count := &corev1.ConfigMap{}
	count.Namespace, count.Name = a.cluster, name
	_, err := controllerutil.CreateOrUpdate(ctx, a.hub, count, func() error {
		count.Data = map[string]string{"nodes": strconv.Itoa(len(nodes.Items))}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tell the hub: %w", err)
	}
	return nil
}

func (a *agent) reachesHub(ctx context.Context) error {
	err := a.hub.Get(ctx, client.ObjectKey{Namespace: a.cluster, Name: name}, &corev1.ConfigMap{})
	return client.IgnoreNotFound(err)
}
