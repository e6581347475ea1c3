// Package ocmcommands translates command lines of the images of Open Cluster Management, such as /registration controller, into those
// of our programs, so that Deployments written for either run both.
//
// The name that a program is called by selects the commands. Flags are passed on: our commands have all flags of the commands that they
// replace. Where a default differs, the translation sets the flag first, and what the command line says goes before it.
package ocmcommands

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/capstan-io/capstan/internal/program"
)

// Hub and Agent are the programs that a command may belong to.
const (
	Hub   = "capstan-hub"
	Agent = "capstan-agent"
)

// Command is a command line of one of our programs.
type Command struct {
	// Program is [Hub] or [Agent].
	Program string
	// Args follow the name of the program.
	Args []string
	// instead says what there is in place of a command that none of our programs has.
	instead string
}

// listen is the address of the HTTPS probes of controllers and agents.
const listen = "--listen=:8443"

// Gates that are on by default in our programs and off in those of Open Cluster Management, whose operators pass only what differs from
// their own defaults.
const (
	hubGates   = "--feature-gates=CleanUpCompletedManifestWork=false,ManifestWorkReplicaSet=false,PlacementDebugServer=false"
	agentGates = "--feature-gates=MultipleHubs=false,RawFeedbackJsonString=false"
)

// controllers runs one group of the hub's controllers. Health and metrics are served at the address of listen alone, and a container of its
// own serves why placements select what they do.
func controllers(group string) Command {
	return Command{Program: Hub, Args: []string{"controllers", "--controllers=" + group, listen, "--metrics-bind-address=0",
		"--health-probe-bind-address=0", "--placement-debug-bind-address=0", hubGates}}
}

// webhooks serves all webhooks of the hub, from whichever image. Each Service selects the Deployment whose paths it is for.
func webhooks() Command {
	return Command{Program: Hub, Args: []string{"webhooks", "--cert-dir=/tmp/k8s-webhook-server/serving-certs",
		"--metrics-bind-address=:8080", hubGates}}
}

// agent runs parts of the agent, of which several replicas may run.
func agent(name string, flags ...string) Command {
	return Command{Program: Agent, Args: append([]string{name, listen, "--leader-elect", agentGates}, flags...)}
}

// keepsCredential has the agent keep the credential for the hub in the Secret where the operator looks for it.
const keepsCredential = "--hub-kubeconfig-secret=hub-kubeconfig-secret"

// commands are those of each name.
var commands = map[string]map[string]Command{
	"registration": {
		"controller":     controllers("registration"),
		"webhook-server": webhooks(),
		"agent":          agent("registration", keepsCredential),
	},
	"work": {
		"manager":        controllers("work"),
		"webhook-server": webhooks(),
		"agent":          agent("work"),
	},
	"placement": {
		"controller": controllers("placement"),
		"debug":      {Program: Hub, Args: []string{"placement-debug"}},
	},
	"addon": {
		"manager":        controllers("addon"),
		"webhook-server": webhooks(),
	},
	"server": {
		"grpc": {Program: Hub, Args: []string{"grpc-server", listen, "--metrics-bind-address=0", "--health-probe-bind-address=0"}},
	},
	"registration-operator": {
		"hub":        {Program: Hub, Args: []string{"operator", listen}},
		"klusterlet": {Program: Agent, Args: []string{"operator", listen}},
		"agent":      agent("run", keepsCredential),
	},
	"msa": {
		"manager": {Program: Hub, Args: []string{"managed-serviceaccount", "--metrics-bind-address=:38080",
			"--health-probe-bind-address=:38081"}},
		"agent": {instead: "the agent of managed service accounts is part of capstan-agent: enable the add-on managed-serviceaccount on the " +
			"cluster, and leave this Deployment out"},
	},
}

// Names are the names that select commands of Open Cluster Management, each with the commands of the program, sorted.
func Names(program string) map[string][]string {
	names := map[string][]string{}
	for name, all := range commands {
		for command, ours := range all {
			if ours.Program == program {
				names[name] = append(names[name], command)
			}
		}
		slices.Sort(names[name])
	}
	return names
}

// Normalize returns the command line without what comes before the name of a program of Open Cluster Management. Their images have no
// entrypoint, so that Deployments name the program as the first argument, as /registration, and ours have one.
func Normalize(argv []string) []string {
	if len(argv) > 1 && strings.HasPrefix(argv[1], "/") && commands[path.Base(argv[1])] != nil {
		return argv[1:]
	}
	return argv
}

// Translate returns our command line for a normalized one, which begins with the name that the program was called by. It returns nil if
// that is none of Open Cluster Management, and fails if the name has no such command.
func Translate(argv []string) (*Command, error) {
	if len(argv) == 0 {
		return nil, nil
	}
	name := path.Base(argv[0])
	all, known := commands[name]
	if !known {
		return nil, nil
	}
	var command string
	if len(argv) > 1 {
		command = argv[1]
	}
	ours, known := all[command]
	if !known {
		return nil, fmt.Errorf("%s: %q is no command of it; use one of %s", name, command, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if ours.instead != "" {
		return nil, fmt.Errorf("%s %s: %s", name, command, ours.instead)
	}
	return &Command{Program: ours.Program, Args: append(slices.Clone(ours.Args), argv[2:]...)}, nil
}

// Arguments returns the arguments of own, one of our programs, for a command line: translated, if it is one of Open Cluster Management. If
// its command belongs to the other program, the process becomes that, and Arguments returns only if this fails.
func Arguments(own string, argv []string) ([]string, error) {
	argv = Normalize(argv)
	command, err := Translate(argv)
	switch {
	case err != nil:
		return nil, err
	case command == nil:
		return argv[min(1, len(argv)):], nil
	case command.Program != own:
		return nil, program.BecomeSibling(command.Program, argv)
	}
	return command.Args, nil
}
