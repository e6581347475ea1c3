package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// joinInfo is what a cluster needs to join; the JSON names are those that clusteradm prints.
type joinInfo struct {
	Token  string `json:"hub-token"`
	Server string `json:"hub-apiserver"`
	// Pins let those who join tell the hub from an impostor; none for a hub whose certificate everybody can verify.
	Pins []string `json:"ca-cert-hash,omitempty"`

	wait bool // for the agent
}

// words are the command to run for the cluster, but for the name of the cluster.
func (j joinInfo) words() string {
	words := []string{"capstan", "join", "--hub-token", j.Token, "--hub-apiserver", j.Server}
	if len(j.Pins) > 0 {
		words = append(words, "--ca-cert-hash", strings.Join(j.Pins, ","))
	}
	if j.wait {
		words = append(words, "--wait")
	}
	return shellCommand(words...)
}

// commandLine is the whole command. What is in angle brackets is for the person to fill in.
func (j joinInfo) commandLine() string { return j.words() + " --cluster-name <cluster_name>" }

func (j joinInfo) text() string {
	return fmt.Sprintf("token=%s\nplease log on spoke and run:\n\n    %s\n", j.Token, j.commandLine())
}

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

// getTokenCommand is "capstan get token".
func (a *app) getTokenCommand() *cobra.Command {
	var useBootstrapToken bool
	var file string
	command := &cobra.Command{
		Use:   "token",
		Short: "Print the command with which a cluster joins the hub",
		Long:  getTokenLong,
		Example: "  capstan get token\n  capstan get token --use-bootstrap-token\n" +
			"  capstan get token -o json --output-file hub.json",
		Args:              flagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().BoolVar(&useBootstrapToken, "use-bootstrap-token", false,
		"print the hub's bootstrap token instead of a service account token")
	command.Flags().StringVar(&file, "output-file", "", "write to this file, which only you can read, instead of standard output")
	format := addOutputFlag(command, output.Text, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		a.announceDryRun(command)
		if a.dryRun {
			return a.sayWouldMakeToken(useBootstrapToken, file)
		}
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		info, err := a.joinInfo(ctx, useBootstrapToken)
		if err != nil {
			return err
		}
		content := info.text()
		if format.Format() == output.JSON {
			encoded, err := json.Marshal(info)
			if err != nil {
				return err
			}
			content = string(encoded) + "\n"
		}
		if file != "" {
			return a.writeToken(file, content)
		}
		_, err = fmt.Fprint(a.out, content)
		return err
	}
	return command
}

func (a *app) sayWouldMakeToken(useBootstrapToken bool, file string) error {
	hub, err := a.hub()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("make a token of the service account %s/%s, good for an hour", fleet.NamespaceOperators, fleet.ServiceAccountBootstrap)
	if useBootstrapToken {
		what = "read the newest bootstrap token"
	}
	a.say("would %s, on %s, and write it to %s", what, hub.Server, cmp.Or(file, "standard output"))
	return nil
}

func (a *app) writeToken(file, content string) error {
	if err := writeOutputFile(file, []byte(content)); err != nil {
		return err
	}
	a.note("The token and the command to join with are in %s.", file)
	return nil
}

func (a *app) joinInfo(ctx context.Context, useBootstrapToken bool) (joinInfo, error) {
	hub, err := a.hub()
	if err != nil {
		return joinInfo{}, err
	}
	return a.joinInfoOf(ctx, hub, useBootstrapToken)
}

func (a *app) joinInfoOf(ctx context.Context, hub *hubapi.Hub, useBootstrapToken bool) (joinInfo, error) {
	published, err := hub.Published(ctx)
	if err != nil {
		return joinInfo{}, err
	}
	if !strings.HasPrefix(published.Server, "https://") {
		return joinInfo{}, fmt.Errorf("agents would reach the hub at %q, without TLS: an attacker on the way could read their token and answer in place of the hub. "+
			"Its address has to begin with https://; ConfigMap kube-public/cluster-info says what it is, or else the kubeconfig", published.Server)
	}
	token, err := newToken(ctx, hub, useBootstrapToken, a.clock.Now())
	return joinInfo{Token: token, Server: published.Server, Pins: published.Pins}, err
}

func newToken(ctx context.Context, hub *hubapi.Hub, useBootstrapToken bool, now time.Time) (string, error) {
	if useBootstrapToken {
		return hub.BootstrapToken(ctx, now)
	}
	return hub.ServiceAccountToken(ctx)
}
