// Command realcluster starts and stops Kubernetes clusters with real pods on this machine, as the tests use them, by hand.
package main

import (
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/test/realcluster"
	"github.com/capstan-io/capstan/test/realcluster/node"
)

func main() {
	log.SetLogger(logr.Discard())
	root := &cobra.Command{
		Use:           "realcluster",
		Short:         "Start and stop Kubernetes clusters with real pods on this machine",
		Long:          "Start and stop Kubernetes clusters of one node, with real pods, on this machine. It takes root, but no Docker.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(installCommand(), upCommand(), downCommand(), listCommand(), execCommand(), runCommand())
	if err := root.ExecuteContext(program.Context()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func installCommand() *cobra.Command {
	return &cobra.Command{
		Use: "install", Short: "Install the packages that clusters need, with apt-get", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return realcluster.Install(os.Stderr) },
	}
}

func upCommand() *cobra.Command {
	var images []string
	command := &cobra.Command{
		Use: "up NAME", Short: "Start a cluster, and print the path of its kubeconfig", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if _, err := find(args[0]); err == nil {
				return fmt.Errorf("cluster %q is running", args[0])
			}
			cluster, err := realcluster.Up(command.Context(), realcluster.Options{Name: args[0], Images: images, Detached: true})
			if err != nil {
				return err
			}
			fmt.Println(cluster.Kubeconfig)
			return cluster.Release()
		},
	}
	command.Flags().StringSliceVar(&images, "image", nil, "archive with images to import, as docker save writes it (may be repeated)")
	return command
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down NAME", Short: "Stop a cluster, and remove all that it has left on this machine", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := find(args[0])
			if err != nil {
				return err
			}
			return n.Stop()
		},
	}
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the clusters of this machine, those of tests included", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			nodes, err := node.List()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tURL\tKUBECONFIG\tOF A TEST")
			for _, n := range nodes {
				if !n.HasControlPlane() {
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%t\n", n.Name, n.URL(), n.Kubeconfig(), !n.Detached)
			}
			return w.Flush()
		},
	}
}

func execCommand() *cobra.Command {
	return &cobra.Command{
		Use: "exec NAME -- COMMAND...", Short: "Run a command on the node of a cluster", Args: cobra.MinimumNArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			n, err := find(args[0])
			if err != nil {
				return err
			}
			run := n.Command(command.Context(), args[1], args[2:]...)
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
			return run.Run()
		},
	}
}

// runCommand is the first process of a node; node.Start starts it.
func runCommand() *cobra.Command {
	return &cobra.Command{
		Use: node.RunCommand + " INDEX", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			index, err := strconv.Atoi(args[0])
			if err != nil {
				return err
			}
			return node.Run(index)
		},
	}
}

// find is the cluster of that name.
func find(name string) (*node.Node, error) {
	nodes, err := node.List()
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Name == name && n.HasControlPlane() {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no cluster %q is running; see realcluster list", name)
}
