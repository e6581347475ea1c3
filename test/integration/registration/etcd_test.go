package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/test/env"
)

// memberConfig is the environment variable with which this test binary is a member of an etcd. It names the file of its configuration.
const memberConfig = "CAPSTAN_TEST_ETCD_CONFIG"

// runMember runs a member of an etcd until it fails, or is killed.
func runMember(file string) error {
	config, err := embed.ConfigFromFile(file)
	if err != nil {
		return err
	}
	member, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-member.Err()
}

// etcdCluster is an etcd of three members with TLS, each in a process.
type etcdCluster struct {
	members                   []*env.Process
	endpoints                 []string
	caFile, certFile, keyFile string
	client                    *clientv3.Client
}

func startEtcd(t *testing.T) *etcdCluster {
	t.Helper()
	dir := t.TempDir()
	keys, err := pki.Open(t.Context(), pki.Options{Dir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdCluster{caFile: keys.Bundle(pki.EtcdCA)}
	e.certFile, e.keyFile = keys.Certificate(pki.EtcdClient)
	var peers, cluster []string
	for i := range 3 {
		e.endpoints = append(e.endpoints, "https://"+env.FreeAddress(t))
		peers = append(peers, "https://"+env.FreeAddress(t))
		cluster = append(cluster, fmt.Sprintf("member%d=%s", i, peers[i]))
	}
	certFile, keyFile := keys.Certificate(pki.EtcdServer)
	security := map[string]any{"trusted-ca-file": e.caFile, "cert-file": certFile, "key-file": keyFile, "client-cert-auth": true}
	for i := range e.endpoints {
		name := fmt.Sprintf("member%d", i)
		config, err := json.Marshal(map[string]any{
			"name": name, "data-dir": filepath.Join(dir, name), "log-level": "warn", "unsafe-no-fsync": true,
			"listen-client-urls": e.endpoints[i], "advertise-client-urls": e.endpoints[i], "client-transport-security": security,
			"listen-peer-urls": peers[i], "initial-advertise-peer-urls": peers[i], "peer-transport-security": security,
			"initial-cluster": strings.Join(cluster, ","),
		})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name+".json")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			t.Fatal(err)
		}
		member := env.NewProgram(t, []string{memberConfig + "=" + file}, program)
		if err := member.Start(); err != nil {
			t.Fatal(err)
		}
		e.members = append(e.members, member)
	}
	tlsConfig, err := transport.TLSInfo{TrustedCAFile: e.caFile, CertFile: e.certFile, KeyFile: e.keyFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	e.client, err = clientv3.New(clientv3.Config{Endpoints: e.endpoints, TLS: tlsConfig, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.client.Close() })
	for i := range e.members {
		e.awaitMember(t, i)
	}
	return e
}

// awaitMember waits until a member knows who leads.
func (e *etcdCluster) awaitMember(t *testing.T, member int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		status, err := e.client.Status(ctx, e.endpoints[member])
		if err == nil && status.Leader == 0 {
			err = fmt.Errorf("%s knows no leader", e.endpoints[member])
		}
		return err
	})
}

// leader is the member that leads.
func (e *etcdCluster) leader(t *testing.T) (leader int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		for i, endpoint := range e.endpoints {
			status, err := e.client.Status(ctx, endpoint)
			if err != nil {
				return err
			}
			if status.Leader == status.Header.MemberId {
				leader = i
				return nil
			}
		}
		return errors.New("no member of the etcd leads")
	})
	return leader
}

// startAgain starts a member that was killed.
func (e *etcdCluster) startAgain(t *testing.T, member int) {
	t.Helper()
	if err := e.members[member].Start(); err != nil {
		t.Fatal(err)
	}
	e.awaitMember(t, member)
}

// config is the section of ocmconfig.yaml for hubs.
func (e *etcdCluster) config() string {
	return fmt.Sprintf("etcd:\n  mode: external\n  servers: [%s]\n  prefix: /replicas\n  caFile: %s\n  certFile: %s\n  keyFile: %s\n",
		strings.Join(e.endpoints, ", "), e.caFile, e.certFile, e.keyFile)
}
