package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// joining is one run of "capstan join".
type joining struct {
	*app
	cluster    string
	kubeconfig string
	tokenFile  string
	invitation hubapi.Invitation
	detach     bool
	wait       bool
}

const joinLong = `Join a cluster to a hub: run its agent as a process of this machine.

"capstan get token" on the hub prints the command with the token and the URL. The agent needs a kubeconfig of the cluster
that may do there what the hub will ask for; its current context is used. The agent runs until you stop it. With --detach
it runs in the background: "capstan status" shows it, "capstan down" stops it, "capstan up" starts it again. "capstan unjoin"
removes it.

The hub is verified with the first of these that there is: --ca-file; --ca-cert-hash, which "capstan get token" prints; the
signature of a bootstrap token on what the hub publishes about itself. Without any, --trust-on-first-use trusts the server,
whichever it is, and shows the fingerprint of what it sent. The proxy of --proxy-url is for the connection to the hub.

All users of a machine see the arguments of its processes. --hub-token-file keeps the token out of them:

  capstan get token -o json --output-file hub.json
  jq -r '."hub-token"' hub.json | capstan join --hub-token-file - --hub-apiserver URL …

An administrator of the hub then accepts the cluster; the command for that is printed.`

// joinCommand is "capstan join", for an agent that is a local process.
func (a *app) joinCommand() *cobra.Command {
	run := &joining{app: a}
	command := &cobra.Command{
		Use:   "join --hub-token TOKEN --hub-apiserver URL --cluster-name NAME --managed-cluster-kubeconfig FILE",
		Short: "Join a cluster to a hub",
		Long:  joinLong,
		Args:  flagsOnly,
	}
	flags := command.Flags()
	flags.StringVar(&run.invitation.Token, "hub-token", "", "token to join with, from \"capstan get token\" on the hub")
	flags.StringVar(&run.tokenFile, "hub-token-file", "", "file with the token, instead of --hub-token; - reads standard input")
	flags.StringVar(&run.invitation.Server, "hub-apiserver", "", "URL of the hub")
	flags.StringVar(&run.cluster, "cluster-name", "", "name that the cluster is to have on the hub")
	flags.StringVar(&run.kubeconfig, "managed-cluster-kubeconfig", "", "kubeconfig of the cluster")
	flags.StringVar(&run.invitation.CAFile, "ca-file", "", "PEM certificates to verify the hub with")
	flags.StringSliceVar(&run.invitation.Pins, "ca-cert-hash", nil,
		"sha256: and the hash of the public key of the hub's certificate authority, to verify the hub with; several are alternatives")
	flags.BoolVar(&run.invitation.TrustOnFirstUse, "trust-on-first-use", false,
		"join a hub that nothing vouches for but the server itself; the server that answers at the URL gets the token")
	flags.StringVar(&run.invitation.ProxyURL, "proxy-url", "", "URL of an HTTP proxy to reach the hub through")
	flags.StringVar(&run.invitation.ProxyCAFile, "proxy-ca-file", "", "PEM certificates to verify the proxy with")
	flags.BoolVar(&run.detach, "detach", false, "run the agent in the background")
	flags.BoolVar(&run.wait, "wait", false, "with --detach, wait until the hub knows the cluster")
	for _, flag := range []string{"hub-token", "hub-apiserver", "cluster-name", "ca-cert-hash", "proxy-url"} {
		complete(command, flag, cobra.NoFileCompletions)
	}
	command.ValidArgsFunction = cobra.NoFileCompletions
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := run.readToken(); err != nil {
			return err
		}
		if err := run.check(); err != nil {
			return err
		}
		a.announceDryRun(command)
		return run.join(command.Context())
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
	from, name := j.in, "standard input"
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

// check finds what is missing or wrong before any server is asked.
func (j *joining) check() error {
	hint := "\"capstan get token\" on the hub prints the whole command"
	switch {
	case j.invitation.Token == "":
		return fmt.Errorf("token is missing: --hub-token or --hub-token-file: %s", hint)
	case j.invitation.Server == "":
		return fmt.Errorf("hub-server is missing: --hub-apiserver: %s", hint)
	case j.cluster == "":
		return errors.New("cluster-name is missing: --cluster-name: choose the name that the cluster is to have on the hub")
	case j.kubeconfig == "":
		return errors.New("--managed-cluster-kubeconfig is missing: the agent runs as a process of this machine and needs a kubeconfig of the cluster it is for")
	case j.app.kubeconfig != "" || j.context != "":
		return errors.New("--kubeconfig, --context: of no use here: the kubeconfig of the cluster is --managed-cluster-kubeconfig, and its current context is used")
	case fleet.ReservedClusterName(j.cluster):
		return fmt.Errorf("--cluster-name: %q is reserved: choose another name", j.cluster)
	}
	if err := checkClusterName("--cluster-name", j.cluster); err != nil {
		return err
	}
	if err := j.invitation.Check(); err != nil {
		return err
	}
	return j.checkKubeconfig()
}

func (j *joining) checkKubeconfig() error {
	file, err := filepath.Abs(j.kubeconfig)
	if err != nil {
		return err
	}
	j.kubeconfig = file
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %w: name a kubeconfig that leads to the cluster", err)
	}
	if config.Contexts[config.CurrentContext] == nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %s: its current context is %q, which is none of its contexts: choose one of %s with \"kubectl config use-context\"",
			file, config.CurrentContext, strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
	}
	if _, err := clientcmd.BuildConfigFromFlags("", file); err != nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %s: %w", file, err)
	}
	return nil
}

