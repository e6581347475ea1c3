package cli

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

const configLong = `Show and change the kubeconfig that leads to hubs and clusters: the file of --kubeconfig, or those of KUBECONFIG, or ~/.kube/config.

These are the subcommands of "kubectl config" that choose among clusters. "kubectl config" has those that write clusters and users.`

// kubeconfig is what the commands below "capstan config" show and change.
type kubeconfig struct{ *options.Global }

// newConfigCommand is "capstan config". The code of "kubectl config" would make this program twice as large, and slower to start.
func newConfigCommand(global *options.Global) *cobra.Command {
	k := &kubeconfig{Global: global}
	command := options.Parent("config", "Show and change the kubeconfig", k.viewCommand(), k.currentContextCommand(), k.useContextCommand(),
		k.renameContextCommand(), k.deleteContextCommand(), k.setContextCommand(),
		k.listCommand("get-contexts", "Show the contexts", listContexts),
		k.listCommand("get-clusters", "Show the names of the clusters", func(config *clientcmdapi.Config) output.Grid {
			return names(slices.Sorted(maps.Keys(config.Clusters)))
		}),
		k.listCommand("get-users", "Show the names of the users", func(config *clientcmdapi.Config) output.Grid {
			return names(slices.Sorted(maps.Keys(config.AuthInfos)))
		}))
	command.Long = configLong
	return command
}

func (k *kubeconfig) viewCommand() *cobra.Command {
	var minify, raw, flatten bool
	command := &cobra.Command{
		Use: "view", Short: "Show the kubeconfig, without its secrets", Args: options.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().BoolVar(&minify, "minify", false, "show the current context alone, or that of --context")
	command.Flags().BoolVar(&raw, "raw", false, "show the secrets, too")
	command.Flags().BoolVar(&flatten, "flatten", false, "show what works elsewhere: the content of the files that it names, and the secrets")
	format := options.AddOutputFlag(command, output.YAML, output.JSON)
	command.RunE = func(*cobra.Command, []string) error {
		config, err := k.ConfigAccess().GetStartingConfig()
		if err != nil {
			return err
		}
		if k.Context != "" {
			config.CurrentContext = k.Context
		}
		if minify {
			err = clientcmdapi.MinifyConfig(config)
		}
		if err == nil && flatten {
			err = clientcmdapi.FlattenConfig(config)
		}
		if err == nil && !raw && !flatten {
			err = clientcmdapi.RedactSecrets(config)
			clientcmdapi.ShortenConfig(config)
		}
		if err != nil {
			return err
		}
		content, err := clientcmd.Write(*config)
		if err != nil {
			return err
		}
		if format.Format() == output.JSON {
			if content, err = yaml.YAMLToJSON(content); err != nil {
				return err
			}
		}
		k.Say("%s", strings.TrimSpace(string(content)))
		return nil
	}
	return command
}

func (k *kubeconfig) currentContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "current-context", Short: "Show the name of the current context", Args: options.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			config, err := k.ConfigAccess().GetStartingConfig()
			if err != nil {
				return err
			}
			if config.CurrentContext == "" {
				return fmt.Errorf("the kubeconfig has no current context: choose one of %s with \"capstan config use-context\"", contextList(config))
			}
			k.Say("%s", config.CurrentContext)
			return nil
		},
	}
}

// change changes the kubeconfig and prints the message. It starts again with what others have written meanwhile.
func (k *kubeconfig) change(ctx context.Context, change func(config *clientcmdapi.Config) (message string, err error)) error {
	var message string
	err := k.AwaitKubeconfig(ctx, func() (err error) {
		message, err = k.tryChange(change)
		return err
	})
	if err != nil {
		return err
	}
	k.Say("%s", message)
	return nil
}

func (k *kubeconfig) tryChange(change func(config *clientcmdapi.Config) (message string, err error)) (string, error) {
	access := k.ConfigAccess()
	config, err := access.GetStartingConfig()
	read := config.DeepCopy()
	var message string
	if err == nil {
		message, err = change(config)
	}
	if err != nil {
		return "", cmp.Or(beingChanged(access, read), err)
	}
	if k.DryRun {
		return "would do this: " + message, nil
	}
	const relative = true
	return message, clientcmd.ModifyConfig(sinceRead{access, read}, *config, relative)
}

// beingChanged is an error if other commands change the kubeconfig, or have done so since it was read. It is read without their lock, and
// may have been half of it: kubectl empties the file before it writes it.
func beingChanged(access clientcmd.ConfigAccess, read *clientcmdapi.Config) error {
	for _, file := range access.GetLoadingPrecedence() {
		lock := options.LockOf(file)
		if _, err := os.Lstat(lock); err == nil {
			return &fs.PathError{Op: "open", Path: lock, Err: fs.ErrExist}
		}
	}
	if now, err := access.GetStartingConfig(); err == nil && !reflect.DeepEqual(now, read) {
		return options.ErrKubeconfigChanged
	}
	return nil
}

// sinceRead is a kubeconfig that has to be as it was read. [clientcmd.ModifyConfig] reads it once it has locked the files, and would take
// out what was added to them before that.
type sinceRead struct {
	clientcmd.ConfigAccess
	read *clientcmdapi.Config
}

