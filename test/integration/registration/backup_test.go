package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
	ctx, cancel := context.WithTimeout(t.Context(), env.WaitTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = env.Environ()
	output, err := command.CombinedOutput()
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
// and the hub has what it had then. While the hub is held, an agent that starts has heartbeats, and keeps what the hub does not know: works
// that are created again meanwhile take over what they had applied, and that of the others is removed when an administrator lets the
// agents go.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	const name = "restored"
	hub := env.StartHub(t, "")
	agent := env.Join(t, hub, framework.Managed, name, "--appliedmanifestwork-eviction-grace-period", "1s")
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
	awaitWorking(t, c, name, "created-again")
	managed := framework.Managed.Client(t)
	kept := framework.AwaitConfigMap(t, managed, "default", "created-again", "applied")
	const lost = "joined-after-the-backup"
	lostAgent := env.Join(t, hub, framework.Managed, lost)

	hub.Kill()
	refusesHub(t, "there is a hub already", "restore", "--controlplane-config-dir", hub.Dir, file)
	data := filepath.Join(hub.Dir, "data")
	if err := os.Rename(data, filepath.Join(hub.Dir, "lost")); err != nil {
		t.Fatal(err)
	}
	created := createdAt(t, file)
	output, err := runHub(t, "restore", "--controlplane-config-dir", hub.Dir, "--hold-works", file)
	if err != nil {
		t.Fatalf("restore: %v\n%s", err, output)
	}
	for _, want := range []string{
		"is in " + data, `capstan.io/credentials-not-before: "` + created + `"`,
		"capstan deny", "capstan delete token",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("restore wrote %q, want %q", output, want)
		}
	}
	env.StartServer(t, hub)
	c = hub.Client(t)
	for path, want := range map[string]int{
		"/apis/work.open-cluster-management.io/v1/namespaces/" + name + "/manifestworks":                      http.StatusServiceUnavailable,
		"/apis/addon.open-cluster-management.io/v1beta1/namespaces/" + name + "/managedclusteraddons":         http.StatusServiceUnavailable,
		"/apis/addon.open-cluster-management.io/v1beta1/namespaces/" + name + "/managedclusteraddons?limit=1": http.StatusOK,
	} {
		if code := answerOnce(t, agent.HubConfig(t), path); code != want {
			t.Errorf("%s answers an agent of a hub that is held with %d, want %d", path, code, want)
		}
	}
	agent.Kill()
	restarted := time.Now()
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitHeartbeat(t, c, name, restarted)
	expectKept(t, managed, "after-the-backup", "created-again")
	framework.Create(t, c, framework.Work(name, "created-again", framework.ConfigMap("default", "created-again", "applied")))
	framework.FollowAdvice(t, c, output, "delete configmap")
	awaitWorking(t, c, name, "after-the-restore")
	framework.AwaitGone(t, managed, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "after-the-backup"}})
	framework.AwaitCondition(t, c, framework.Work(name, "created-again"), fleet.ConditionApplied, metav1.ConditionTrue)
	if now := framework.AwaitConfigMap(t, managed, "default", "created-again", "applied"); now.UID != kept.UID {
		t.Error("what a work had applied that was created again was removed, and is applied anew")
	}
	if framework.Certificate(t, agent) != before {
		t.Error("the agent registered again")
	}
	works := &workv1.ManifestWorkList{}
	if err := c.List(t.Context(), works, client.InNamespace(name)); err != nil {
		t.Fatal(err)
	}
	if len(works.Items) != 3 || len(works.ResourceVersion) < len("1000000000") {
		t.Errorf("there are %d works of revision %s, want 3 of one that clients have not seen", len(works.Items), works.ResourceVersion)
	}
	err = c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "after-the-backup"}, &workv1.ManifestWork{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a work that the backup does not have: %v", err)
	}
	createAgain(t, c, lostAgent, created)
}

