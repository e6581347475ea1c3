// Package joincommand makes the command with which a cluster joins a hub: with its token, its address, and what distinguishes it from an
// impostor.
package joincommand

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capstan-io/capstan/internal/cli/bootstrap"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// Info is what a cluster needs to join; the JSON names are those that clusteradm prints.
type Info struct {
	Token  string `json:"hub-token"`
	Server string `json:"hub-apiserver"`
	// Pins let those who join distinguish the hub from an impostor; none for a hub whose certificate everybody can verify.
	Pins []string `json:"ca-cert-hash,omitempty"`

	// Wait has the command wait for the agent.
	Wait bool `json:"-"`
}

// Command is the command to run for the cluster, but for the name of the cluster.
func (j Info) Command() string {
	words := []string{"capstan", "join", "--hub-token", j.Token, "--hub-apiserver", j.Server}
	if len(j.Pins) > 0 {
		words = append(words, "--ca-cert-hash", strings.Join(j.Pins, ","))
	}
	if j.Wait {
		words = append(words, "--wait")
	}
	return output.ShellCommand(words...)
}

// CommandLine is the whole command. What is in angle brackets is for the person to fill in.
func (j Info) CommandLine() string { return j.Command() + " --cluster-name <cluster_name>" }

// Text is what "capstan get token" prints, in the words of clusteradm.
func (j Info) Text() string {
	return fmt.Sprintf("token=%s\nplease log on spoke and run:\n\n    %s\n", j.Token, j.CommandLine())
}

// New reads from a hub what a cluster joins it with.
func New(ctx context.Context, hub *hubapi.Hub, useBootstrapToken bool, now time.Time) (Info, error) {
	published, err := hub.Published(ctx)
	if err != nil {
		return Info{}, err
	}
	if !strings.HasPrefix(published.Server, "https://") {
		return Info{}, fmt.Errorf("agents would reach the hub at %q, without TLS: an attacker on the way could read their token and answer in place of the hub. "+
			"Its address has to begin with https://; ConfigMap kube-public/cluster-info says what it is, or else the kubeconfig", published.Server)
	}
	token, err := newToken(ctx, hub, useBootstrapToken, now)
	return Info{Token: token, Server: published.Server, Pins: published.Pins}, err
}

func newToken(ctx context.Context, hub *hubapi.Hub, useBootstrapToken bool, now time.Time) (string, error) {
	if useBootstrapToken {
		return bootstrap.Token(ctx, hub, now)
	}
	return bootstrap.ServiceAccountToken(ctx, hub)
}
