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

// MadeBy fails if the credential is of another kind than an agent with this command has, or with no certificate if it is nil, or with
// another command.
func (c *Credential) MadeBy(command *clientcmdapi.ExecConfig) error {
	now := c.Command()
	switch {
	case now == nil && command == nil:
		return nil
	case now == nil:
		return fmt.Errorf("it is a client certificate, and the agent is to use the command %s", command.Command)
	case command == nil:
		return fmt.Errorf("it is the command %s, and the agent is to use a client certificate", now.Command)
	case now.Command != command.Command || !slices.Equal(now.Args, command.Args):
		return fmt.Errorf("it is the command %s %q, and the agent is to use %s %q", now.Command, now.Args, command.Command, command.Args)
	}
	return nil
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