// GetStartingConfig implements clientcmd.ConfigAccess.
func (s sinceRead) GetStartingConfig() (*clientcmdapi.Config, error) {
	config, err := s.ConfigAccess.GetStartingConfig()
	if err == nil && !reflect.DeepEqual(config, s.read) {
		err = options.ErrKubeconfigChanged
	}
	return config, err
}

func (k *kubeconfig) useContextCommand() *cobra.Command {
	return k.onContext(&cobra.Command{Use: "use-context CONTEXT", Aliases: []string{"use"}, Short: "Choose the current context", Args: cobra.ExactArgs(1)},
		func(config *clientcmdapi.Config, args []string) (string, error) {
			config.CurrentContext = args[0]
			return fmt.Sprintf("Switched to context %q.", args[0]), nil
		})
}

func (k *kubeconfig) renameContextCommand() *cobra.Command {
	return k.onContext(&cobra.Command{Use: "rename-context CONTEXT NAME", Short: "Give a context another name", Args: cobra.ExactArgs(2)}, //nolint:mnd // one name and another
		func(config *clientcmdapi.Config, args []string) (string, error) {
			if config.Contexts[args[1]] != nil {
				return "", fmt.Errorf("there is a context %q already", args[1])
			}
			config.Contexts[args[1]] = config.Contexts[args[0]]
			delete(config.Contexts, args[0])
			if config.CurrentContext == args[0] {
				config.CurrentContext = args[1]
			}
			return fmt.Sprintf("Context %q renamed to %q.", args[0], args[1]), nil
		})
}

func (k *kubeconfig) deleteContextCommand() *cobra.Command {
	return k.onContext(&cobra.Command{Use: "delete-context CONTEXT", Short: "Delete a context; its cluster and user stay", Args: cobra.ExactArgs(1)},
		func(config *clientcmdapi.Config, args []string) (string, error) {
			delete(config.Contexts, args[0])
			return fmt.Sprintf("deleted context %s", args[0]), nil
		})
}

func (k *kubeconfig) setContextCommand() *cobra.Command {
	var cluster, user, namespace string
	var current bool
	command := &cobra.Command{
		Use: "set-context CONTEXT | --current", Short: "Set the cluster, user or namespace of a context", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: k.CompleteContexts,
	}
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "cluster of the context")
	flags.StringVar(&user, "user", "", "user of the context")
	flags.StringVar(&namespace, "namespace", "", "namespace of the context")
	flags.BoolVar(&current, "current", false, "change the current context")
	command.RunE = func(command *cobra.Command, args []string) error {
		return k.change(command.Context(), func(config *clientcmdapi.Config) (string, error) {
			name := config.CurrentContext
			if current == (len(args) == 1) || current && name == "" {
				return "", fmt.Errorf("name a context, or the current one with --current; there are %s", contextList(config))
			}
			if !current {
				name = args[0]
			}
			message := "Context %q modified."
			if config.Contexts[name] == nil {
				message = "Context %q created."
				config.Contexts[name] = clientcmdapi.NewContext()
			}
			changed := config.Contexts[name]
			for field, value := range map[*string]string{&changed.Cluster: cluster, &changed.AuthInfo: user, &changed.Namespace: namespace} {
				if value != "" {
					*field = value
				}
			}
			return fmt.Sprintf(message, name), nil
		})
	}
	return command
}

// onContext is a command that changes the context that is its first argument.
func (k *kubeconfig) onContext(command *cobra.Command, change func(*clientcmdapi.Config, []string) (string, error)) *cobra.Command {
	command.ValidArgsFunction = func(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return k.CompleteContexts(command, args, typed)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		return k.change(command.Context(), func(config *clientcmdapi.Config) (string, error) {
			if config.Contexts[args[0]] == nil {
				return "", fmt.Errorf("no context %q in the kubeconfig; there are %s", args[0], contextList(config))
			}
			return change(config, args)
		})
	}
	return command
}

func contextList(config *clientcmdapi.Config) string {
	if len(config.Contexts) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", ")
}

// listCommand is a command that shows a table of something in the kubeconfig.
func (k *kubeconfig) listCommand(use, short string, list func(*clientcmdapi.Config) output.Grid) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: options.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			config, err := k.ConfigAccess().GetStartingConfig()
			if err != nil {
				return err
			}
			return output.StyleOf(k.Out).WriteGrid(k.Out, list(config))
		},
	}
}

func names(all []string) output.Grid {
	grid := output.Grid{Header: []string{"NAME"}}
	for _, name := range all {
		grid.Rows = append(grid.Rows, []output.Cell{output.Plain(name)})
	}
	return grid
}

func listContexts(config *clientcmdapi.Config) output.Grid {
	grid := output.Grid{Header: []string{"CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"}}
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		listed, mark := config.Contexts[name], ""
		if name == config.CurrentContext {
			mark = "*"
		}
		row := []string{mark, name, listed.Cluster, listed.AuthInfo, listed.Namespace}
		cells := make([]output.Cell, len(row))
		for i, text := range row {
			cells[i] = output.Plain(text)
		}
		grid.Rows = append(grid.Rows, cells)
	}
	return grid
}
