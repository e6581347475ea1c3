package hubkubeconfig

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// WithCommand lays out the credential of an agent for which a command makes tokens: the hub as the bootstrap kubeconfig describes it. hubID
// distinguishes the hub from others.
func WithCommand(
	bootstrap *clientcmdapi.Config, id identity.Identity, hubID string, command *clientcmdapi.ExecConfig,
) (*Credential, error) {
	return withKubeconfig(bootstrap, Credential{Identity: id}, origin{HubID: hubID}, clientcmdapi.AuthInfo{Exec: command})
}

// Command makes the tokens of the credential; nil if it has a certificate.
func (c *Credential) Command() *clientcmdapi.ExecConfig {
	config, err := clientcmd.Load(c.Kubeconfig)
	if err != nil || config.AuthInfos[fleet.KubeconfigUser] == nil {
		return nil
	}
	return config.AuthInfos[fleet.KubeconfigUser].Exec
}

// MadeBy fails if the credential is of another kind than an agent with this command has, which is a certificate if it is nil, or if its
// own command makes other tokens. The program that makes them does not matter.
func (c *Credential) MadeBy(command *clientcmdapi.ExecConfig) error {
	now := c.Command()
	switch {
	case now == nil && command == nil:
		return nil
	case now == nil:
		return fmt.Errorf("it is a client certificate, and the agent is to use the command %s", command.Command)
	case command == nil:
		return fmt.Errorf("it is the command %s, and the agent is to use a client certificate", now.Command)
	case tokensOf(now) != tokensOf(command):
		return fmt.Errorf("it is the command %s %q, and the agent is to use %s %q", now.Command, now.Args, command.Command, command.Args)
	}
	return nil
}

// tokens are what a command makes: for an EKS cluster, as a role.
type tokens struct{ cluster, region, role string }

func tokensOf(command *clientcmdapi.ExecConfig) tokens {
	value := func(flag string) string {
		at := slices.Index(command.Args, flag) + 1
		if at == 0 || at == len(command.Args) {
			return ""
		}
		return command.Args[at]
	}
	return tokens{cluster: value("--cluster-name"), region: value("--region"), role: value("--role-arn")}
}

// RunsAs reports whether the command of the credential is this one, with the same program and arguments.
func (c *Credential) RunsAs(command *clientcmdapi.ExecConfig) bool {
	now := c.Command()
	return now != nil && now.Command == command.Command && slices.Equal(now.Args, command.Args)
}

// RunningAs is the same credential with another command that makes its tokens.
func (c *Credential) RunningAs(command *clientcmdapi.ExecConfig) (*Credential, error) {
	config, _, _, err := c.read()
	if err != nil {
		return nil, err
	}
	config.AuthInfos[fleet.KubeconfigUser] = &clientcmdapi.AuthInfo{Exec: command}
	return c.with(config)
}

// Expired fails if the credential has a certificate that has expired. Tokens of a command are made again as needed.
func (c *Credential) Expired(now time.Time) error {
	if c.Command() != nil {
		return nil
	}
	_, notAfter, err := c.Lifetime()
	if err != nil {
		return err
	}
	if !now.Before(notAfter) {
		return fmt.Errorf("the client certificate for the hub expired on %s", notAfter.Format(time.RFC3339))
	}
	return nil
}