// WK-03: a hub that is restored at another address is the same hub to an agent that joins it again: the agent keeps its certificate and
// what it has applied, while that of works which the backup does not have is removed after the grace period.
func TestRestoreAtAnotherAddress(t *testing.T) {
	t.Parallel()
	const name, kept, lost = "restored-elsewhere", "kept-elsewhere", "lost-elsewhere"
	hub, site := env.StartHub(t, ""), env.StartSandbox(t)
	agent := env.Join(t, hub, site, name, "--appliedmanifestwork-eviction-grace-period", "1s")
	certificate := framework.Certificate(t, agent)
	managed := site.Client(t)
	awaitWorking(t, hub.Client(t), name, kept)
	applied, object := theApplied(t, managed, kept), framework.AwaitConfigMap(t, managed, "default", kept, "applied")
	file := filepath.Join(t.TempDir(), "hub.backup")
	mustRunHub(t, "checked", "backup", "--kubeconfig", hub.Kubeconfig, file)
	awaitWorking(t, hub.Client(t), name, lost)
	hub.Kill()

	next, err := env.NewHub(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	mustRunHub(t, "is in "+filepath.Join(next.Dir, "data"), "restore", "--controlplane-config-dir", next.Dir, file)
	env.StartServer(t, next)
	agent.WriteBootstrap(t, next, next.BootstrapToken(t))
	awaitWorking(t, next.Client(t), name, "new-elsewhere")
	framework.AwaitGone(t, managed, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: lost}})
	if now := theApplied(t, managed, kept); now.UID != applied.UID || now.Status.EvictionStartTime != nil {
		t.Errorf("the AppliedManifestWork is another, or waits for its eviction: %s, %+v", now.Name, now.Status)
	}
	if now := framework.AwaitConfigMap(t, managed, "default", kept, "applied"); now.UID != object.UID {
		t.Error("what the agent had applied is another object now")
	}
	if framework.Certificate(t, agent) != certificate {
		t.Error("the agent registered again")
	}
}

// theApplied is the one AppliedManifestWork of works of a name.
func theApplied(t *testing.T, managed client.Client, work string) workv1.AppliedManifestWork {
	t.Helper()
	applied := &workv1.AppliedManifestWorkList{}
	if err := managed.List(t.Context(), applied); err != nil {
		t.Fatal(err)
	}
	of := slices.DeleteFunc(applied.Items, func(a workv1.AppliedManifestWork) bool { return a.Spec.ManifestWorkName != work })
	if len(of) != 1 {
		t.Fatalf("%d AppliedManifestWorks of %s, want 1", len(of), work)
	}
	return of[0]
}

// expectKept fails unless the managed cluster has what each of these works has applied, and is not going to remove it.
func expectKept(t *testing.T, managed client.Client, works ...string) {
	t.Helper()
	applied := &workv1.AppliedManifestWorkList{}
	if err := managed.List(t.Context(), applied); err != nil {
		t.Fatal(err)
	}
	for _, work := range works {
		i := slices.IndexFunc(applied.Items, func(a workv1.AppliedManifestWork) bool { return a.Spec.ManifestWorkName == work })
		if i < 0 || applied.Items[i].Status.EvictionStartTime != nil || !applied.Items[i].DeletionTimestamp.IsZero() {
			t.Errorf("what %s has applied is not kept", work)
		}
		framework.Get(t, managed, client.ObjectKey{Namespace: "default", Name: work}, &corev1.ConfigMap{})
	}
}

// createAgain brings back a cluster that joined after the time of the backup: its agent is let in with the certificate that it has.
func createAgain(t *testing.T, c client.Client, agent *env.Agent, created string) {
	t.Helper()
	before := framework.Certificate(t, agent)
	agent.Kill()
	cluster := framework.AcceptedCluster(agent.Cluster)
	cluster.Annotations = map[string]string{fleet.AnnotationCredentialsNotBefore: created}
	framework.Create(t, c, cluster)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.AwaitAvailable(t, c, agent.Cluster)
	if framework.Certificate(t, agent) != before {
		t.Error("the agent of the cluster that was created again has registered again")
	}
}

// createdAt is when a backup was created, as the commands write it.
func createdAt(t *testing.T, file string) string {
	t.Helper()
	output, err := runHub(t, "check-backup", file, "-o", "json")
	description := struct{ Created time.Time }{}
	if err == nil {
		err = json.Unmarshal([]byte(output), &description)
	}
	if err != nil {
		t.Fatalf("check-backup: %v\n%s", err, output)
	}
	return description.Created.Format(time.RFC3339)
}

// answerOnce returns the code that a hub answers with, which clients of Kubernetes ask again and again for if it is one of an absent hub.
func answerOnce(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	hub, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := hub.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func awaitHeartbeat(t *testing.T, c client.Client, cluster string, after time.Time) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}, lease); err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(after) {
			return fmt.Errorf("the last heartbeat was at %s", lease.Spec.RenewTime)
		}
		return nil
	})
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
