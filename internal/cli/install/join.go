package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/terminal"
)

// joining is one run of "capstan join".
type joining struct {
	*options.Global
	cluster    string
	tokenFile  string
	invitation hubapi.Invitation
	wait       bool

	local, detach bool
	// managedKubeconfig leads to the cluster, with --local or where the agent runs in another.
	managedKubeconfig string
}

const joinLong = `Join a cluster to a hub: install the agent in the cluster of the kubeconfig.

"capstan get token" on the hub prints the command with the token and the URL. The operator and a Klusterlet, which tells it about the
agent, are applied by server-side apply, as the chart klusterlet has them; so the command can be run again, as when the hub has another
certificate authority or address, and takes over what clusteradm has applied. An agent is not taken to a hub with another address and
another certificate authority, unless --force insists; hubs that share one, such as that of a company, count as the same hub. An
administrator of the hub then accepts the cluster; the command for that is printed. --wait waits until the agent runs and has asked the hub
to join, or works there already; it says what holds that up, and where the hub does not show it, as of an agent that registers by AWS IAM
again. "capstan unjoin" takes the agent out again.

  --mode default    the agent runs in the cluster that it is for, in one pod with --singleton, in two without
  --mode hosted     the agent runs in the cluster of the kubeconfig, for the cluster of --managed-cluster-kubeconfig
  --local           the agent is a process of this machine, for the cluster of --managed-cluster-kubeconfig, until you stop it.
                    With --detach it runs in the background: "capstan status" shows it, "capstan down" stops it. The same command
                    starts it again, or has it take up what has changed of the hub; "capstan up" starts it with the playground of
                    this machine, if there is one. "capstan unjoin --local" removes it

The hub is verified with the first of these that there is: --ca-file; --ca-cert-hash, which "capstan get token" prints; your
kubeconfig, if it has a cluster with the address or the certificate authority of the hub; the signature of a bootstrap token on what
the hub publishes about itself; the certificate authorities of this machine. If none is of help, as with a command that "clusteradm get
token" printed on another machine, a terminal shows the fingerprint of what the server sent and asks; without a terminal the command
fails, unless --trust-on-first-use trusts the server, whichever it is. The token is not sent before. The proxy of --proxy-url is for the
connection to the hub.

All users of a machine see the arguments of its processes. --hub-token-file keeps the token out of them:

  capstan get token -o json --output-file hub.json
  jq -r '."hub-token"' hub.json | capstan join --hub-token-file - --hub-apiserver URL …`

// NewJoinCommand is "capstan join".
func NewJoinCommand(global *options.Global) *cobra.Command {
	run := &joining{Global: global}
	inCluster, local := &clusterJoin{joining: run}, &localJoin{joining: run}
	command := &cobra.Command{
		Use:   "join --hub-token TOKEN --hub-apiserver URL --cluster-name NAME",
		Short: "Join a cluster to a hub",
		Long:  joinLong,
		Example: "  capstan join --hub-token … --hub-apiserver … --cluster-name cluster1 --wait --context cluster1\n" +
			"  capstan join --hub-token … --hub-apiserver … --cluster-name cluster1 --mode hosted --managed-cluster-kubeconfig FILE\n" +
			"  capstan join --hub-token … --hub-apiserver … --cluster-name cluster1 --local --managed-cluster-kubeconfig FILE",
		Args: options.FlagsOnly,
	}
	flags := command.Flags()
	flags.StringVar(&run.invitation.Token, "hub-token", "", "token to join with, from \"capstan get token\" on the hub")
	flags.StringVar(&run.tokenFile, "hub-token-file", "", "file with the token, instead of --hub-token; - reads standard input")
	flags.StringVar(&run.invitation.Server, "hub-apiserver", "", "URL of the hub")
	flags.StringVar(&run.cluster, "cluster-name", "", "name that the cluster is to have on the hub")
	flags.StringVar(&run.invitation.CAFile, "ca-file", "", "PEM certificates to verify the hub with")
	flags.StringSliceVar(&run.invitation.Pins, "ca-cert-hash", nil,
		"sha256: and the hash of the public key of the hub's certificate authority, to verify the hub with; several are alternatives")
	flags.BoolVar(&run.invitation.TrustOnFirstUse, "trust-on-first-use", false,
		"join a hub that nothing vouches for but the server itself; the server that answers at the URL gets the token")
	flags.StringVar(&run.invitation.ProxyURL, "proxy-url", "", "URL of an HTTP proxy to reach the hub through")
	flags.StringVar(&run.invitation.ProxyCAFile, "proxy-ca-file", "", "PEM certificates to verify the proxy with")
	flags.BoolVar(&run.local, "local", false, "run the agent as a process of this machine, not in a cluster")
	flags.BoolVar(&run.detach, "detach", false, "with --local, run the agent in the background")
	flags.BoolVar(&run.wait, "wait", false,
		"wait until the agent runs and the hub knows the cluster, for --timeout seconds at most; with --local, only with --detach")
	inCluster.add(command)
	flags.StringVar(&run.managedKubeconfig, "managed-cluster-kubeconfig", "", "with --mode hosted and --local, kubeconfig of the cluster to join")
	for _, flag := range []string{"hub-token", "hub-apiserver", "cluster-name", "ca-cert-hash", "proxy-url"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
	command.ValidArgsFunction = cobra.NoFileCompletions
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := run.readToken(); err != nil {
			return err
		}
		if err := run.check(); err != nil {
			return err
		}
		if run.local {
			if err := local.check(command, inCluster.flags); err != nil {
				return err
			}
			run.AnnounceDryRun(command)
			return local.join(command.Context())
		}
		if err := inCluster.check(); err != nil {
			return err
		}
		return run.RunLimited(command, inCluster.join)
	}
	return command
}

