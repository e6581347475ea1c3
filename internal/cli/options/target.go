package options

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// Target is the hub that the flags are about. A user without a home has no playground.
func (g *Global) Target() hubapi.Target {
	target := hubapi.Target{Kubeconfig: g.Kubeconfig, Context: g.Context, MatchServerVersion: g.matchServerVersion,
		InCluster: rest.InClusterConfig}
	if home, err := playground.DefaultHome(); err == nil {
		target.Playground = home.Kubeconfig()
	}
	return target
}

// InstallTarget is the cluster that the flags are about, for commands that install something there, or take it out. The hub of a playground
// runs no pods, so it is none by default.
func (g *Global) InstallTarget() hubapi.Target {
	return hubapi.Target{Kubeconfig: g.Kubeconfig, Context: g.Context, Cluster: true, MatchServerVersion: g.matchServerVersion,
		InCluster: rest.InClusterConfig}
}

// ConfigAccess is the kubeconfig as client-go reads and writes it.
func (g *Global) ConfigAccess() clientcmd.ConfigAccess {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = g.Kubeconfig
	if g.Kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		rules.Precedence = []string{filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)}
	}
	return rules
}

// Hub is a client of the hub that the flags are about.
func (g *Global) Hub() (*hubapi.Hub, error) { return hubapi.Connect(g.Target()) }

// HubToChange is Hub for commands that change something there, or give something away. Where the playground goes before a kubeconfig that
// the user has, and neither was named, it says which hub that is: the user may have meant the other.
func (g *Global) HubToChange() (*hubapi.Hub, error) {
	hub, err := g.Hub()
	if err == nil && hub.Source.Before != "" {
		g.Note("The hub is that of the playground, %s, which goes before your %[2]s. For a hub that the latter leads to, add --kubeconfig %[2]s.",
			hub.Source, hub.Source.Before)
	}
	return hub, err
}

// WithHub does something with the hub that the flags are about, for --timeout at most.
func (g *Global) WithHub(command *cobra.Command, do func(ctx context.Context, hub *hubapi.Hub) error) error {
	return g.with(g.Hub, command, do)
}

// ChangeHub is WithHub for commands that change something on the hub.
func (g *Global) ChangeHub(command *cobra.Command, do func(ctx context.Context, hub *hubapi.Hub) error) error {
	return g.with(g.HubToChange, command, do)
}

func (g *Global) with(connect func() (*hubapi.Hub, error), command *cobra.Command,
	do func(ctx context.Context, hub *hubapi.Hub) error) error {
	hub, err := connect()
	if err != nil {
		return err
	}
	return g.RunLimited(command, func(ctx context.Context) error { return do(ctx, hub) })
}

// RunLimited does what a command is for, for --timeout at most, after it has said if that is a dry run.
func (g *Global) RunLimited(command *cobra.Command, do func(context.Context) error) error {
	g.AnnounceDryRun(command)
	ctx, cancel := g.Limited(command.Context())
	defer cancel()
	return do(ctx)
}
