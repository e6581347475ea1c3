package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/controlplane"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/selfmanagement"
)

const (
	flagSelfManagement           = "self-management"
	flagSelfManagementName       = "self-management-cluster-name"
	flagSelfManagementKubeconfig = "self-management-kubeconfig"
)

// agentDir is the folder of the agent of self-management in the data directory.
const agentDir = "agent"

// selfManagementFlags say which cluster the hub manages itself.
type selfManagementFlags struct {
	on         bool
	name       string
	kubeconfig string
}

func (f *selfManagementFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, flagSelfManagement, f.on,
		"Have the cluster in which the hub runs managed by the hub, without another agent. Ignored, with a warning, where there is no such cluster.")
	flags.StringVar(&f.name, flagSelfManagementName, f.name,
		"Name of that cluster on the hub (default: the ID of an OpenShift cluster, or the UID of the namespace kube-system).")
	flags.StringVar(&f.kubeconfig, flagSelfManagementKubeconfig, f.kubeconfig,
		"File with the access of an administrator to that cluster, for a hub that runs beside it (default: that of the pod this runs in).")
}

// options are those of self-management, for a hub with these options.
func (f *selfManagementFlags) options(ctx context.Context, o *controlplane.Options) (selfmanagement.Options, error) {
	self := selfmanagement.Options{
		ClusterName: f.name, HubKubeconfig: o.LocalKubeconfig(), Dir: filepath.Join(o.Config.DataDirectory, agentDir),
	}
	if problems := validation.IsDNS1123Label(f.name); f.name != "" && len(problems) > 0 {
		return self, fmt.Errorf("--%s=%q cannot name the namespace of the cluster on the hub: %s", flagSelfManagementName, f.name,
			strings.Join(problems, "; "))
	}
	if fleet.ReservedClusterName(f.name) {
		return self, fmt.Errorf("--%s=%s: something else is called so on the hub; choose another name", flagSelfManagementName, f.name)
	}
	var err error
	switch {
	case !f.on:
	case f.kubeconfig != "":
		if self.Managed, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig); err != nil {
			return self, fmt.Errorf("--%s: %w", flagSelfManagementKubeconfig, err)
		}
	case o.Hosting != nil:
		self.Managed = rest.CopyConfig(o.Hosting.Client)
	default:
		klog.FromContext(ctx).Info("--"+flagSelfManagement+" has no effect: this hub does not run in a cluster", "toNameOne",
			"--"+flagSelfManagementKubeconfig)
	}
	return self, nil
}

// withSelfManagement also runs self-management.
func withSelfManagement(controllers controlplane.ControllersFunc, o selfmanagement.Options,
	withoutElection bool) controlplane.ControllersFunc {
	return func(ctx context.Context, client *rest.Config, elect bool, started func()) error {
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error { return controllers(ctx, client, elect, started) })
		both.Go(func() error {
			logger := klog.FromContext(ctx).WithName(flagSelfManagement)
			return selfmanagement.Run(klog.NewContext(ctx, logger), rest.CopyConfig(client), elect && !withoutElection, o)
		})
		return both.Wait()
	}
}
