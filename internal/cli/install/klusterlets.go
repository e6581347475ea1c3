package install

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// klusterlets are those of a cluster; one without the kind has none.
func klusterlets(ctx context.Context, cluster *Cluster) ([]operatorv1.Klusterlet, error) {
	objects, err := cluster.List(ctx, installation.KindKlusterlet, "", "")
	if err != nil {
		return nil, err
	}
	found := make([]operatorv1.Klusterlet, len(objects))
	for i := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &found[i]); err != nil {
			return nil, fmt.Errorf("read Klusterlet %s: %w", objects[i].GetName(), err)
		}
	}
	return found, nil
}

// hosted reports whether an agent runs in another cluster than the one that it is for.
func hosted(klusterlet *operatorv1.Klusterlet) bool {
	mode := klusterlet.Spec.DeployOption.Mode
	return mode == operatorv1.InstallModeHosted || mode == operatorv1.InstallModeSingletonHosted
}

// completeKlusterlets completes the names of the Klusterlets in the cluster that the flags are about.
func completeKlusterlets(global *options.Global) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return global.CompleteFromCluster(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			found, err := klusterlets(ctx, clusterOf(hub))
			return hubapi.ObjectNames(found), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// hubOfAgent is the address of the hub that an agent has joined, as far as its namespace has that.
func hubOfAgent(ctx context.Context, in *Cluster, klusterlet *operatorv1.Klusterlet) (string, error) {
	for _, name := range secretsWithHub {
		hub, found, err := hubInSecret(ctx, in, klusterlet, name)
		if err != nil || found {
			return hub.Server, err
		}
	}
	return "", nil
}

// secretsWithHub say in the namespace of an agent where its hub is: first what it joins with, then what its credential is for.
var secretsWithHub = []string{fleet.SecretBootstrapHubKubeconfig, fleet.SecretHubKubeconfig}

// hubsOfAgent is what an agent knows of its hub: first what it joins with, then what its credential is for, which it adapts to a hub that
// changes.
func hubsOfAgent(ctx context.Context, in *Cluster, klusterlet *operatorv1.Klusterlet) (hubs []hubapi.KnownCluster, err error) {
	for _, name := range secretsWithHub {
		hub, found, err := hubInSecret(ctx, in, klusterlet, name)
		if err != nil {
			return nil, err
		}
		if found {
			hubs = append(hubs, hub)
		}
	}
	return hubs, nil
}

// hubInSecret is what a Secret of an agent says of its hub.
func hubInSecret(ctx context.Context, in *Cluster, klusterlet *operatorv1.Klusterlet, name string) (
	hub hubapi.KnownCluster, found bool, err error,
) {
	secret, err := in.Get(ctx, installation.Reference{
		GroupVersionKind: installation.KindSecret, Namespace: namespaceOfAgent(klusterlet), Name: name})
	if err != nil || secret == nil {
		return hub, false, err
	}
	hub, found = hubapi.ClusterIn(dataOf(secret, fleet.KeyKubeconfig))
	return hub, found, nil
}

// clusterNameOf is the name that an agent's cluster has on the hub: that of the Klusterlet, or else the one that the agent made, which it
// keeps beside its credential. It is empty as long as the agent has made none.
func clusterNameOf(ctx context.Context, in *Cluster, klusterlet *operatorv1.Klusterlet) (string, error) {
	if klusterlet.Spec.ClusterName != "" {
		return klusterlet.Spec.ClusterName, nil
	}
	secret, err := in.Get(ctx, installation.Reference{
		GroupVersionKind: installation.KindSecret, Namespace: namespaceOfAgent(klusterlet), Name: fleet.SecretHubKubeconfig})
	if err != nil || secret == nil {
		return "", err
	}
	return string(dataOf(secret, fleet.KeyClusterName)), nil
}

// knownNameOf is clusterNameOf for a Klusterlet among others. Who may not read in its namespace knows no name that its agent has made.
func knownNameOf(ctx context.Context, in *Cluster, klusterlet *operatorv1.Klusterlet) (string, error) {
	name, err := clusterNameOf(ctx, in, klusterlet)
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	return name, err
}

// flagNames are the names of a command's own flags.
func flagNames(command *cobra.Command) []string {
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}
