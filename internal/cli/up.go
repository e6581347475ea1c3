package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

const upLong = `Start a hub and clusters on this machine, as background processes, to play with.

The clusters are sandboxes: each is a real Kubernetes API with simulated nodes, on which pods become Running but containers
do not execute. They are named cluster1, cluster2 and so on; they are registered, accepted and joined, and each gets a
sample, the ManifestWork nginx.

Everything is kept in $CAPSTAN_HOME (default ~/.capstan). Running "up" again starts what does not run, with the identities
it had. A cluster that was deleted on the hub joins anew; one that was denied stays so. "capstan status" shows how it is,
"capstan down" stops it.`

func (a *app) upCommand() *cobra.Command {
	clusters := 0
	command := &cobra.Command{
		Use:     "up",
		Short:   "Start a hub and clusters on this machine",
		Long:    upLong,
		Example: "  capstan up\n  capstan up --clusters 3   # now or later",
		Args:    flagsOnly,
	}
	command.Flags().IntVar(&clusters, "clusters", 0, fmt.Sprintf("number of clusters (default: those there are, at first %d)",
		playground.DefaultClusters))
	command.RunE = func(command *cobra.Command, _ []string) error {
		if clusters < 0 || command.Flags().Changed("clusters") && clusters == 0 {
			return fmt.Errorf("--clusters: %d: must be at least 1", clusters)
		}
		if a.dryRun {
			a.announceDryRun(command)
			return a.showPlan(clusters)
		}
		return a.up(command.Context(), clusters)
	}
	return command
}

func (a *app) showPlan(clusters int) error {
	programs, err := a.home.Plan(clusters)
	if err != nil {
		return err
	}
	for _, program := range programs {
		a.say("would start %s: %s", program.Name, shellCommand(append([]string{program.Path}, program.Args...)...))
	}
	if len(programs) == 0 {
		a.say("would start nothing: everything runs in %s", a.home.Dir)
	}
	return nil
}

func (a *app) up(ctx context.Context, clusters int) error {
	limited, cancel := a.limited(ctx)
	defer cancel()
	progress := a.progress()
	err := a.home.Up(limited, clusters, progress)
	progress.Close()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w\nWhat has been started goes on running: \"capstan up\" continues, \"capstan down\" stops it", context.Cause(ctx))
	case err != nil:
		return err
	}
	status, err := a.home.Status(ctx)
	if err != nil {
		return err
	}
	return a.printUp(status)
}

// printUp is the end of "up": how everything is, and what to do with it.
func (a *app) printUp(status playground.Status) error {
	style := output.StyleOf(a.out)
	a.say("")
	if err := style.WriteGrid(a.out, output.PlaygroundClusters(status)); err != nil {
		return err
	}
	a.say("")
	if err := style.WriteGrid(a.out, output.PlaygroundWorks(status)); err != nil {
		return err
	}
	cluster := status.Contexts[len(status.Contexts)-1]
	a.say("\nThe kubeconfig is %s, with the contexts %s.", status.Kubeconfig, strings.Join(status.Contexts, ", "))
	a.say("Try:\n")
	a.say("  %s", shellCommand(invocation(), "get", "works"))
	a.say("  %s", shellCommand("kubectl", "--kubeconfig", status.Kubeconfig, "--context", cluster, "get", "deployments,pods"))
	a.say("  kubectl create configmap demo --namespace default --from-literal=a=b --dry-run=client -o yaml | %s",
		shellCommand(invocation(), "create", "work", "demo", "-f", "-", "--clusters", cluster))
	return nil
}

// invocation is how the person who runs this program called it: the one of a fresh build is in no PATH.
func invocation() string {
	if called := os.Args[0]; filepath.Base(called) == "capstan" {
		return called
	}
	return "capstan"
}

// shellCommand writes a command line so that it can be pasted into a shell.
func shellCommand(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if word == "" || strings.ContainsFunc(word, specialInShells) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func specialInShells(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./,:=@%+", r)
}
