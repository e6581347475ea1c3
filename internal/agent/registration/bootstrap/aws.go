package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/ekstoken"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// command makes tokens of AWS for the hub; nil if the agent registers by a certificate request. It is the AWS command line, if that runs
// here: it supports more methods to prove to AWS who the agent is than the agent's own command.
func (b *Bootstrap) command() *clientcmdapi.ExecConfig {
	if b.AWS == nil {
		return nil
	}
	command := &clientcmdapi.ExecConfig{
		APIVersion: ekstoken.APIVersion, InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Command: "aws",
		Args: []string{"eks", "get-token", "--cluster-name", b.AWS.Hub.Name, "--region", b.AWS.Hub.Region, "--role-arn", b.AWS.HubRoleARN(),
			"--output", "json"},
	}
	if own, err := os.Executable(); err == nil && !awsCLIRuns() {
		command.Command, command.Args = own, append([]string{ekstoken.Command}, command.Args[2:len(command.Args)-2]...)
	}
	return command
}

// replaceCommand stores the credential with another command that makes the same tokens: the one before may not run where the agent is now.
func (b *Bootstrap) replaceCommand(ctx context.Context, command *clientcmdapi.ExecConfig) (next *hubkubeconfig.Credential, err error) {
	err = b.Store.Update(ctx, func(now hubkubeconfig.Credential) (*hubkubeconfig.Credential, error) {
		var err error
		next, err = now.RunningAs(command)
		return next, err
	})
	if err != nil {
		return nil, fmt.Errorf("have the hub credential use the command %s: %w", command.Command, err)
	}
	log.FromContext(ctx).Info("Tokens for the hub are made by another program", "command", command.Command)
	return next, nil
}

// awsCLIPatience is how long the AWS command line may take to say its version.
const awsCLIPatience = 30 * time.Second

// awsCLIRuns reports whether there is an AWS command line that can run: one from another image may lack its libraries.
var awsCLIRuns = sync.OnceValue(func() bool {
	ctx, cancel := context.WithTimeout(context.Background(), awsCLIPatience)
	defer cancel()
	return exec.CommandContext(ctx, "aws", "--version").Run() == nil
})

// annotations are those of a new ManagedCluster.
func (b *Bootstrap) annotations() map[string]string {
	if b.AWS == nil {
		return b.Annotations
	}
	annotations := b.AWS.Annotations()
	for key, value := range b.Annotations {
		if _, own := annotations[key]; !own {
			annotations[key] = value
		}
	}
	return annotations
}

// checkAWSAnnotations fails if an existing ManagedCluster does not say that it is this cluster of AWS: an agent cannot change that.
func (b *Bootstrap) checkAWSAnnotations(cluster *clusterv1.ManagedCluster) error {
	if b.AWS == nil {
		return nil
	}
	var lacking []string
	annotations := b.AWS.Annotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if cluster.Annotations[key] != annotations[key] {
			lacking = append(lacking, key+"="+annotations[key])
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("ManagedCluster %s exists on the hub and is not that of %s; if it is to be, an administrator of the hub says so with «kubectl annotate "+
		"--overwrite managedcluster %s %s»", cluster.Name, b.AWS.Managed.ARN(), cluster.Name, strings.Join(lacking, " "))
}

// registerByAWS stores a credential whose tokens AWS makes, and returns when the hub lets the agent in with one.
func (b *Bootstrap) registerByAWS(ctx context.Context, hub client.WithWatch, c *candidate) error {
	credential, err := hubkubeconfig.WithCommand(c.config, b.Identity, b.AWS.Hub.ARN(), b.command())
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", c.file, err)
	}
	for recreated := true; recreated; {
		if recreated, err = b.awaitAccepted(ctx, hub); err != nil {
			return err
		}
	}
	if err := b.awaitAuthenticated(ctx, credential); err != nil {
		return err
	}
	if err := b.Store.Save(ctx, credential); err != nil {
		return err
	}
	b.Record(corev1.EventTypeNormal, fleet.EventHubClientConfigReady, "Register", "The hub kubeconfig with IAM role %s is ready", b.AWS.HubRoleARN())
	return nil
}

// awaitAuthenticated returns when the hub knows the credential. What the agent may do there it waits for later.
func (b *Bootstrap) awaitAuthenticated(ctx context.Context, credential *hubkubeconfig.Credential) error {
	// An IAM role takes some seconds to be known everywhere.
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 16, Cap: 30 * time.Second}
	for logged := ""; ; {
		err := b.checkAuthentication(ctx, credential)
		if err == nil {
			return nil
		}
		delay := backoff.Step()
		if err.Error() != logged && delay > time.Second {
			logged = err.Error()
			log.FromContext(ctx).Info("Waiting for AWS to let the agent into the hub; the condition "+fleet.ConditionAWSAccess+
				" of the ManagedCluster says whether the hub has made its role", "role", b.AWS.HubRoleARN(), "reason", logged)
		}
		timer := b.Clock.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}
