package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// joinInfo is what a cluster needs to join; the JSON names are those that clusteradm prints.
type joinInfo struct {
	Token  string `json:"hub-token"`
	Server string `json:"hub-apiserver"`
	// Pins let those who join tell the hub from an impostor; none for a hub whose certificate everybody can verify.
	Pins []string `json:"ca-cert-hash,omitempty"`

	wait bool // for the agent; it is no part of what is printed
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
	return output.ShellCommand(words...)
}

// commandLine is the whole command. What is in angle brackets is for the person to fill in.
func (j joinInfo) commandLine() string { return j.words() + " --cluster-name <cluster_name>" }

func (j joinInfo) text() string {
	return fmt.Sprintf("token=%s\nplease log on spoke and run:\n\n    %s\n", j.Token, j.commandLine())
}

// joinInfoOf asks a hub for what a cluster joins it with.
func joinInfoOf(ctx context.Context, hub *hubapi.Hub, useBootstrapToken bool, now time.Time) (joinInfo, error) {
	published, err := hub.Published(ctx)
	if err != nil {
		return joinInfo{}, err
	}
	if !strings.HasPrefix(published.Server, "https://") {
		return joinInfo{}, fmt.Errorf("agents would reach the hub at %q, without TLS: an attacker on the way could read their token and answer in place of the hub. "+
			"Its address has to begin with https://; ConfigMap kube-public/cluster-info says what it is, or else the kubeconfig", published.Server)
	}
	token, err := newToken(ctx, hub, useBootstrapToken, now)
	return joinInfo{Token: token, Server: published.Server, Pins: published.Pins}, err
}

func newToken(ctx context.Context, hub *hubapi.Hub, useBootstrapToken bool, now time.Time) (string, error) {
	if useBootstrapToken {
		return hub.BootstrapToken(ctx, now)
	}
	return hub.ServiceAccountToken(ctx)
}
