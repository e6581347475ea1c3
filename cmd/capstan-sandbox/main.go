// Command capstan-sandbox runs a throw-away Kubernetes cluster with simulated nodes in one process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reference"
	"github.com/capstan-io/capstan/internal/sandbox"
)

const (
	logFile         = "log"
	maxLogMegabytes = 10
)

const long = `Run a throw-away Kubernetes cluster in one process: the full API server on an
embedded etcd, the workload controllers, the scheduler and simulated nodes.

Containers do not execute. The nodes report what a kubelet would: pods become
Running and Ready, the pods of Jobs complete, deleted pods go. No image is pulled,
and logs, exec, attach and port-forward fail with a message that says so. There
are no volumes, load balancers or metrics. Use it for playgrounds and tests.`

func main() {
	program.TuneGC(200)
	// Cobra would offer the flags that Kubernetes libraries registered here.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	if err := command().ExecuteContext(program.Context()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "capstan-sandbox",
		Short:         "A Kubernetes cluster without containers, in one process",
		Long:          long,
		Version:       program.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(runCommand(), reference.NewCommand())
	return root
}

func runCommand() *cobra.Command {
	var o sandbox.Options
	var verbosity int
	run := &cobra.Command{
		Use:   "run --data-dir DIR",
		Short: "Run a cluster until SIGTERM or interrupt",
		Long: long + `

The cluster is ready when /readyz answers 200; its kubeconfig is then in
DIR/kubeconfig. Everything in DIR stays, and the next run on it continues with the
same objects, keys and identity. The database does not wait for the disk, so a
crash of the machine may cost what was last written.`,
		Example: `  capstan-sandbox run --data-dir /tmp/sandbox
  kubectl --kubeconfig /tmp/sandbox/kubeconfig get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configureLog(verbosity, filepath.Join(o.DataDir, logFile)); err != nil {
				return fmt.Errorf("verbosity: %d: %w", verbosity, err)
			}
			return serve(cmd.Context(), o)
		},
	}
	flags := run.Flags()
	flags.StringVar(&o.DataDir, "data-dir", "", "directory the cluster is kept in; created if missing, used by one process at a time")
	flags.IntVar(&o.Port, "port", 0, "port on 127.0.0.1 to serve at; 0 is a free one, kept across restarts")
	flags.IntVar(&o.Nodes, "nodes", 1, "number of simulated nodes")
	flags.StringVar(&o.Name, "name", sandbox.DefaultName, "name of the cluster: the context in the kubeconfig")
	flags.IntVarP(&verbosity, "verbosity", "v", 0, "0 writes errors to the file log in the data directory; 1 and more log to stderr")
	_ = run.MarkFlagRequired("data-dir") // it exists
	return run
}

// configureLog has the components log to standard error, or only errors to a file:
// most of it is of no interest to users of the cluster.
func configureLog(verbosity int, file string) error {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	if verbosity > 0 {
		return flags.Set("v", strconv.Itoa(verbosity))
	}
	if err := flags.Set("stderrthreshold", "FATAL"); err != nil {
		return err
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("ERROR", &lumberjack.Logger{Filename: file, MaxSize: maxLogMegabytes, MaxBackups: 1})
	return nil
}

func serve(ctx context.Context, o sandbox.Options) error {
	start := time.Now()
	cluster, err := sandbox.Start(ctx, o)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped while starting
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Cluster %s is ready at %s after %s. Containers do not execute.\nexport KUBECONFIG=%s\n",
		o.Name, cluster.URL(), time.Since(start).Round(10*time.Millisecond), cluster.Kubeconfig())
	select {
	case <-ctx.Done():
		return cluster.Stop()
	case <-cluster.Ended():
		err := cluster.Err()
		_ = cluster.Stop()
		return fmt.Errorf("the API server ended unexpectedly: %w", err)
	}
}
