package reach

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// podCommand is a command of kubectl for pods that is one of capstan, too.
type podCommand struct{ name, arguments, short, example string }

var (
	logs = podCommand{"logs", "[-f] POD [-c CONTAINER]", "Print the logs of a container in a cluster, through the hub",
		"  capstan logs -f deployment/web --cluster cluster1 -n web"}
	execute = podCommand{"exec", "[-it] POD [-c CONTAINER] -- COMMAND...", "Run a command in a container of a cluster, through the hub",
		"  capstan exec -it web-0 --cluster cluster1 -n web -- sh"}
	portForward = podCommand{"port-forward", "POD|SERVICE PORT...", "Forward local ports to a pod of a cluster, through the hub",
		"  capstan port-forward service/web 8080:80 --cluster cluster1 -n web"}
	copyFiles = podCommand{"cp", "FROM TO", "Copy files to and from a container of a cluster, through the hub",
		"  capstan cp web-0:/var/log/web ./log --cluster cluster1 -n web"}
)

var podCommands = []podCommand{logs, execute, portForward, copyFiles}

const podLong = `

The kubectl in PATH does it, as "capstan --cluster CLUSTER kubectl NAME ..." has it do: all flags are those of kubectl, such as -c for a
container and -n for a namespace, but for --cluster and --sa, which may stand anywhere before "--". The cluster needs the add-on
cluster-proxy.`

// NewLogsCommand is "capstan logs".
func NewLogsCommand(global *options.Global) *cobra.Command { return newPodCommand(global, logs) }

// NewExecCommand is "capstan exec".
func NewExecCommand(global *options.Global) *cobra.Command { return newPodCommand(global, execute) }

// NewPortForwardCommand is "capstan port-forward".
func NewPortForwardCommand(global *options.Global) *cobra.Command {
	return newPodCommand(global, portForward)
}

// NewCopyCommand is "capstan cp".
func NewCopyCommand(global *options.Global) *cobra.Command { return newPodCommand(global, copyFiles) }

func newPodCommand(global *options.Global, c podCommand) *cobra.Command {
	run := &kubectlRun{Global: global}
	command := &cobra.Command{
		Use:     c.name + " --cluster CLUSTER " + c.arguments,
		Short:   c.short,
		Long:    c.short + "." + strings.ReplaceAll(podLong, "NAME", c.name),
		Example: c.example,
		RunE: func(command *cobra.Command, args []string) error {
			return run.runOnce(command, append([]string{c.name}, args...))
		},
	}
	run.addFlags(command)
	return command
}

// separatePodCommand puts "--" between the flags of such a command and the arguments of kubectl, among which they may stand.
func separatePodCommand(args []string, at int) []string {
	var own, others []string
	for i := at + 1; i < len(args); i++ {
		name, _, withValue := strings.Cut(args[i], "=")
		switch name {
		case "--":
			return slices.Concat(args[:at+1], own, []string{"--"}, others, args[i:])
		case "--help", "-h":
			return slices.Concat(args[:at+1], []string{"--help"})
		case "--cluster", "--sa":
			own = append(own, args[i])
			if !withValue && i+1 < len(args) {
				i++
				own = append(own, args[i])
			}
		default:
			others = append(others, args[i])
		}
	}
	return slices.Concat(args[:at+1], own, []string{"--"}, others)
}
