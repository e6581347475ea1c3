// Package e2e uses the programs as a person does, through the command line.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// user is a person with a home of their own.
type user struct {
	home playground.Home
}

func newUser(t *testing.T) user {
	t.Helper()
	u := user{playground.Home{Dir: filepath.Join(t.TempDir(), "home")}}
	forget := env.OnDeadline(u.logs)
	t.Cleanup(func() {
		forget()
		if t.Failed() {
			t.Log(u.logs())
		}
		if out, err := u.try("down", "--purge"); err != nil {
			t.Errorf("clean up: %v: %s", err, out)
		}
	})
	return u
}

// logs are the ends of the logs of all processes.
func (u user) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(u.home.Dir, "logs", "*.log"))
	for _, file := range files {
		content, _ := os.ReadFile(file)
		fmt.Fprintf(&all, "%s ends with\n%s\n", file, content[max(0, len(content)-2000):])
	}
	return all.String()
}

// run runs capstan and returns what it wrote to standard output.
func (u user) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := u.try(args...)
	if err != nil {
		t.Fatalf("capstan %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// commandTimeout is for commands that start, or stop, all servers of a playground: it is longer than their own --timeout, after which they
// say what they wait for.
const commandTimeout = 6 * time.Minute

func (u user) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout) // that of the test has ended when it cleans up
	defer cancel()
	cmd, err := u.command(ctx, args...)
	if err != nil {
		return "", err
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errOut.String())
	}
	return out.String(), nil
}

func (u user) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	var path string
	for _, program := range []string{"capstan-agent", "capstan-hub", "capstan-sandbox", "capstan"} { // which starts the others
		var err error
		if path, err = env.Binary(program); err != nil {
			return nil, err
		}
	}
	cmd := env.Command(ctx, path, args...)
	cmd.Env = env.Environ(playground.EnvHome+"="+u.home.Dir, "KUBECONFIG=")
	return cmd, nil
}

