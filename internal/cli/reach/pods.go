package reach

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// podCommand is a command of kubectl for pods that is one of capstan, too.
type podCommand struct{ name, arguments, short, example string }

var podCommands = []podCommand{
	{"logs", "[-f] POD [-c CONTAINER]", "Print the logs of a container in a cluster, through the hub",
		"  capstan logs -f deployment/web --cluster cluster1 -n web"},
	{"exec", "[-it] POD [-c CONTAINER] -- COMMAND...", "Run a command in a container of a cluster, through the hub",
		"  capstan exec -it web-0 --cluster cluster1 -n web -- sh"},
	{"port-forward", "POD|SERVICE PORT...", "Forward local ports to a pod of a cluster, through the hub",
		"  capstan port-forward service/web 8080:80 --cluster cluster1 -n web"},
	{"cp", "FROM TO", "Copy files to and from a container of a cluster, through the hub",
		"  capstan cp web-0:/var/log/web ./log --cluster cluster1 -n web"},
}

const podLong = `

The kubectl in PATH does it, as "capstan --cluster CLUSTER kubectl NAME ..." has it do: all flags are those of kubectl, such as -c for a
container and -n for a namespace, but for --cluster and --sa, which may stand anywhere before "--". The cluster needs the add-on
cluster-proxy.`

// NewPodCommands are "capstan logs", "exec", "port-forward" and "cp".
func NewPodCommands(global *options.Global) []*cobra.Command {
	commands := make([]*cobra.Command, len(podCommands))
	for i, c := range podCommands {
		run := &kubectlRun{Global: global}
		commands[i] = &cobra.Command{
			Use:     c.name + " --cluster CLUSTER " + c.arguments,
			Short:   c.short,
			Long:    c.short + "." + strings.ReplaceAll(podLong, "NAME", c.name),
			Example: c.example,
			RunE: func(command *cobra.Command, args []string) error {
				return run.runOnce(command, append([]string{c.name}, args...))
			},
		}
		run.addFlags(commands[i])
	}
	return commands
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
