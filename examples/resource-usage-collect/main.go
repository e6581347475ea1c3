// Command resource-usage-collect is the agent of an add-on that reports to the hub which resources a cluster has left, as scores by
// which placements may prefer clusters. The add-on has no code on the hub: it is an AddOnTemplate.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/addon/restart"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := newCommand().ExecuteContext(signals.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

type flags struct {
	hubKubeconfig string
	kubeconfig    string
	cluster       string
	mostCPU       string
	mostMemory    string
	mostGPU       string
	mostTPU       string
}

func newCommand() *cobra.Command {
	f := flags{mostCPU: "100", mostMemory: "1Ti", mostGPU: "20", mostTPU: "20"}
	command := &cobra.Command{
		Use:          "resource-usage-collect",
		Short:        "Score a cluster by the resources it has left",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(command *cobra.Command, _ []string) error { return f.run(command.Context()) },
	}
	command.Flags().StringVar(&f.hubKubeconfig, "hub-kubeconfig", f.hubKubeconfig, "File with the add-on's access to the hub (required).")
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig,
		"File with the access to the managed cluster (default: that of the pod).")
	command.Flags().StringVar(&f.cluster, "cluster-name", f.cluster, "Name of the cluster on the hub (required).")
	command.Flags().StringVar(&f.mostCPU, "max-cpu", f.mostCPU, "CPU cores that have the highest score; the same on all clusters.")
	command.Flags().StringVar(&f.mostMemory, "max-memory", f.mostMemory, "Memory that has the highest score; the same on all clusters.")
	command.Flags().StringVar(&f.mostGPU, "max-gpu", f.mostGPU, "nvidia.com/gpu that have the highest score; the same on all clusters.")
	command.Flags().StringVar(&f.mostTPU, "max-tpu", f.mostTPU, "google.com/tpu that have the highest score; the same on all clusters.")
	for _, required := range []string{"hub-kubeconfig", "cluster-name"} {
		if err := command.MarkFlagRequired(required); err != nil {
			panic(err)
		}
	}
	return command
}

func (f *flags) run(ctx context.Context) error {
	most, err := f.maxima()
	if err != nil {
		return err
	}
	managed, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w", f.kubeconfig, err)
	}
	changes, err := restart.OnChange(f.hubKubeconfig)
	if err != nil {
		return fmt.Errorf("--hub-kubeconfig: %w", err)
	}
	hub, err := clientcmd.BuildConfigFromFlags("", f.hubKubeconfig)
	if err != nil {
		return fmt.Errorf("--hub-kubeconfig %q: %w", f.hubKubeconfig, err)
	}
	scheme := runtime.NewScheme()
	if err := clusterv1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	hubClient, err := client.New(hub, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("reach the hub: %w", err)
	}
	mgr, err := ctrl.NewManager(managed, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Transform: stripPod}, &corev1.Node{}: {Transform: stripNode},
		}},
	})
	if err != nil {
		return fmt.Errorf("reach the managed cluster: %w", err)
	}
	reports := &reporter{managed: mgr.GetClient(), hub: hubClient, cluster: f.cluster, maxima: most, clock: clock.RealClock{}}
	if err := errors.Join(mgr.Add(changes), reports.register(mgr)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (f *flags) maxima() (m maxima, err error) {
	for _, flag := range []struct {
		name, value string
		into        *resource.Quantity
	}{{"max-cpu", f.mostCPU, &m.cpu}, {"max-memory", f.mostMemory, &m.memory}, {"max-gpu", f.mostGPU, &m.gpu},
		{"max-tpu", f.mostTPU, &m.tpu}} {
		quantity, err := resource.ParseQuantity(flag.value)
		if err == nil && quantity.Sign() <= 0 {
			err = fmt.Errorf("it must be more than 0")
		}
		if err != nil {
			return m, fmt.Errorf("--%s %q: %w; give an amount such as 100 or 1Ti", flag.name, flag.value, err)
		}
		*flag.into = quantity
	}
	return m, nil
}
