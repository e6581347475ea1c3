package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/joincommand"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const getTokenLong = `Print a token, and the command with which a cluster joins the hub with it.

The token is one of the service account open-cluster-management/agent-registration-bootstrap, good for an hour. With
--use-bootstrap-token it is the newest bootstrap token of the hub instead, which is short and lives longer. The hash in the
command is that of the hub's certificate authority: with it, "capstan join" can tell the hub from an impostor.

As printed, the command installs the agent in the cluster of the kubeconfig. With --local and --managed-cluster-kubeconfig FILE
added, the agent is a process of the machine it is run on.

The command shows the token to all users of the machine that it runs on. "capstan join --hub-token-file" does not, with the token
out of the output as JSON.

The holder of the token may ask to join. An administrator still has to accept the cluster. "capstan delete token" ends all
tokens; what it deletes is created again here when it is missing.`

// tokenRequest is one run of "capstan get token".
type tokenRequest struct {
	*options.Global
	useBootstrapToken bool
	file              string
	format            *output.Choice
}

// NewGetTokenCommand is "capstan get token".
func NewGetTokenCommand(global *options.Global) *cobra.Command {
	r := &tokenRequest{Global: global}
	command := &cobra.Command{
		Use:   "token",
		Short: "Print the command with which a cluster joins the hub",
		Long:  getTokenLong,
		Example: "  capstan get token\n  capstan get token --use-bootstrap-token\n" +
			"  capstan get token -o json --output-file hub.json",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().BoolVar(&r.useBootstrapToken, "use-bootstrap-token", false,
		"print the hub's bootstrap token instead of a service account token")
	command.Flags().StringVar(&r.file, "output-file", "", "write to this file, which only you can read, instead of standard output")
	r.format = options.AddOutputFlag(command, output.Text, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := options.CheckOutputFile(r.file); err != nil {
			return err
		}
		if r.DryRun {
			r.AnnounceDryRun(command)
			return r.showPlan()
		}
		return r.RunLimited(command, r.request)
	}
	return command
}

func (r *tokenRequest) request(ctx context.Context) error {
	hub, err := r.HubToChange()
	if err != nil {
		return err
	}
	info, err := joincommand.New(ctx, hub, r.useBootstrapToken, r.Clock.Now())
	if err != nil {
		return err
	}
	content := info.Text()
	if r.format.Format() == output.JSON {
		encoded, err := json.Marshal(info)
		if err != nil {
			return err
		}
		content = string(encoded) + "\n"
	}
	if r.file != "" {
		return r.write(content)
	}
	_, err = fmt.Fprint(r.Out, content)
	return err
}

func (r *tokenRequest) showPlan() error {
	hub, err := r.HubToChange()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("make a token of the service account %s/%s, good for an hour", fleet.NamespaceOperators, fleet.ServiceAccountBootstrap)
	if r.useBootstrapToken {
		what = "read the newest bootstrap token"
	}
	r.Say("would %s, on %s, and write it to %s", what, hub.Server, cmp.Or(r.file, "standard output"))
	return nil
}

func (r *tokenRequest) write(content string) error {
	if err := options.WriteOutputFile(r.file, []byte(content)); err != nil {
		return err
	}
	r.Note("The token and the command to join with are in %s.", r.file)
	return nil
}