// interruptDown runs "capstan down" and interrupts it as soon as one process is done with. The hub does not end until then.
func (u user) interruptDown(t *testing.T) {
	t.Helper()
	processes := u.status(t).Processes
	hub := slices.IndexFunc(processes, func(p playground.ProcessStatus) bool { return p.Name == "hub" && p.Running })
	if hub < 0 {
		t.Fatalf("no hub is running: %+v", processes)
	}
	signalHub := func(signal syscall.Signal) {
		if err := syscall.Kill(processes[hub].PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	signalHub(syscall.SIGSTOP)
	defer signalHub(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd, err := u.command(ctx, "down")
	if err != nil {
		t.Fatal(err)
	}
	progress, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(progress).ReadString('\n'); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("capstan down was interrupted and ended with %v", err)
	}
}

func (u user) status(t *testing.T) playground.Status {
	t.Helper()
	var status playground.Status
	if err := json.Unmarshal([]byte(u.run(t, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// identities are what must outlive any restart: the UIDs of the clusters, and how the hub is known.
func (u user) identities(t *testing.T) map[string]string {
	t.Helper()
	var list clusterv1.ManagedClusterList
	if err := json.Unmarshal([]byte(u.run(t, "get", "clusters", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, cluster := range list.Items {
		found[cluster.Name] = string(cluster.UID)
	}
	config, err := clientcmd.LoadFromFile(u.home.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.Contexts {
		found["server of "+name] = config.Clusters[name].Server
		found["CA of "+name] = string(config.Clusters[name].CertificateAuthorityData)
	}
	return found
}

// advises runs a command, which has to fail and to advise others.
func (u user) advises(t *testing.T, args string, commands ...string) {
	t.Helper()
	out, err := u.try(strings.Fields(args)...)
	if err == nil {
		t.Errorf("capstan %s is no failure: %s", args, out)
		return
	}
	for _, command := range commands {
		if !strings.Contains(err.Error(), `"`+command+`"`) {
			t.Errorf("capstan %s does not advise %s: %v", args, command, err)
		}
	}
}

// The whole path: up, up again, a crash, one more cluster, one that is denied, one that is deleted, another person's cluster, down. What is
// wrong in between is put right as the errors advise (CA-04).
func TestPlayground(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.advises(t, "status", "capstan up")
	out := u.run(t, "up")
	for _, row := range [][]string{
		{"cluster1", "True", "True", "True"}, {"cluster2", "True", "True", "True"},
		{"nginx", "cluster1", "2", "True", "True"}, {"nginx", "cluster2", "2", "True", "True"},
	} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool { return slices.Equal(strings.Fields(line), row) }) {
			t.Errorf("no row %v in\n%s", row, out)
		}
	}
	if !strings.Contains(out, u.home.Kubeconfig()) {
		t.Errorf("nothing says where the kubeconfig is:\n%s", out)
	}
	before := u.identities(t)

	t.Run("again", func(t *testing.T) {
		first := u.status(t)
		if again := u.run(t, "up"); again != out {
			t.Errorf("the second time it printed\n%s\ninstead of\n%s", again, out)
		}
		for i, process := range u.status(t).Processes {
			if process.PID != first.Processes[i].PID {
				t.Errorf("%s was started again", process.Name)
			}
		}
	})
	t.Run("with a kubeconfig that is out of date", func(t *testing.T) { bringKubeconfigUpToDate(t, u, before) })
	t.Run("after a crash of one process", func(t *testing.T) {
		processes := u.status(t).Processes
		agent := processes[len(processes)-1].PID
		if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitKilled(t, agent)
		u.advises(t, "status", "capstan up")
		u.run(t, "up")
		u.run(t, "status")
	})
	t.Run("after a crash", func(t *testing.T) {
		for _, process := range u.status(t).Processes {
			if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			awaitKilled(t, process.PID)
		}
		u.advises(t, "get clusters", "capstan status", "capstan up")
		u.advises(t, "status", "capstan up")
		if again := u.run(t, "up"); again != out {
			t.Errorf("it printed\n%s\ninstead of\n%s", again, out)
		}
		same(t, before, u.identities(t))
	})
	t.Run("after down", func(t *testing.T) {
		running := u.status(t)
		u.run(t, "down")
		for _, process := range running.Processes {
			if isRunning(process.PID) {
				t.Errorf("%s is left, as process %d", process.Name, process.PID)
			}
		}
		u.advises(t, "status", "capstan up")
		u.run(t, "up", "--clusters", "3")
		after := u.identities(t)
		same(t, before, after)
		if after["cluster3"] == "" {
			t.Errorf("no cluster3: %v", after)
		}
	})
	t.Run("after an interrupted down", func(t *testing.T) {
		u.interruptDown(t)
		u.run(t, "up")
		same(t, before, u.identities(t))
	})
	t.Run("a denied cluster", func(t *testing.T) { denyAndAccept(t, u) })
	t.Run("a deleted cluster", func(t *testing.T) { deleteAndBringBack(t, u) })
	t.Run("another's cluster", func(t *testing.T) { joinAnother(t, u) })
}

// bringKubeconfigUpToDate has "up" write the kubeconfig anew, as commands advise that fail with it.
func bringKubeconfigUpToDate(t *testing.T, u user, before map[string]string) {
	t.Helper()
	for what, spoil := range map[string]func(config *clientcmdapi.Config){
		"credentials that are worthless": func(config *clientcmdapi.Config) {
			for name := range config.AuthInfos {
				config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "worthless"}
			}
		},
		"the authority of another server": func(config *clientcmdapi.Config) {
			config.Clusters["hub"].CertificateAuthorityData = config.Clusters["cluster1"].CertificateAuthorityData
		},
	} {
		config, err := clientcmd.LoadFromFile(u.home.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		spoil(config)
		if err := clientcmd.WriteToFile(*config, u.home.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
		u.advises(t, "get clusters", "capstan up")
		u.run(t, "up")
		same(t, before, u.identities(t))
		if t.Failed() {
			t.Fatalf("with %s", what)
		}
	}
}

// denyAndAccept has "up" leave a cluster that was denied as it is, until it is accepted.
func denyAndAccept(t *testing.T, u user) {
	u.run(t, "deny", "--clusters", "cluster1")
	if out, err := u.try("up"); err == nil || !strings.Contains(err.Error(), "capstan accept --clusters cluster1") {
		t.Errorf("with a denied cluster: %v: %s", err, out)
	}
	if u.cluster(t, "cluster1").Spec.HubAcceptsClient {
		t.Error("the denied cluster is accepted")
	}
	u.run(t, "accept", "--clusters", "cluster1")
	u.run(t, "up")
	awaitAvailable(t, u, "cluster1")
}

// deleteAndBringBack has "up" join a cluster anew that was deleted, after the token that its agent was started with has lost its worth.
func deleteAndBringBack(t *testing.T, u user) {
	bootstrap := filepath.Join(u.home.ClusterDir("cluster1"), "bootstrap-kubeconfig")
	kubeconfig, err := clientcmd.LoadFromFile(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range kubeconfig.AuthInfos {
		info.Token = "worthless"
	}
	if err := clientcmd.WriteToFile(*kubeconfig, bootstrap); err != nil {
		t.Fatal(err)
	}
	before := u.cluster(t, "cluster1")
	if err := u.hub(t).Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	u.run(t, "up")
	if after := u.cluster(t, "cluster1"); after.UID == before.UID {
		t.Error("it is the cluster that was deleted")
	}
	awaitAvailable(t, u, "cluster1")
}

// hub is a client of the administrator.
func (u user) hub(t *testing.T) client.Client {
	t.Helper()
	from := &clientcmd.ClientConfigLoadingRules{ExplicitPath: u.home.Kubeconfig()}
	hub := &clientcmd.ConfigOverrides{CurrentContext: "hub"}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(from, hub).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (u user) cluster(t *testing.T, name string) *clusterv1.ManagedCluster {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{}
	if err := u.hub(t).Get(t.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// same fails the test unless everything in want is in got.
func same(t *testing.T, want, got map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s was %s and is %s", name, value, got[name])
		}
	}
}

// awaitKilled waits until a process that was killed has ended: how long the system takes to clear up after one depends on the machine.
func awaitKilled(t *testing.T, pid int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if isRunning(pid) {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

func isRunning(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !zombie(pid) }

// zombie tells whether a process has ended and nobody has asked how: where PID 1 does not, it stays in the table.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// joinAnother joins a cluster from a home of its own, with the command that "get token" prints (CA-17, CA-18, CA-21).
func joinAnother(t *testing.T, admin user) {
	other := newUser(t)
	clusterKubeconfig := filepath.Join(admin.home.Dir, "clusters", "cluster1", "sandbox", "kubeconfig")
	for _, line := range strings.Split(admin.run(t, "get", "token", "--use-bootstrap-token"), "\n") {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "capstan ")
		if !ok {
			continue
		}
		command = strings.ReplaceAll(command, "<cluster_name>", "another")
		local := []string{"--local", "--managed-cluster-kubeconfig", clusterKubeconfig, "--detach", "--wait"}
		out := other.run(t, append(strings.Fields(command), local...)...)
		if !strings.Contains(out, "capstan accept --clusters another") {
			t.Errorf("join does not say how to accept the cluster:\n%s", out)
		}
	}
	if _, err := other.try(strings.Fields("join --local --hub-token abcdef.0123456789abcdef --cluster-name impostor --hub-apiserver " +
		admin.status(t).Processes[0].Endpoint + " --managed-cluster-kubeconfig " + clusterKubeconfig)...); err == nil ||
		!strings.Contains(err.Error(), "cannot be verified") {
		t.Errorf("joined with a token that the hub does not know: %v", err)
	}
	admin.run(t, "accept", "--clusters", "another", "--wait")
	awaitAvailable(t, admin, "another")
	refuseImpostor(t, admin, clusterKubeconfig)
	revokeTokens(t, admin, clusterKubeconfig)
	leave(t, admin, other)
}

// revokeTokens ends the tokens that were given out, which does not keep any user from asking for new ones (CA-22).
func revokeTokens(t *testing.T, admin user, clusterKubeconfig string) {
	late := newUser(t)
	server := admin.status(t).Processes[0].Endpoint
	for _, kind := range []string{"--use-bootstrap-token=false", "--use-bootstrap-token"} {
		join := func() []string {
			var info struct {
				Token string   `json:"hub-token"`
				Pins  []string `json:"ca-cert-hash"`
			}
			if err := json.Unmarshal([]byte(admin.run(t, "get", "token", kind, "-o", "json")), &info); err != nil {
				t.Fatal(err)
			}
			return []string{"join", "--local", "--hub-token", info.Token, "--hub-apiserver", server, "--ca-cert-hash", info.Pins[0],
				"--managed-cluster-kubeconfig", clusterKubeconfig, "--cluster-name", "late", "--detach", "--wait"}
		}
		before := join()
		admin.run(t, "delete", "token")
		if _, err := late.try(before...); err == nil || !strings.Contains(err.Error(), "does not accept the credentials") {
			t.Errorf("%s: joined with a token that was revoked: %v", kind, err)
		}
		// The hub makes its next bootstrap token a moment later.
		env.Eventually(t, func(context.Context) error {
			_, err := admin.try("get", "token", kind)
			return err
		})
		late.run(t, join()...)
		late.run(t, "unjoin", "--local", "--cluster-name", "late")
	}
}

// leave takes a cluster from the hub, first its works and then its agent (CA-19).
func leave(t *testing.T, admin, other user) {
	file := filepath.Join(t.TempDir(), "demo.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: demo, namespace: default}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin.run(t, "create", "work", "demo", "-f", file, "--cluster", "another")
	env.Eventually(t, func(context.Context) error {
		if out := admin.run(t, "get", "works", "demo", "--cluster", "another"); !strings.Contains(out, "Applied: True") {
			return fmt.Errorf("the work is not applied: %s", out)
		}
		return nil
	})
	if _, err := other.try("unjoin", "--local", "--cluster-name", "another"); err == nil || !strings.Contains(err.Error(), "work demo") {
		t.Errorf("left with a work on the cluster: %v", err)
	}
	other.run(t, "unjoin", "--local", "--cluster-name", "another", "--force")
	if _, err := other.try("status"); err == nil || !strings.Contains(err.Error(), "there is no playground") {
		t.Errorf("the agent is still there: %v", err)
	}
}

// refuseImpostor has a stranger ask to be a cluster that is there: accept says who, and lets only those in who are named.
func refuseImpostor(t *testing.T, admin user, clusterKubeconfig string) {
	stranger := newUser(t)
	var info struct {
		Token  string   `json:"hub-token"`
		Server string   `json:"hub-apiserver"`
		Pins   []string `json:"ca-cert-hash"`
	}
	if err := json.Unmarshal([]byte(admin.run(t, "get", "token", "-o", "json")), &info); err != nil {
		t.Fatal(err)
	}
	join := []string{"join", "--local", "--hub-apiserver", info.Server, "--cluster-name", "another",
		"--managed-cluster-kubeconfig", clusterKubeconfig,
		"--detach", "--wait"}
	wrong := "sha256:" + strings.Repeat("0", 64)
	if _, err := stranger.try(append(join, "--hub-token", info.Token, "--ca-cert-hash", wrong)...); err == nil ||
		!strings.Contains(err.Error(), "impostor") {
		t.Errorf("joined a hub of another certificate authority: %v", err)
	}
	if _, err := stranger.try(append(join, "--hub-token", info.Token+"x", "--ca-cert-hash", info.Pins[0])...); err == nil ||
		!strings.Contains(err.Error(), "does not accept the credentials") {
		t.Errorf("joined with a token that is not signed by the hub: %v", err)
	}
	stranger.run(t, append(join, "--hub-token", info.Token, "--ca-cert-hash", info.Pins[0])...)
	const nobody = "system:open-cluster-management:another:nobody"
	if _, err := admin.try("accept", "--clusters", "another", "--requesters", nobody); err == nil ||
		!strings.Contains(err.Error(), "--requesters names none of those who asked") {
		t.Errorf("accepted for an agent that is not there: %v", err)
	}
}

func awaitAvailable(t *testing.T, admin user, name string) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		var cluster clusterv1.ManagedCluster
		if err := json.Unmarshal([]byte(admin.run(t, "get", "clusters", name, "-o", "json")), &cluster); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable) {
			return fmt.Errorf("cluster %s is not available: %+v", name, cluster.Status.Conditions)
		}
		return nil
	})
}
