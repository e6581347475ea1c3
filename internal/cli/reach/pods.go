package reach

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// podCommand is a command of kubectl for pods that is one of capstan, too. Its switches are the flags of one letter without a value.
type podCommand struct{ name, switches, arguments, short, example string }

var (
	logs = podCommand{"logs", "fp", "[-f] POD [-c CONTAINER]", "Print the logs of a container in a cluster, through the hub",
		"  capstan logs -f deployment/web --cluster cluster1 -n web"}
	execute = podCommand{"exec", "itq", "[-it] POD [-c CONTAINER] -- COMMAND...", "Run a command in a container of a cluster, through the hub",
		"  capstan exec -it web-0 --cluster cluster1 -n web -- sh"}
	portForward = podCommand{"port-forward", "", "POD|SERVICE PORT...", "Forward local ports to a pod of a cluster, through the hub",
		"  capstan port-forward service/web 8080:80 --cluster cluster1 -n web"}
	copyFiles = podCommand{"cp", "", "FROM TO", "Copy files to and from a container of a cluster, through the hub",
		"  capstan cp web-0:/var/log/web ./log --cluster cluster1 -n web"}
)

var podCommands = []podCommand{logs, execute, portForward, copyFiles}

const podLong = `

The kubectl in PATH does it, as "capstan --cluster CLUSTER kubectl NAME ..." has it do: all flags are those of kubectl, such as -c for a
container and -n for a namespace, but for --cluster and --sa, which may stand anywhere before "--". --kubeconfig and --context, which say
which hub, go before NAME. The cluster needs the add-on cluster-proxy.`

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
			if err := c.checkFlags(args); err != nil {
				return err
			}
			return run.runOnce(command, append([]string{c.name}, args...))
		},
	}
	run.addFlags(command)
	return command
}

// The flags of kubectl by which it would act elsewhere than on the cluster, or as somebody else: those that capstan has, too, in front of
// the command, and the others. For --as, the hub is asked.
var (
	flagsOfHub = []string{"kubeconfig", "context"}
	flagsAway  = []string{"server", "certificate-authority", "insecure-skip-tls-verify", "tls-server-name", "user", "username", "password",
		"token", "client-certificate", "client-key"}
)

// checkFlags refuses arguments of kubectl with such flags.
func (c podCommand) checkFlags(args []string) error {
	for _, arg := range args {
		name := c.flagOf(arg)
		switch {
		case arg == "--": // what follows is for the container
			return nil
		case slices.Contains(flagsOfHub, name):
			return fmt.Errorf("--%s: behind %q, it is one of kubectl, which leaves the cluster with it: write it before %q, where it says which hub",
				name, c.name, c.name)
		case slices.Contains(flagsAway, name):
			return fmt.Errorf("--%s: with it, kubectl would leave the cluster, or be somebody else there: leave it out; before %q, "+
				"--kubeconfig and --context say which hub, and as whom", name, c.name)
		}
	}
	return nil
}

// flagOf is the name of the flag of kubectl in an argument, of flags of one letter only "server"; empty if there is none.
func (c podCommand) flagOf(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	if long, isLong := strings.CutPrefix(name, "--"); isLong {
		return strings.ReplaceAll(long, "_", "-") // as kubectl reads it
	}
	if letters, isShort := strings.CutPrefix(name, "-"); isShort && strings.HasPrefix(strings.TrimLeft(letters, c.switches), "s") {
		return "server"
	}
	return ""
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
