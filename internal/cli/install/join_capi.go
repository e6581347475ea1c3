package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

// capiFlags find the cluster to join through Cluster API.
type capiFlags struct {
	used       bool
	name       string
	kubeconfig string
}

func (f *capiFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.used, "capi-import", false, "join a cluster of Cluster API, with the kubeconfig that this has made for it")
	flags.StringVar(&f.name, "capi-cluster-name", "",
		"with --capi-import, the Cluster as NAMESPACE/NAME (default: that of --cluster-name, in the namespace of that name)")
	flags.StringVar(&f.kubeconfig, "capi-kubeconfig", "",
		"with --capi-import, kubeconfig of the cluster where Cluster API runs (default: that of --kubeconfig and --context)")
	options.Complete(command, "capi-cluster-name", cobra.NoFileCompletions)
}

// check finds what is wrong with the flags.
func (f *capiFlags) check(mode string) error {
	switch {
	case !f.used && f.name != "":
		return errors.New("--capi-cluster-name: useless without --capi-import")
	case !f.used && f.kubeconfig != "":
		return errors.New("--capi-kubeconfig: useless without --capi-import")
	case f.used && mode != modeDefault:
		return fmt.Errorf("--capi-import: of no use with --mode %s: the agent is installed in the cluster of Cluster API", mode)
	case f.name == "":
		return nil
	}
	if namespace, name, found := strings.Cut(f.name, "/"); !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("--capi-cluster-name: %q is not NAMESPACE/NAME", f.name)
	}
	return nil
}

// clusterToJoin is the cluster that the agent is installed in.
func (c *clusterJoin) clusterToJoin(ctx context.Context) (*Cluster, error) {
	f := c.capi
	if !f.used {
		return connect(c.InstallTarget())
	}
	target := c.InstallTarget()
	if f.kubeconfig != "" {
		target = hubapi.Target{Kubeconfig: f.kubeconfig, Cluster: true}
	}
	management, err := connect(target)
	if err != nil {
		return nil, fmt.Errorf("--capi-import: %w", err)
	}
	namespace, name := c.cluster, c.cluster
	if f.name != "" {
		namespace, name, _ = strings.Cut(f.name, "/")
	}
	of := installation.Reference{GroupVersionKind: installation.KindSecret, Namespace: namespace, Name: name + fleet.SuffixCAPIKubeconfig}
	found, err := management.Get(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("--capi-import: %w", err)
	}
	if found == nil {
		return nil, fmt.Errorf("--capi-import: %s has no %s: Cluster API makes it when it provisions the Cluster %s/%s", management.Server(), of,
			namespace, name)
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, secret); err != nil {
		return nil, fmt.Errorf("--capi-import: read %s: %w", of, err)
	}
	access, err := kubeconfigsecret.ConfigOf(secret, fleet.KeyCAPIKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--capi-import: %w", err)
	}
	hub, err := hubapi.New(access)
	if err != nil {
		return nil, fmt.Errorf("--capi-import: %s cannot be used: %w", of, err)
	}
	hub.Source = hubapi.Source{File: of.String(), Cluster: true}
	return clusterOf(hub), nil
}
