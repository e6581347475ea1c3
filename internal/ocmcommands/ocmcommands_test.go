package ocmcommands_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/ocmcommands"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"/registration controller --disable-leader-election": "capstan-hub controllers --controllers=registration",
		"/registration webhook-server --port=9443":           "capstan-hub webhooks",
		"/registration agent --spoke-cluster-name=c1":        "capstan-agent registration",
		"/work manager":                     "capstan-hub controllers --controllers=work",
		"/work webhook-server":              "capstan-hub webhooks",
		"/work agent":                       "capstan-agent work",
		"/placement controller":             "capstan-hub controllers --controllers=placement",
		"/placement debug --kubeconfig=/k":  "capstan-hub placement-debug",
		"/addon manager":                    "capstan-hub controllers --controllers=addon",
		"/addon webhook-server":             "capstan-hub webhooks",
		"/registration-operator hub":        "capstan-hub operator",
		"/registration-operator klusterlet": "capstan-agent operator",
		"/registration-operator agent":      "capstan-agent run",
		"/server grpc --server-config=/c":   "capstan-hub grpc-server --listen=:8443 --metrics-bind-address=0 --health-probe-bind-address=0 --server-config=/c",
		"/msa manager":                      "capstan-hub managed-serviceaccount --metrics-bind-address=:38080",
		// The image has an entrypoint, or the program is called by a name in PATH.
		"/capstan-agent /work agent":         "capstan-agent work",
		"/capstan-hub /placement controller": "capstan-hub controllers --controllers=placement",
		"work agent":                         "capstan-agent work",
		// Our own commands.
		"/capstan-hub controllers":         "",
		"capstan-agent registration":       "",
		"bin/capstan-agent work --v=4":     "",
		"/capstan-hub /etc/registration-x": "",
		"capstan-hub":                      "",
	} {
		argv := ocmcommands.Normalize(strings.Fields(line))
		command, err := ocmcommands.Translate(argv)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if command == nil {
			if want != "" {
				t.Errorf("%s is not translated", line)
			}
			continue
		}
		got := command.Program + " " + strings.Join(command.Args, " ")
		if want == "" || !strings.HasPrefix(got+" ", want+" ") {
			t.Errorf("%s is %q, want %q first", line, got, want)
		}
		if flags := argv[2:]; !slices.Equal(command.Args[len(command.Args)-len(flags):], flags) {
			t.Errorf("%s is %q: its own flags do not come last", line, got)
		}
	}
}

func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"/registration":              `registration: "" is no command of it; use one of agent, controller, webhook-server`,
		"/registration manager":      `registration: "manager" is no command of it; use one of agent, controller, webhook-server`,
		"/capstan-hub /addon agent":  `addon: "agent" is no command of it; use one of manager, webhook-server`,
		"/registration-operator -v4": `registration-operator: "-v4" is no command of it; use one of agent, hub, klusterlet`,
	} {
		if command, err := ocmcommands.Translate(ocmcommands.Normalize(strings.Fields(line))); err == nil || err.Error() != want {
			t.Errorf("%s: %+v, %v; want %s", line, command, err, want)
		}
	}
}

// A translation does not share its arguments with the next one.
func TestTranslationsAreIndependent(t *testing.T) {
	t.Parallel()
	first, err := ocmcommands.Translate([]string{"/registration", "agent", "--agent-id=1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ocmcommands.Translate([]string{"/registration", "agent", "--agent-id=2"}); err != nil {
		t.Fatal(err)
	}
	if got := first.Args[len(first.Args)-1]; got != "--agent-id=1" {
		t.Errorf("the first translation ends in %s", got)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"capstan-agent work -v 4":           {"work", "-v", "4"},
		"/capstan-agent":                    {},
		"/registration-operator klusterlet": {"operator", "--listen=:8443"},
	} {
		got, err := ocmcommands.Arguments(ocmcommands.Agent, strings.Fields(line))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	// There is no capstan-hub next to the program of this test.
	_, err := ocmcommands.Arguments(ocmcommands.Agent, []string{"/registration", "controller"})
	if err == nil || !strings.Contains(err.Error(), "capstan-hub is needed for it, and there is none next to ") {
		t.Errorf("without the other program: %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	hub, agent := ocmcommands.Names(ocmcommands.Hub), ocmcommands.Names(ocmcommands.Agent)
	if !slices.Equal(hub["registration"], []string{"controller", "webhook-server"}) || !slices.Equal(agent["registration"], []string{"agent"}) {
		t.Errorf("hub %v, agent %v", hub, agent)
	}
	if len(hub) != 7 || len(agent) != 3 {
		t.Errorf("hub %v, agent %v", hub, agent)
	}
}

// MS-09: who runs an agent that is part of another program is told so.
func TestCommandOfAnAgentThatIsBuiltIn(t *testing.T) {
	t.Parallel()
	command, err := ocmcommands.Translate([]string{"/msa", "agent", "--cluster-name=c1"})
	if command != nil || err == nil || !strings.Contains(err.Error(), "part of capstan-agent") {
		t.Errorf("%v, %v", command, err)
	}
}
