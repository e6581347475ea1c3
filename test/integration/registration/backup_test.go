package registration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// runHub runs a command of capstan-hub to its end.
func runHub(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := env.Binary("capstan-hub")
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(output), err
}

func mustRunHub(t *testing.T, wants string, args ...string) {
	t.Helper()
	output, err := runHub(t, args...)
	if err != nil {
		t.Fatalf("capstan-hub %s: %v\n%s", args, err, output)
	}
	if !strings.Contains(output, wants) {
		t.Errorf("capstan-hub %s wrote %q, want %q", args, output, wants)
	}
}

func refusesHub(t *testing.T, wants string, args ...string) {
	t.Helper()
	if output, err := runHub(t, args...); err == nil || !strings.Contains(output, wants) {
		t.Errorf("capstan-hub %s: %v, %q; want an error with %q", args, err, output, wants)
	}
}

// A hub whose machine is lost comes back from a backup that was written while it ran: its agent goes on with the certificate that it has,
// and the hub has what it had then.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	const name = "restored"
	hub := env.StartHub(t, "")
	agent := env.Join(t, hub, framework.Managed, name)
	before := framework.Certificate(t, agent)
	c := hub.Client(t)
	awaitWorking(t, c, name, "before-the-backup")

	file := filepath.Join(t.TempDir(), "hub.backup")
	refusesHub(t, "to administrators only", "backup", "--kubeconfig", filepath.Join(agent.HubDir, fleet.KeyKubeconfig), file)
	mustRunHub(t, "checked", "backup", "--kubeconfig", hub.Kubeconfig, file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v; want one for its owner alone", info, err)
	}
	refusesHub(t, "exists", "backup", "--kubeconfig", hub.Kubeconfig, file)
	mustRunHub(t, "1  manifestworks.work.open-cluster-management.io", "check-backup", file)
	refusesHub(t, "is in use by process", "restore", "--controlplane-config-dir", hub.Dir, file)
	awaitWorking(t, c, name, "after-the-backup")

	hub.Kill()
	refusesHub(t, "there is a hub already", "restore", "--controlplane-config-dir", hub.Dir, file)
	data := filepath.Join(hub.Dir, "data")
	if err := os.Rename(data, filepath.Join(hub.Dir, "lost")); err != nil {
		t.Fatal(err)
	}
	mustRunHub(t, "is in "+data, "restore", "--controlplane-config-dir", hub.Dir, "--hold-works", file)
	env.StartServer(t, hub)
	c = hub.Client(t)
	agents := env.ClientFor(t, agent.HubConfig(t))
	if err := agents.List(t.Context(), &workv1.ManifestWorkList{}, client.InNamespace(name)); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("an agent reads works that are held: %v", err)
	}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: fleet.ConfigMapWorksHeld}}
	if err := c.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	awaitWorking(t, c, name, "after-the-restore")
	if framework.Certificate(t, agent) != before {
		t.Error("the agent registered again")
	}
	works := &workv1.ManifestWorkList{}
	if err := c.List(t.Context(), works, client.InNamespace(name)); err != nil {
		t.Fatal(err)
	}
	if len(works.Items) != 2 || len(works.ResourceVersion) < len("1000000000") {
		t.Errorf("there are %d works of revision %s, want 2 of one that clients have not seen", len(works.Items), works.ResourceVersion)
	}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "after-the-backup"}, &workv1.ManifestWork{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a work that the backup does not have: %v", err)
	}
}

// Backups in a folder are named for their times; the last ones stay. They may be encrypted.
func TestBackupsInAFolder(t *testing.T) {
	t.Parallel()
	folder, secret := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(secret, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"hub-20200101T000000Z.backup", "hub-20210101T000000Z.backup", "another.backup"} {
		if err := os.WriteFile(filepath.Join(folder, old), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustRunHub(t, folder, "backup", "--kubeconfig", framework.Hub.Kubeconfig, "--directory", folder, "--keep", "2",
		"--passphrase-file", secret)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	names := fmt.Sprint(entries)
	if len(entries) != 3 || strings.Contains(names, "2020") || !strings.Contains(names, "2021") || !strings.Contains(names, "another") {
		t.Fatalf("the folder has %s", names)
	}
	written := filepath.Join(folder, entries[2].Name())
	refusesHub(t, "is encrypted; give its passphrase by --passphrase-file", "check-backup", written)
	mustRunHub(t, `"hub": "https://`, "check-backup", written, "--passphrase-file", secret, "-o", "json")
	if err := os.WriteFile(secret, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	refusesHub(t, "decrypt the backup with the passphrase", "check-backup", written, "--passphrase-file", secret)
}

// A backup that is cut off by the end of the hub leaves no file.
func TestBackupOfAHubThatEnds(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	address := env.FreeAddress(t)
	kubeconfig := filepath.Join(folder, "kubeconfig")
	content := "apiVersion: v1\nkind: Config\nclusters: [{name: hub, cluster: {server: 'http://" + address + "'}}]\n" +
		"contexts: [{name: hub, context: {cluster: hub}}]\ncurrent-context: hub\n"
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	refusesHub(t, "ask the hub for a backup", "backup", "--kubeconfig", kubeconfig, filepath.Join(folder, "hub.backup"))
	env.Eventually(t, func(context.Context) error {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
			return fmt.Errorf("left: %v, %w", entries, err)
		}
		return nil
	})
}
