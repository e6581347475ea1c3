package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/fleet"
)

// joining is one run of "capstan join".
type joining struct {
	*app
	cluster    string
	kubeconfig string
	invitation hubapi.Invitation
	detach     bool
	wait       bool
}

const joinLong = `Join a cluster to a hub: run its agent as a process of this machine.

"capstan get token" on the hub prints the command with the token and the URL. The agent needs a kubeconfig of the cluster
that may do there what the hub will ask for; its current context is used. The agent runs until you stop it. With --detach
it runs in the background: "capstan status" shows it, "capstan down" stops it, "capstan up" starts it again.

The hub is verified with --ca-file; or, with a bootstrap token, by the signature of that token on what the hub publishes
about itself. With other tokens the certificate authority that the hub publishes is trusted on first use, and its
fingerprint is shown. The proxy of --proxy-url is for the connection to the hub.

An administrator of the hub then accepts the cluster; the command for that is printed.`

// clusterName is what the name of a cluster looks like (CA-17): it is the name of a namespace on the hub, too.
var clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// joinCommand is CA-15 to CA-17 for an agent that is a local process.
func (a *app) joinCommand() *cobra.Command {
	run := &joining{app: a}
	command := &cobra.Command{
		Use:   "join --hub-token TOKEN --hub-apiserver URL --cluster-name NAME --managed-cluster-kubeconfig FILE",
		Short: "Join a cluster to a hub",
		Long:  joinLong,
		Args:  cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&run.invitation.Token, "hub-token", "", "token to join with, from \"capstan get token\" on the hub")
	flags.StringVar(&run.invitation.Server, "hub-apiserver", "", "URL of the hub")
	flags.StringVar(&run.cluster, "cluster-name", "", "name that the cluster is to have on the hub")
	flags.StringVar(&run.kubeconfig, "managed-cluster-kubeconfig", "", "kubeconfig of the cluster")
	flags.StringVar(&run.invitation.CAFile, "ca-file", "", "PEM certificates to verify the hub with")
	flags.StringVar(&run.invitation.ProxyURL, "proxy-url", "", "URL of an HTTP proxy to reach the hub through")
	flags.StringVar(&run.invitation.ProxyCAFile, "proxy-ca-file", "", "PEM certificates to verify the proxy with")
	flags.BoolVar(&run.detach, "detach", false, "run the agent in the background")
	flags.BoolVar(&run.wait, "wait", false, "with --detach, wait until the hub knows the cluster")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := run.check(); err != nil {
			return err
		}
		a.announceDryRun(command)
		return run.join(command.Context())
	}
	return command
}

// check finds what is missing or wrong before anybody is asked.
func (j *joining) check() error {
	hint := "\"capstan get token\" on the hub prints the whole command"
	switch {
	case j.invitation.Token == "":
		return fmt.Errorf("token is missing: --hub-token: %s", hint)
	case j.invitation.Server == "":
		return fmt.Errorf("hub-server is missing: --hub-apiserver: %s", hint)
	case j.cluster == "":
		return errors.New("cluster-name is missing: --cluster-name: choose the name that the cluster is to have on the hub")
	case j.kubeconfig == "":
		return errors.New("--managed-cluster-kubeconfig is missing: the agent runs as a process of this machine and needs a kubeconfig of the cluster it is for")
	case j.app.kubeconfig != "" || j.context != "":
		return errors.New("--kubeconfig, --context: of no use here: the kubeconfig of the cluster is --managed-cluster-kubeconfig, and its current context is used")
	case !clusterName.MatchString(j.cluster) || len(j.cluster) > validation.DNS1123LabelMaxLength:
		return fmt.Errorf("--cluster-name: %q: must be small letters, digits and dashes, begin and end with a letter or digit, and be at most %d long, such as cluster1",
			j.cluster, validation.DNS1123LabelMaxLength)
	case fleet.ReservedClusterName(j.cluster):
		return fmt.Errorf("--cluster-name: %q is reserved: choose another name", j.cluster)
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
	if _, err := clientcmd.BuildConfigFromFlags("", file); err != nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %s: %w: choose its context with \"kubectl config use-context\" if that is what it lacks", file, err)
	}
	return nil
}

func (j *joining) join(ctx context.Context) error {
	trust, hub, err := j.findHub(ctx)
	if err != nil {
		return err
	}
	enrolment := playground.Enrolment{Cluster: j.cluster, Kubeconfig: j.kubeconfig, Invitation: j.invitation, Trust: trust}
	if j.dryRun {
		program, err := j.home.AgentProgram(j.cluster, j.kubeconfig)
		if err == nil {
			j.say("would run %s %s", program.Path, strings.Join(program.Args, " "))
		}
		return err
	}
	program, err := j.home.Enrol(enrolment)
	if err != nil {
		return err
	}
	if j.detach {
		return j.runDetached(ctx, hub, program, enrolment)
	}
	return j.runAttached(ctx, hub, program)
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
func (j *joining) runAttached(ctx context.Context, hub *hubapi.Hub, program playground.Program) error {
	agent, err := program.Attach(ctx, j.errOut)
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
	if ctx.Err() != nil {
		j.note("The agent is stopped. The same command starts it again.")
		return nil
	}
	return fmt.Errorf("the agent ended: %w: its log above says why", err)
}

// sayAccept is what an administrator of the hub does next (CA-17).
func (j *joining) sayAccept() {
	j.say("Please log onto the hub cluster and run the following command:\n\n    capstan accept --clusters %s\n\n"+
		"A hub with the feature gate ManagedClusterAutoApproval may accept it by itself.", j.cluster)
}
