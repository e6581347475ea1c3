package reach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusteraddons"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const kubeconfigLong = `Write a kubeconfig that leads to clusters through the hub, with a context for each.

The server is the hub, which passes requests on to the cluster, in your name; the credentials are yours for the hub. kubectl, helm and every
other client of Kubernetes work with it; Argo CD takes its server, CA and credentials for a cluster to push to. What you may do there is
what the cluster lets you do.

Clusters need the add-on cluster-proxy. --merge adds a context to a kubeconfig that has others.`

// stdout is the file name of standard output.
const stdout = "-"

// kubeconfigWriting is one run of "capstan kubeconfig".
type kubeconfigWriting struct {
	*options.Global
	file        string
	contextName string
	merge       bool
}

// NewKubeconfigCommand is "capstan kubeconfig".
func NewKubeconfigCommand(global *options.Global) *cobra.Command {
	f := &kubeconfigWriting{Global: global}
	command := &cobra.Command{
		Use:   "kubeconfig CLUSTER...",
		Short: "Write a kubeconfig that leads to clusters through the hub",
		Long:  kubeconfigLong,
		Example: "  capstan kubeconfig cluster1 -o cluster1.kubeconfig && helm --kubeconfig cluster1.kubeconfig list -A\n" +
			"  capstan kubeconfig cluster1 cluster2 -o clusters.kubeconfig && kubectl --kubeconfig clusters.kubeconfig --context cluster2 get nodes\n" +
			"  capstan kubeconfig cluster1 --merge --context-name prod-1 && kubectl --context prod-1 get nodes",
		Args: f.checkArgs,
	}
	flags := command.Flags()
	flags.StringVarP(&f.file, "output", "o", "", "file to write; - is standard output, which is the default without --merge")
	flags.StringVar(&f.contextName, "context-name", "", "name of the context of one cluster (default: that of the cluster)")
	flags.BoolVar(&f.merge, "merge", false, "add the contexts to the file of --output, or to the kubeconfig that leads to the hub, and leave the rest as it is")
	options.Complete(command, "context-name", cobra.NoFileCompletions)
	command.ValidArgsFunction = f.completeMoreClusters
	command.RunE = func(command *cobra.Command, args []string) error {
		return f.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			for _, cluster := range args {
				if err := f.checkReachable(ctx, hub, cluster); err != nil {
					return err
				}
			}
			return f.write(ctx, hub, args)
		})
	}
	return command
}

// checkArgs accepts the names of clusters.
func (f *kubeconfigWriting) checkArgs(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("0 clusters given, want at least 1: %s. \"capstan get clusters\" lists those there are", command.UseLine())
	}
	for i, name := range args {
		if err := options.CheckClusterName("CLUSTER", name); err != nil {
			return err
		}
		if slices.Contains(args[:i], name) {
			return fmt.Errorf("CLUSTER: %q: given twice", name)
		}
	}
	if f.contextName != "" && len(args) > 1 {
		return errors.New("--context-name: names the context of one cluster; leave it out, and contexts have the names of their clusters")
	}
	return nil
}

// completeMoreClusters completes the names of clusters that are not on the line yet.
func (f *kubeconfigWriting) completeMoreClusters(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(f.ClusterNames(command.Context()), func(name string) bool { return slices.Contains(args, name) }),
		cobra.ShellCompDirectiveNoFileComp
}

// checkReachable makes sure that there is such a cluster, and points out what it needs to be reached. Where that may not be
// read, the first request to the cluster says it.
func (f *kubeconfigWriting) checkReachable(ctx context.Context, hub *hubapi.Hub, cluster string) error {
	if _, err := managedclusters.Get(ctx, hub, cluster); err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	addOns, err := managedclusteraddons.List(ctx, hub, cluster)
	if err != nil {
		return nil //nolint:nilerr // without the right to look, there is nothing to point out
	}
	for i := range addOns.Items {
		if addOns.Items[i].Name == fleet.AddOnClusterProxy {
			return nil
		}
	}
	f.Note("Cluster %s is not connected yet: \"capstan addon enable --names %s --clusters %s\" does it.", cluster, fleet.AddOnClusterProxy, cluster)
	return nil
}

// write writes a kubeconfig to where the flags say.
func (f *kubeconfigWriting) write(ctx context.Context, of *hubapi.Hub, clusters []string) error {
	hub, source, err := f.Target().HubKubeconfig()
	if err != nil {
		return err
	}
	var config *clientcmdapi.Config
	for _, cluster := range clusters {
		server, err := clusterapi.Server(ctx, of, cluster)
		if err != nil {
			return err
		}
		name := cmp.Or(f.contextName, cluster)
		config = mergeKubeconfig(config, clusterKubeconfig(hub, server, name), hub, name, false)
	}
	file := f.file
	if f.merge && file == "" && !source.Pod {
		file = filepath.SplitList(source.File)[0]
	}
	switch {
	case f.merge && file == "":
		return fmt.Errorf("--merge: needs a file to add the context to, as %s is none: name it with --output", source)
	case f.merge && file == stdout:
		return errors.New("--merge: needs a file to add the context to: name it with --output, or leave --output out")
	case file == "" || file == stdout:
		return f.printKubeconfig(config)
	}
	out := options.OutputFile{Flag: "--output", Path: file, Mode: 0o600}
	if err := out.Check(); err != nil {
		return err
	}
	return f.writeFile(ctx, out, config, hub, source, clusters)
}

// writeFile writes a kubeconfig to a file, and keeps what is to stay in it. Other commands do not change it meanwhile.
func (f *kubeconfigWriting) writeFile(ctx context.Context, out options.OutputFile, config, hub *clientcmdapi.Config,
	source hubapi.Source, clusters []string) error {
	file := out.Path
	if f.merge && out.InPlace() {
		return fmt.Errorf("--merge: needs a regular file to add the context to, which %s is not: name another with --output", file)
	}
	var existing *clientcmdapi.Config
	if !out.InPlace() {
		if !f.DryRun {
			unlock, err := f.LockKubeconfig(ctx, out)
			if err != nil {
				return err
			}
			defer unlock()
		}
		var err error
		if existing, err = loadKubeconfig(file); err != nil {
			return err
		}
	}
	isFile := func(other string) bool { return hubapi.SameFile(other, file) }
	keepUser := f.merge && slices.ContainsFunc(filepath.SplitList(source.File), isFile)
	if err := checkReplaces(existing, config, file, hubUsers(existing, hub, keepUser), f.merge); err != nil {
		return err
	}
	keepContexts(existing, config)
	if f.merge {
		for name := range config.Contexts {
			existing = mergeKubeconfig(existing, config, hub, name, keepUser)
		}
		config = existing
	}
	if f.DryRun {
		for _, cluster := range clusters {
			f.Say("would write context %s to %s", cmp.Or(f.contextName, cluster), file)
		}
		return nil
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := out.Write(content); err != nil {
		return err
	}
	for _, cluster := range clusters {
		f.Note("Context %s of %s leads to cluster %s.", cmp.Or(f.contextName, cluster), file, cluster)
	}
	return nil
}

func (f *kubeconfigWriting) printKubeconfig(config *clientcmdapi.Config) error {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	_, err = f.Out.Write(content)
	return err
}

// clusterKubeconfig makes a kubeconfig for the server of a cluster, of one that has a context for the hub, and no other.
func clusterKubeconfig(hub *clientcmdapi.Config, server, name string) *clientcmdapi.Config {
	of := hub.Contexts[hub.CurrentContext]
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = hub.Clusters[of.Cluster].DeepCopy()
	config.Clusters[name].Server = server
	config.AuthInfos[name] = clientcmdapi.NewAuthInfo()
	if user := hub.AuthInfos[of.AuthInfo]; user != nil {
		config.AuthInfos[name] = user.DeepCopy()
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config
}

// loadKubeconfig reads a kubeconfig as it is written; nil is one that is not there.
func loadKubeconfig(file string) (*clientcmdapi.Config, error) {
	existing, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the caller writes a new one
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %s is no kubeconfig: %w", file, err)
	}
	return existing, nil
}

// hubUsers are the users for the hub in a file: those of its contexts that lead there and, if that is in it, the one of the context in use.
func hubUsers(existing, hub *clientcmdapi.Config, inFile bool) (users []string) {
	if existing == nil {
		return nil
	}
	of := hub.Contexts[hub.CurrentContext]
	if inFile {
		users = append(users, of.AuthInfo)
	}
	for _, there := range existing.Contexts {
		if cluster := existing.Clusters[there.Cluster]; cluster != nil && apiclient.SameServer(cluster.Server, hub.Clusters[of.Cluster].Server) {
			users = append(users, there.AuthInfo)
		}
	}
	return slices.DeleteFunc(users, func(name string) bool { return name == "" })
}

// checkReplaces makes sure that nothing is lost that this command has not written. It writes contexts with a cluster and a user of their
// name, or with a user for the hub.
func checkReplaces(existing, config *clientcmdapi.Config, file string, hubUsers []string, merge bool) error {
	if existing == nil {
		return nil
	}
	for name := range config.Contexts {
		cluster := existing.Clusters[name]
		replaced := cluster != nil && cluster.Server != config.Clusters[name].Server
		if replaced || cluster == nil && (existing.Contexts[name] != nil || existing.AuthInfos[name] != nil) {
			return fmt.Errorf("%s has a context, cluster or user %q already, which leads elsewhere: choose another name with --context-name", file, name)
		}
		there := existing.Contexts[name]
		if there != nil && (there.Cluster != name || there.AuthInfo != name && !slices.Contains(hubUsers, there.AuthInfo)) {
			return fmt.Errorf("%s has a context %q already, with the cluster %q and the user %q, which are not those that this writes: choose "+
				"another name with --context-name, or delete the context first", file, name, there.Cluster, there.AuthInfo)
		}
	}
	if other := othersIn(existing, config); !merge && other != "" {
		return fmt.Errorf("--output: %s has %s, which this does not write: add to it with --merge, or choose another file", file, other)
	}
	return nil
}

// othersIn names what a kubeconfig has and another one has not; empty is nothing.
func othersIn(existing, config *clientcmdapi.Config) string {
	for _, name := range slices.Sorted(maps.Keys(existing.Contexts)) {
		if config.Contexts[name] == nil {
			return fmt.Sprintf("the context %q", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(existing.AuthInfos)) {
		if config.AuthInfos[name] == nil {
			return fmt.Sprintf("the user %q", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(existing.Clusters)) {
		if config.Clusters[name] == nil {
			return fmt.Sprintf("the cluster %q", name)
		}
	}
	return ""
}

// keepContexts has contexts that are there already keep all but their cluster and user, such as a namespace.
func keepContexts(existing, config *clientcmdapi.Config) {
	if existing == nil {
		return
	}
	for name, written := range config.Contexts {
		if kept := existing.Contexts[name].DeepCopy(); kept != nil {
			kept.Cluster, kept.AuthInfo = written.Cluster, written.AuthInfo
			config.Contexts[name] = kept
		}
	}
}

// mergeKubeconfig adds a context to those that are there. Where the user for the hub is in the same file, it is the user of the context, so
// that both have new credentials at the same time.
func mergeKubeconfig(existing, config, hub *clientcmdapi.Config, name string, keepUser bool) *clientcmdapi.Config {
	if existing == nil {
		return config
	}
	existing.Clusters[name], existing.Contexts[name] = config.Clusters[name], config.Contexts[name]
	if user := hub.Contexts[hub.CurrentContext].AuthInfo; keepUser && existing.AuthInfos[user] != nil {
		existing.Contexts[name].AuthInfo = user
		return existing
	}
	existing.AuthInfos[name] = config.AuthInfos[name]
	return existing
}