// readToken takes the token from the file, if one is named.
func (j *joining) readToken() error {
	if j.tokenFile == "" {
		return nil
	}
	if j.invitation.Token != "" {
		return errors.New("--hub-token, --hub-token-file: use one of them")
	}
	from, name := j.In, "standard input"
	if j.tokenFile != "-" {
		file, err := os.Open(j.tokenFile)
		if err != nil {
			return fmt.Errorf("--hub-token-file: %w", err)
		}
		defer func() { _ = file.Close() }()
		from, name = file, j.tokenFile
	}
	const longest = 1 << 16 // more than any token has
	content, err := io.ReadAll(io.LimitReader(from, longest))
	if err != nil {
		return fmt.Errorf("--hub-token-file: %s: %w", name, err)
	}
	j.invitation.Token = strings.TrimSpace(string(content))
	if words := len(strings.Fields(j.invitation.Token)); words != 1 {
		return fmt.Errorf("--hub-token-file: %s holds %d words: it has to hold a token and nothing else", name, words)
	}
	return nil
}

// check finds what is missing or wrong before any request.
func (j *joining) check() error {
	hint := "\"capstan get token\" on the hub prints the whole command"
	switch {
	case j.invitation.Token == "":
		return fmt.Errorf("token is missing: --hub-token or --hub-token-file: %s", hint)
	case j.invitation.Server == "":
		return fmt.Errorf("hub-server is missing: --hub-apiserver: %s", hint)
	case j.cluster == "":
		return errors.New("cluster-name is missing: --cluster-name: choose the name that the cluster is to have on the hub")
	case fleet.ReservedClusterName(j.cluster):
		return fmt.Errorf("--cluster-name: %q is reserved: choose another name", j.cluster)
	}
	if err := options.CheckClusterName("--cluster-name", j.cluster); err != nil {
		return err
	}
	return j.invitation.Check()
}

// findHub makes sure that there is a hub, that it is the right one, and that it accepts the token.
func (j *joining) findHub(ctx context.Context) (hubapi.Trust, *hubapi.Hub, error) {
	ctx, cancel := j.Limited(ctx)
	defer cancel()
	j.invitation.Known = j.knownClusters()
	j.invitation.Confirm = j.confirmHub
	trust, err := j.invitation.Trust(ctx)
	if err != nil {
		return trust, nil, err
	}
	if trust.OnFirstUse {
		j.Note("Warning: the hub is %s.\nCompare it with the hub's, or name a file with the right one: --ca-file.", trust.Reason)
	}
	if trust.Known {
		j.Note("The hub is %s.", trust.Reason)
	}
	hub, err := j.invitation.Hub(trust)
	if err != nil {
		return trust, nil, err
	}
	return trust, hub, hub.CheckIsHub(ctx)
}

// knownClusters are those that the user trusts already: the clusters of the kubeconfigs.
func (j *joining) knownClusters() []apiclient.KnownCluster {
	return append(j.InstallTarget().Known(), j.Target().Known()...)
}

// confirmHub asks a person who sees a terminal whether a hub that nothing vouches for is the right one. The error is why no answer is
// waited for any more.
func (j *joining) confirmHub(ctx context.Context, fingerprint string) (bool, error) {
	in, isFile := j.In.(*os.File)
	if !isFile || j.tokenFile == "-" || !terminal.Is(in) || !terminal.Is(j.ErrOut) {
		return false, nil
	}
	fmt.Fprintf(j.ErrOut, "Nothing vouches for the hub at %s but the server itself, which sent the certificate authority\n  %s\n"+
		"The token goes to this server, and it will rule the cluster. Is it the hub? Type yes to go on: ", j.invitation.Server, fingerprint)
	answer, err := terminal.ReadLine(ctx, in)
	if ctx.Err() != nil {
		fmt.Fprintln(j.ErrOut)
		return false, context.Cause(ctx)
	}
	return err == nil && strings.TrimSpace(answer) == "yes", nil
}

// warnOfMove warns that an agent gets another URL, which may be that of another hub: one agent serves one hub. forEach is how to have an
// agent of each.
func (j *joining) warnOfMove(before, now, forEach string) {
	j.Note("Warning: the agent of cluster %s joined the hub at %s before. If %s is another hub, the agent leaves the former one; for an "+
		"agent of each, %s.", j.cluster, before, now, forEach)
}

// reportRegistered says that the hub has seen the agent, or that this cannot be seen, which is no failure.
func (j *joining) reportRegistered(progress *terminal.Progress, err error) error {
	var invisible *joinrequests.InvisibleError
	switch {
	case errors.As(err, &invisible):
		progress.Warn(j.cluster, fmt.Sprintf("%v: see on the hub, with \"capstan get clusters %s\"", invisible, j.cluster))
		return nil
	case err == nil:
		progress.Done(j.cluster, "registered with the hub")
	}
	return err
}

// printAcceptCommand prints what an administrator of the hub does next.
func (j *joining) printAcceptCommand() {
	j.Say("Please log onto the hub cluster and run the following command:\n\n    capstan accept --clusters %s\n\n"+
		"A hub with the feature gate ManagedClusterAutoApproval may accept it by itself.", j.cluster)
}