func (j *joining) join(ctx context.Context) error {
	trust, hub, err := j.findHub(ctx)
	if err != nil {
		return err
	}
	member, err := j.findCluster(ctx)
	if err != nil {
		return err
	}
	enrolment := playground.Enrolment{Member: member, Invitation: j.invitation, Trust: trust}
	if j.dryRun {
		program, err := j.home.AgentProgram(member)
		if err == nil {
			j.say("would run %s", shellCommand(append([]string{program.Path}, program.Args...)...))
		}
		return err
	}
	j.warnOfClash(ctx, hub)
	program, err := j.home.Enrol(enrolment)
	if err != nil {
		return err
	}
	if j.detach {
		return j.runDetached(ctx, hub, program, enrolment)
	}
	return j.runAttached(ctx, hub, program, enrolment)
}

// findHub makes sure that there is a hub, that it is the right one, and that it lets the token in.
func (j *joining) findHub(ctx context.Context) (hubapi.Trust, *hubapi.Hub, error) {
	ctx, cancel := j.limited(ctx)
	defer cancel()
	trust, err := j.invitation.Trust(ctx)
	if err != nil {
		return trust, nil, err
	}
	if trust.OnFirstUse {
		j.note("Warning: the hub is %s.\nCompare it with the hub's, or name a file with the right one: --ca-file.", trust.Reason)
	}
	hub, err := j.invitation.Hub(trust)
	if err != nil {
		return trust, nil, err
	}
	return trust, hub, hub.CheckIsHub(ctx)
}

// findCluster makes sure that the kubeconfig lets us into a cluster, and finds the URL that the cluster publishes, else
// that of the kubeconfig.
func (j *joining) findCluster(ctx context.Context) (playground.Member, error) {
	member := playground.Member{Name: j.cluster, Kubeconfig: j.kubeconfig}
	ctx, cancel := j.limited(ctx)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", j.kubeconfig)
	if err != nil {
		return member, err
	}
	cluster, err := hubapi.New(config)
	if err == nil {
		err = cluster.Live(ctx)
	}
	if err != nil {
		return member, fmt.Errorf("--managed-cluster-kubeconfig: %s: the cluster at %s cannot be used: %w: see whether it runs, and whether the kubeconfig is a recent one",
			j.kubeconfig, config.Host, err)
	}
	published, err := cluster.Published(ctx)
	if err == nil && strings.HasPrefix(published.Server, "https://") {
		member.URL = published.Server
	}
	return member, nil
}

// warnOfClash tells that the name is taken already, unless that is the agent of this home.
func (j *joining) warnOfClash(ctx context.Context, hub *hubapi.Hub) {
	ctx, cancel := j.limited(ctx)
	defer cancel()
	if _, err := hub.Cluster(ctx, j.cluster); err == nil && !j.home.Enrolled(j.cluster) {
		j.note("Warning: the hub knows a cluster %s already. If that is another cluster, interrupt this agent (\"capstan down\" if it is detached) "+
			"and choose another --cluster-name: both would answer to the same works.", j.cluster)
	}
}

func (j *joining) runDetached(ctx context.Context, hub *hubapi.Hub, program playground.Program, enrolment playground.Enrolment) error {
	agent, err := j.home.Detach(program, enrolment)
	if err != nil {
		return err
	}
	if j.wait {
		if err := j.awaitCluster(ctx, hub, agent); err != nil {
			return err
		}
	}
	j.note("The agent runs in the background as process %d; its log is %s.", agent.PID, agent.Log)
	j.sayAccept()
	return nil
}

func (j *joining) awaitCluster(ctx context.Context, hub *hubapi.Hub, agent *playground.Process) error {
	ctx, cancel := j.limited(ctx)
	defer cancel()
	progress := j.progress()
	defer progress.Close()
	progress.Wait(j.cluster, "registering with the hub")
	if err := playground.AwaitCluster(ctx, hub, j.cluster, agent); err != nil {
		return err
	}
	progress.Done(j.cluster, "registered with the hub")
	return nil
}

// runAttached shows the log of the agent, and how to accept the cluster once the hub knows it.
func (j *joining) runAttached(ctx context.Context, hub *hubapi.Hub, program playground.Program, enrolment playground.Enrolment) error {
	agent, err := j.home.Attach(ctx, program, enrolment, j.errOut)
	if err != nil {
		return err
	}
	registering, cancel := j.limited(ctx)
	defer cancel()
	switch err := playground.AwaitCluster(registering, hub, j.cluster, agent); {
	case err == nil:
		j.sayAccept()
	case agent.Running() && ctx.Err() == nil:
		j.note("The hub does not know the cluster yet: %v\nThe agent goes on trying; interrupt it to give up.", err)
	}
	err = agent.Result()
	if ctx.Err() != nil || err == nil { // asked to stop, by an interrupt, "capstan down" or "capstan unjoin"
		j.note("The agent is stopped. The same command starts it again.")
		return nil
	}
	return fmt.Errorf("the agent ended: %w: its log above says why", err)
}

// sayAccept is what an administrator of the hub does next.
func (j *joining) sayAccept() {
	j.say("Please log onto the hub cluster and run the following command:\n\n    capstan accept --clusters %s\n\n"+
		"A hub with the feature gate ManagedClusterAutoApproval may accept it by itself.", j.cluster)
}
