package reach_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CA-42
func TestProxyHealth(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	available := metav1.Condition{Type: "Available", Status: metav1.ConditionTrue}
	for _, cluster := range []string{"cluster1", "cluster2", "slow"} {
		h.Put(t, clitest.ClustersPath+"/"+cluster, clitest.AcceptedCluster(cluster))
		h.PutAddOn(t, cluster, "cluster-proxy", available)
	}
	h.PutAddOn(t, "idle", "hello", available)
	h.Connect("cluster1", podsOf())
	requested := make(chan struct{})
	h.Connect("slow", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(requested)
		<-r.Context().Done()
	}))
	got := h.Run(t, "", "proxy", "health", "--clusters", "cluster1,cluster2,idle")
	got.Succeeds(t)
	var rows [][]string
	for line := range strings.Lines(got.Out) {
		rows = append(rows, strings.Fields(line))
	}
	if len(rows) != 4 || strings.Join(rows[0], " ") != "CLUSTER NAME INSTALLED AVAILABLE PROBED HEALTH LATENCY" {
		t.Fatalf("%s", got.Out)
	}
	if rows[1][4] == "-" {
		t.Errorf("no latency: %v", rows[1])
	}
	for i, want := range []string{"cluster1 True True True", "cluster2 True True False", "idle False - -"} {
		if row := strings.Join(rows[i+1][:4], " "); row != want {
			t.Errorf("%s, want %s", row, want)
		}
	}
	for _, words := range []string{"cluster2: not connected: cluster cluster2 has no tunnel",
		"capstan addon enable --names cluster-proxy --clusters idle"} {
		if !strings.Contains(got.ErrOut, words) {
			t.Errorf("%q is missing in %s", words, got.ErrOut)
		}
	}
	slow := clitest.TimesOutAfter(t, clitest.Closed(requested), "", "--kubeconfig", h.File, "proxy", "health", "--clusters", "slow", "--timeout", "1")
	if !strings.Contains(slow.ErrOut, "slow: time-out: no answer in 1s") {
		t.Errorf("a slow cluster: %+v", slow)
	}
	one := h.Run(t, "", "proxy", "health", "--clusters", "cluster2", "-o", "json", "--proxy-server-port", "8090", "--proxy-ca-cert", "ca.crt",
		"--in-cluster-proxy-cert-lookup=false", "--proxy-cert", "c", "--proxy-key", "k", "--proxy-server-host", "127.0.0.1")
	var health []map[string]any
	if err := json.Unmarshal([]byte(one.Out), &health); err != nil || len(health) != 1 || health[0]["probedHealth"] != "False" ||
		health[0]["reason"] == nil {
		t.Errorf("%v of %s", err, one.Out)
	}
	if !strings.Contains(one.ErrOut, "--proxy-server-port changes nothing") {
		t.Errorf("nothing says that a flag does nothing: %s", one.ErrOut)
	}
	h.Run(t, "", "proxy", "health", "--clusters", "cluster1", "-o", "yaml").Succeeds(t, "clusterName: cluster1")
	h.Run(t, "", "proxy", "health", "--clusters", "gone").Fails(t, `"gone"`, "capstan get clusters")
}

// CA-02: a kubeconfig leads to a cluster through the hub, with the credentials for the hub.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	h.PutAddOn(t, "cluster1", "cluster-proxy")
	server := h.URL + clitest.ClustersPath + "/cluster1/proxy"
	got := h.Run(t, "", "kubeconfig", "cluster1")
	got.Succeeds(t, "server: "+server+"\n", "token: admin")
	if got.ErrOut != "" {
		t.Errorf("it has something to say: %s", got.ErrOut)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if got := h.Run(t, "", "kubeconfig", "cluster1", "-o", file, "--dry-run"); got.Code != 0 || exists(file) {
		t.Errorf("dry run: %+v", got)
	}
	h.Run(t, "", "kubeconfig", "cluster1", "-o", file).Succeeds(t)
	config, err := clientcmd.LoadFromFile(file)
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || info.Mode().Perm() != 0o600 || config.CurrentContext != "cluster1" ||
		config.Clusters["cluster1"].Server != server || !bytes.Equal(config.Clusters["cluster1"].CertificateAuthorityData, h.CA()) {
		t.Errorf("%v, %v, %v: %+v", err, statErr, info, config)
	}
	h.Run(t, "", "kubeconfig", "cluster1", "-o", file).Succeeds(t)
	if got := h.Run(t, "", "kubeconfig", "idle"); got.Code != 0 || !strings.Contains(got.ErrOut, "capstan addon enable --names cluster-proxy --clusters idle") {
		t.Errorf("of a cluster without the add-on: %+v", got)
	}
	h.Run(t, "", "kubeconfig", "gone").Fails(t, `"gone" not found`, "capstan get clusters")
	h.Run(t, "", "kubeconfig", "Gone").Fails(t, `"Gone" is no name of a cluster`)
	h.Run(t, "", "kubeconfig").Fails(t, "0 clusters given", "capstan get clusters")
	h.Run(t, "", "kubeconfig", "cluster2", "-o", filepath.Join(file, "x", "y")).Fails(t, "--output")
}

// CA-02: a link and a pipe stay what they are, and the kubeconfig arrives where they lead.
func TestKubeconfigByLinkAndPipe(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	dir := t.TempDir()
	target, link, pipe := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink("target", link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	h.Run(t, "", "kubeconfig", "cluster1", "-o", link).Succeeds(t)
	h.Run(t, "", "kubeconfig", "cluster2", "--merge", "-o", link).Succeeds(t)
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is %v, error %v", info, err)
	}
	if config, err := clientcmd.LoadFromFile(target); err != nil || len(config.Contexts) != 2 {
		t.Errorf("%v: %+v", err, config)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // which waits for no writer
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	h.Run(t, "", "kubeconfig", "cluster1", "--merge", "-o", pipe).Fails(t, "--merge: needs a regular file", pipe)
	h.Run(t, "", "kubeconfig", "cluster1", "-o", pipe).Succeeds(t)
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Fatalf("the pipe is %v, error %v", info, err)
	}
	content := make([]byte, 1<<16) // what a pipe holds
	n, err := reader.Read(content)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := clientcmd.Load(content[:n]); err != nil || config.Contexts["cluster1"] == nil {
		t.Errorf("%v: %s", err, content[:n])
	}
}

// CA-02: what another command, which has locked the kubeconfig, adds to it meanwhile stays there.
func TestKubeconfigWaitsForOthers(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	lock := h.File + ".lock"
	if err := os.WriteFile(lock, nil, 0); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(h.File)
	if err != nil {
		t.Fatal(err)
	}
	merge, use := []string{"kubeconfig", "cluster1", "--merge"}, []string{"config", "use-context", "hub"}
	for _, args := range [][]string{merge, use} {
		h.Run(t, "", args...).Fails(t, lock+" says that another command is changing the kubeconfig", "delete this file")
	}
	h.Run(t, "", append(merge, "--dry-run")...).Succeeds(t)
	if after, err := os.ReadFile(h.File); err != nil || !bytes.Equal(before, after) || !exists(lock) {
		t.Errorf("%v: %s, locked: %t", err, after, exists(lock))
	}

	global := options.New(strings.NewReader(""), io.Discard, io.Discard)
	global.Clock = unlocking{clocktesting.NewFakeClock(time.Now()), func() {
		config, err := clientcmd.LoadFromFile(h.File)
		if err != nil {
			t.Error(err)
			return
		}
		config.Contexts["others"] = clientcmdapi.NewContext()
		if err := errors.Join(clientcmd.WriteToFile(*config, h.File), os.Remove(lock)); err != nil {
			t.Error(err)
		}
	}}
	if code := cli.Run(t.Context(), global, append([]string{"--kubeconfig", h.File}, merge...)); code != 0 {
		t.Errorf("exit code %d", code)
	}
	config, err := clientcmd.LoadFromFile(h.File)
	if err != nil || config.Contexts["others"] == nil || config.Contexts["cluster1"] == nil || exists(lock) {
		t.Errorf("%v: %+v, locked: %t", err, config, exists(lock))
	}
}

// CA-02: of a link, the lock is beside the file that it leads to, and beside the link where that can be.
func TestKubeconfigIsLockedWhereALinkLeads(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	target, folder := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "links")
	link := filepath.Join(folder, "link")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(target, nil, 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	for _, lock := range []string{target + ".lock", link + ".lock"} {
		if err := os.WriteFile(lock, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.Run(t, "", "kubeconfig", "cluster1", "--output", link).Fails(t, "--output: "+lock+" says that another command is changing")
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		if exists(target+".lock") || exists(link+".lock") {
			t.Error("a lock is left")
		}
	}
	opened, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	link = fmt.Sprintf("/proc/self/fd/%d", opened.Fd())
	if !exists(link) {
		t.Skip("this system has no /proc/self/fd: no folder is known here in which nobody, not even root, can make a file")
	}
	h.Run(t, "", "kubeconfig", "cluster1", "--output", link).Succeeds(t)
	if config, err := clientcmd.LoadFromFile(target); err != nil || config.Contexts["cluster1"] == nil {
		t.Errorf("%v: %+v", err, config)
	}
}

// unlocking is a clock by which something happens while a command waits.
type unlocking struct {
	*clocktesting.FakeClock
	meanwhile func()
}

// Sleep implements clock.Clock.
func (u unlocking) Sleep(time.Duration) { u.meanwhile() }

// CA-02: one kubeconfig has a context for each of several clusters.
func TestKubeconfigOfSeveral(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	for range 2 {
		got := h.Run(t, "", "kubeconfig", "cluster2", "cluster1", "-o", file)
		for _, name := range []string{"cluster1", "cluster2"} {
			if got.Code != 0 || !strings.Contains(got.ErrOut, "Context "+name+" of "+file+" leads to cluster "+name) {
				t.Errorf("%+v", got)
			}
		}
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil || len(config.Contexts) != 2 || config.CurrentContext != "cluster2" || config.AuthInfos["cluster1"].Token != "admin" ||
		config.Clusters["cluster1"].Server != h.URL+clitest.ClustersPath+"/cluster1/proxy" ||
		config.Clusters["cluster2"].Server != h.URL+clitest.ClustersPath+"/cluster2/proxy" {
		t.Errorf("%v: %+v", err, config)
	}
	h.Run(t, "", "kubeconfig", "cluster1", "-o", file).Fails(t, "has the context \"", "--merge")
	h.Run(t, "", "kubeconfig", "cluster1", "cluster2", "--merge").Succeeds(t)
	if config, err = clientcmd.LoadFromFile(h.File); err != nil || len(config.Contexts) != 3 || config.CurrentContext != "hub" {
		t.Errorf("%v: %+v", err, config)
	}
	h.Run(t, "", "kubeconfig", "cluster1", "gone", "-o", file).Fails(t, `"gone" not found`)
	h.Run(t, "", "kubeconfig", "cluster1", "cluster1").Fails(t, `"cluster1": given twice`)
	h.Run(t, "", "kubeconfig", "cluster1", "cluster2", "--context-name", "x").Fails(t, "--context-name: names the context of one cluster")
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// CA-02: --merge adds to the first file of KUBECONFIG, whose empty entries are no files, and prints no credentials.
func TestKubeconfigMergeByVariable(t *testing.T) {
	h := clitest.NewHubWithClusters(t)
	for i, format := range []string{"%s", ":%s", "::%s:"} {
		t.Setenv("KUBECONFIG", fmt.Sprintf(format, h.File))
		name := fmt.Sprintf("prod%d", i)
		got := clitest.Run(t.Context(), "", "kubeconfig", "cluster1", "--merge", "--context-name", name)
		got.Succeeds(t)
		config, err := clientcmd.LoadFromFile(h.File)
		if err != nil {
			t.Fatal(err)
		}
		if got.Out != "" || config.Contexts[name] == nil || config.Contexts[name].AuthInfo != "hub" {
			t.Errorf("KUBECONFIG=%s: printed %q; the contexts are %v", os.Getenv("KUBECONFIG"), got.Out, config.Contexts)
		}
	}
}

// CA-02: with --merge, what is in a kubeconfig stays, and nothing of it is replaced.
func TestKubeconfigMerge(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	for range 2 {
		h.Run(t, "", "kubeconfig", "cluster1", "--merge", "--context-name", "prod").Succeeds(t)
	}
	config, err := clientcmd.LoadFromFile(h.File)
	if err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "hub" || len(config.Contexts) != 2 || len(config.AuthInfos) != 1 || config.Contexts["prod"].AuthInfo != "hub" ||
		config.Clusters["prod"].Server != h.URL+clitest.ClustersPath+"/cluster1/proxy" {
		t.Errorf("%+v", config)
	}
	h.Run(t, "", "kubeconfig", "cluster2", "--merge", "--context-name", "prod").Fails(t, `"prod" already`, "--context-name")
	h.Run(t, "", "kubeconfig", "cluster2", "--merge", "--context-name", "hub").Fails(t, `"hub" already`)
	h.Run(t, "", "kubeconfig", "cluster2", "-o", h.File).Fails(t, "has the context \"", "--merge")
	h.Run(t, "", "kubeconfig", "cluster2", "--merge", "-o", "-").Fails(t, "--merge: needs a file")

	other := filepath.Join(t.TempDir(), "config")
	h.Run(t, "", "kubeconfig", "cluster1", "--merge", "-o", other).Succeeds(t)
	h.Run(t, "", "kubeconfig", "cluster2", "--merge", "-o", other).Succeeds(t)
	config, err = clientcmd.LoadFromFile(other)
	if err != nil || len(config.Contexts) != 2 || config.CurrentContext != "cluster1" || config.AuthInfos["cluster2"].Token != "admin" {
		t.Errorf("%v: %+v", err, config)
	}
}

// CA-02: --merge renews the context that it has written for another user of the hub in the same file.
func TestKubeconfigMergeForTwoUsers(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	config, err := clientcmd.LoadFromFile(h.File)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos["second"] = config.AuthInfos["hub"].DeepCopy()
	config.Contexts["second"] = &clientcmdapi.Context{Cluster: config.Contexts["hub"].Cluster, AuthInfo: "second"}
	if err := clientcmd.WriteToFile(*config, h.File); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"hub", "second", "hub"} {
		h.Run(t, "", "kubeconfig", "cluster1", "--merge", "--context", user).Succeeds(t)
		config, err := clientcmd.LoadFromFile(h.File)
		if err != nil || config.Contexts["cluster1"].AuthInfo != user || len(config.AuthInfos) != 2 {
			t.Errorf("for %s, %v: %+v", user, err, config)
		}
	}
}

// CA-02: what has been changed in a kubeconfig since it was written stays, or is not written over.
func TestKubeconfigOfOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*clientcmdapi.Config)
		command []string
		refusal string
	}{
		"a namespace, merged": {func(c *clientcmdapi.Config) { c.Contexts["cluster1"].Namespace = "web" }, []string{"--merge"}, ""},
		"a namespace":         {func(c *clientcmdapi.Config) { c.Contexts["cluster1"].Namespace = "web" }, nil, ""},
		"another cluster": {func(c *clientcmdapi.Config) {
			c.Clusters["dev"] = &clientcmdapi.Cluster{Server: "https://dev.example.com"}
			c.Contexts["cluster1"].Cluster = "dev"
		}, []string{"--merge"}, `with the cluster "dev" and the user "cluster1"`},
		"another user": {func(c *clientcmdapi.Config) {
			c.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "mine"}
			c.Contexts["cluster1"].AuthInfo = "me"
		}, []string{"--merge"}, `with the cluster "cluster1" and the user "me"`},
		"no user": {func(c *clientcmdapi.Config) { c.Contexts["cluster1"].AuthInfo = "" }, nil, `and the user ""`},
		"another server": {func(c *clientcmdapi.Config) { c.Clusters["cluster1"].Server = "https://dev.example.com" }, []string{"--merge"},
			"leads elsewhere"},
		"a cluster that has gone": {func(c *clientcmdapi.Config) { delete(c.Clusters, "cluster1") }, []string{"--merge"}, "leads elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHubWithClusters(t)
			file := filepath.Join(t.TempDir(), "config")
			command := append([]string{"kubeconfig", "cluster1", "-o", file}, test.command...)
			h.Run(t, "", command...).Succeeds(t)
			config, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config.AuthInfos["cluster1"].Token = "old"
			test.change(config)
			if err := clientcmd.WriteToFile(*config, file); err != nil {
				t.Fatal(err)
			}
			got := h.Run(t, "", command...)
			token, namespace := "admin", config.Contexts["cluster1"].Namespace
			if test.refusal == "" {
				got.Succeeds(t)
			} else {
				got.Fails(t, test.refusal, "--context-name")
				token = "old"
			}
			now, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if is := now.Contexts["cluster1"]; is.Namespace != namespace || is.Cluster != config.Contexts["cluster1"].Cluster ||
				is.AuthInfo != config.Contexts["cluster1"].AuthInfo || now.AuthInfos["cluster1"].Token != token {
				t.Errorf("%+v, with %+v", is, now.AuthInfos["cluster1"])
			}
		})
	}
}

// CA-02: without --merge, a file is not replaced that has anything which this does not write, such as a token that no context uses yet.
func TestKubeconfigReplacesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	for other, add := range map[string]func(*clientcmdapi.Config){
		`the context "dev"`: func(c *clientcmdapi.Config) { c.Contexts["dev"] = c.Contexts["cluster1"] },
		`the user "dev"`:    func(c *clientcmdapi.Config) { c.AuthInfos["dev"] = &clientcmdapi.AuthInfo{Token: "mine"} },
		`the cluster "dev"`: func(c *clientcmdapi.Config) {
			c.Clusters["dev"] = &clientcmdapi.Cluster{Server: "https://dev.example.com"}
		},
	} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHubWithClusters(t)
			file := filepath.Join(t.TempDir(), "config")
			command := []string{"kubeconfig", "cluster1", "-o", file}
			h.Run(t, "", command...).Succeeds(t)
			h.Run(t, "", command...).Succeeds(t)
			config, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			add(config)
			if err := clientcmd.WriteToFile(*config, file); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h.Run(t, "", command...).Fails(t, other, "--merge")
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
				t.Errorf("%v: the file has changed to\n%s", err, after)
			}
			h.Run(t, "", append(command, "--merge")...).Succeeds(t)
		})
	}
}

// fakeKubectl puts a program of that name first in PATH.
func fakeKubectl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
}

// leftovers are what is left of the temporary files.
func leftovers(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// CA-43: kubectl runs with a kubeconfig of its own, and its arguments, input, output and exit code are passed on.
func TestKubectl(t *testing.T) {
	fakeKubectl(t, `printf '<%s>' "$@"; echo; stat -c %a "$KUBECONFIG"; grep server: "$KUBECONFIG"; cat; exit 3`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	for command, args := range map[string]string{
		"--cluster cluster1 kubectl get pods -n web":                             "<get><pods><-n><web>",
		"--cluster=cluster1 kubectl -n web -v 6 get pods":                        "<-n><web><-v><6><get><pods>",
		"-c cluster1 -v 0 kubectl --context x get pods --timeout 3":              "<--context><x><get><pods><--timeout><3>",
		"kubectl --cluster cluster1 --sa= -n kubectl exec -it x -- sh":           "<-n><kubectl><exec><-it><x><--><sh>",
		"kubectl -ccluster1 -- --cluster other version":                          "<--cluster><other><version>",
		"proxy kubectl --cluster cluster1 -- get pods -n web":                    "<get><pods><-n><web>",
		"proxy kubectl -c cluster1 get pods -n web":                              "<get><pods><-n><web>",
		"proxy kubectl -c cluster1 --args get\u00a0pods\u00a0-l\u00a0'a\u00a0b'": "<get><pods><-l><a b>",
	} {
		words := strings.Fields(strings.ReplaceAll(command, "\u00a0", "\x00"))
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "\x00", " ")
		}
		got := h.Run(t, "input", words...)
		want := args + "\n600\n    server: " + h.URL + clitest.ClustersPath + "/cluster1/proxy\ninput"
		if got.Out != want || got.Code != 3 || got.ErrOut != "" {
			t.Errorf("%s: %+v, want %s", command, got, want)
		}
	}
	if left := leftovers(t); left != nil {
		t.Errorf("left behind: %v", left)
	}
	for command, says := range map[string][]string{
		"kubectl get pods":                                  {"--cluster needs to be set"},
		"--cluster C kubectl get pods":                      {`"C" is no name of a cluster`},
		"--cluster cluster1 kubectl":                        {"nothing for kubectl to do"},
		"proxy kubectl -c cluster1 --args 'a":               {"--args", "a quote is not closed"},
		"proxy kubectl -c cluster1 -i get":                  {"--interactive-mode"},
		"proxy kubectl -c cluster1 --sa gone -- get pods":   {`"gone" not found`, "--sa"},
		"--kubeconfig /nowhere -c cluster1 kubectl version": {"/nowhere"},
	} {
		h.Run(t, "", strings.Fields(command)...).Fails(t, says...)
	}
	h.Follow(t, h.Run(t, "", "kubectl", "get", "pods"), "get clusters").Succeeds(t, "cluster1")
	h.Run(t, "", "kubectl", "--help").Succeeds(t, "Usage:", "--sa")
	h.Run(t, "", "-c", "cluster1", "--dry-run", "kubectl", "get", "pods").Succeeds(t, "would run kubectl get pods\n")
}

// CA-43: without kubectl, the command that the error names reads the same.
func TestAdviceWithoutKubectl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	h := newHubWithPods(t)
	refused := h.Run(t, "", "--cluster", "cluster1", "kubectl", "get", "pods")
	refused.Fails(t, "kubectl is not in PATH")
	h.Follow(t, refused, "get RESOURCE --clusters cluster1", "RESOURCE", "pods").Succeeds(t, "cluster1   a ")
}

// MS-07: clients run the credential plugin, and say for which cluster in the way of client-go.
func TestCredentialPluginBadCommandLine(t *testing.T) {
	h := clitest.NewHub(t)
	t.Setenv("KUBERNETES_EXEC_INFO", "")
	for _, name := range []string{"credentials", "credential"} {
		h.Run(t, "", name).Fails(t, "KUBERNETES_EXEC_INFO")
		h.Run(t, "", name, "--managed-serviceaccount", "reader").Fails(t, "KUBERNETES_EXEC_INFO")
	}
}

// CA-43: what people do with pods most is a command of its own, in which --cluster may stand anywhere.
func TestPodCommands(t *testing.T) {
	fakeKubectl(t, `printf '<%s>' "$@"; echo; grep server: "$KUBECONFIG"`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	for command, args := range map[string]string{
		"logs -f web-0 -c app --cluster cluster1 -n web":              "<logs><-f><web-0><-c><app><-n><web>",
		"-c cluster1 logs -c app web-0":                               "<logs><-c><app><web-0>",
		"exec --cluster=cluster1 -it web-0 -- ls --cluster other":     "<exec><-it><web-0><--><ls><--cluster><other>",
		"exec web-0 -it --sa= --cluster cluster1 -- sh -c --help":     "<exec><web-0><-it><--><sh><-c><--help>",
		"port-forward --cluster cluster1 service/web 8080:80 -n web":  "<port-forward><service/web><8080:80><-n><web>",
		"--timeout 9 cp web-0:/log ./log --cluster cluster1 -v 6":     "<cp><web-0:/log><./log><-v><6>",
		"--cluster cluster1 kubectl logs --cluster other --context x": "<logs><--cluster><other><--context><x>",
	} {
		got := h.Run(t, "", strings.Fields(command)...)
		if got.Code != 0 || got.Out != args+"\n    server: "+h.URL+clitest.ClustersPath+"/cluster1/proxy\n" || got.ErrOut != "" {
			t.Errorf("%s: %+v, want %s", command, got, args)
		}
	}
	h.Run(t, "", "logs", "web-0").Fails(t, "--cluster needs to be set")
	h.Run(t, "", "logs", "web-0", "--cluster").Fails(t, `"--" is no name of a cluster`)
	h.Run(t, "", "exec", "web-0", "--cluster", "idle", "--", "sh").Fails(t, "cluster idle: not connected")
	h.Run(t, "", "logs", "web-0", "--help").Succeeds(t, "capstan logs --cluster CLUSTER [-f] POD", "--sa")
}

// CA-43: such a command is for its cluster: flags of kubectl that lead elsewhere, or say who asks, are refused before "--".
func TestPodCommandsStayOnTheCluster(t *testing.T) {
	fakeKubectl(t, `printf '<%s>' "$@"`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	const before = "where it says which hub"
	for command, says := range map[string]string{
		"exec web-0 --kubeconfig hub.yaml -- ls":           `--kubeconfig: behind "exec"`,
		"logs --kubeconfig=hub.yaml web-0":                 before,
		"cp web-0:/log ./log --context other":              `--context: behind "cp"`,
		"port-forward --context=other web-0 80":            before,
		"exec web-0 --server https://other -- ls":          "--server: with it, kubectl would leave the cluster",
		"logs web-0 -s https://other":                      "--server",
		"logs web-0 -fs=https://other":                     "--server",
		"exec -itshttps://other web-0 -- ls":               "--server",
		"logs web-0 --token x":                             "--token",
		"logs web-0 --user=x":                              "--user",
		"logs web-0 --username x --password x":             "--username",
		"logs web-0 --password=x":                          "--password",
		"logs web-0 --client-certificate x --client-key x": "--client-certificate",
		"logs web-0 --client_key=x":                        "--client-key",
		"logs web-0 --certificate-authority x":             "--certificate-authority",
		"logs web-0 --certificate_authority=x":             "--certificate-authority",
		"logs web-0 --insecure-skip-tls-verify":            "--insecure-skip-tls-verify",
		"logs web-0 --tls-server-name x":                   "--tls-server-name",
	} {
		got := h.Run(t, "", append([]string{"--cluster", "cluster1"}, strings.Fields(command)...)...)
		got.Fails(t, says)
		if got.Out != "" {
			t.Errorf("%s: kubectl has run: %s", command, got.Out)
		}
	}
	for command, args := range map[string]string{
		"exec web-0 --cluster cluster1 -- ls -s --kubeconfig x --token y":  "<exec><web-0><--><ls><-s><--kubeconfig><x><--token><y>",
		"exec web-0 -csidecar -nshop --cluster cluster1 -- ls":             "<exec><web-0><-csidecar><-nshop><--><ls>",
		"logs -lapp=store --as alice --cluster cluster1":                   "<logs><-lapp=store><--as><alice>",
		"logs web-0 --insecure-skip-tls-verify-backend --cluster cluster1": "<logs><web-0><--insecure-skip-tls-verify-backend>",
		"logs web-0 --cluster cluster1 --since 1h --tail -1":               "<logs><web-0><--since><1h><--tail><-1>",
		"--context hub logs web-0 --cluster cluster1":                      "<logs><web-0>",
	} {
		if got := h.Run(t, "", strings.Fields(command)...); got.Code != 0 || got.Out != args {
			t.Errorf("%s: %+v, want %s", command, got, args)
		}
	}
}

// CA-43: where there is no way to the cluster, that is said, and kubectl is left out of it. What the cluster says is for kubectl.
func TestKubectlWithoutCluster(t *testing.T) {
	fakeKubectl(t, "echo 'the server is unable' >&2; exit 1")
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster2", fakehub.RefuseCluster(http.StatusForbidden, metav1.StatusReasonForbidden, "cluster2"))
	for cluster, says := range map[string][]string{
		"idle":     {"cluster idle: not connected: cluster idle has no tunnel", "capstan proxy health"},
		"gone":     {`cluster gone: the hub has no cluster "gone"`, "capstan get clusters"},
		"cluster2": {"forbidden", "Ask an administrator of the hub"},
	} {
		got := h.Run(t, "", "--cluster", cluster, "kubectl", "get", "pods")
		got.Fails(t, says...)
		if strings.Contains(got.ErrOut, "the server is unable") {
			t.Errorf("kubectl ran: %s", got.ErrOut)
		}
	}
	for code, reason := range map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	} {
		unhealthy := podsOf()
		unhealthy.Handlers["/healthz"] = fakehub.Refuse(code, reason, "no")
		h.Connect("cluster1", unhealthy)
		if got := h.Run(t, "", "--cluster", "cluster1", "kubectl", "get", "pods"); got.ErrOut != "the server is unable\n" || got.Code != 1 {
			t.Errorf("after %s: %+v", reason, got)
		}
	}
	t.Setenv("PATH", t.TempDir())
	h.Run(t, "", "--cluster", "cluster1", "kubectl", "get", "pods").Fails(t, "kubectl is not in PATH: install it", "capstan get RESOURCE --clusters cluster1")
}

// CA-43: lines are commands in interactive mode.
func TestKubectlInteractive(t *testing.T) {
	fakeKubectl(t, `printf '<%s>' "$@"; echo; exit 1`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	got := h.Run(t, "get pods\n\nkubectl get nodes -l 'a b'\nget 'pods\nexit\nnever\n", "proxy", "kubectl", "--cluster", "cluster1", "--interactive-mode")
	if want := "<get><pods>\n<get><nodes><-l><a b>\n"; got.Out != want || got.Code != 0 || !strings.Contains(got.ErrOut, "a quote is not closed") {
		t.Errorf("%+v, want %s", got, want)
	}
	h.Run(t, "last", "proxy", "kubectl", "-c", "cluster1", "-i").Succeeds(t, "<last>\n")
}

// CA-43: --args has quotes and backslashes as in a shell, which keeps a backslash between double quotes that means nothing to it.
func TestKubectlArgs(t *testing.T) {
	fakeKubectl(t, `printf '<%s>' "$@"; echo`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	for text, want := range map[string]string{
		`get pods`:                `<get><pods>`,
		`get -o 'a "b\n'`:         `<get><-o><a "b\n>`,
		`get -o "{\"\n\"}\t\\\$"`: `<get><-o><{"\n"}\t\$>`,
		`get -o a\ b\n""`:         `<get><-o><a bn>`,
	} {
		h.Run(t, "", "proxy", "kubectl", "--cluster", "cluster1", "--args", text).Succeeds(t, want+"\n")
	}
}

// running is a command whose kubectl runs until its input ends.
type running struct {
	t      *testing.T
	input  *io.PipeWriter
	output *bufio.Scanner
	errOut *bytes.Buffer
	code   chan int
}

func start(t *testing.T, h clitest.Hub, args ...string) *running {
	t.Helper()
	in, input := io.Pipe()
	output, out := io.Pipe()
	r := &running{t: t, input: input, output: bufio.NewScanner(output), errOut: &bytes.Buffer{}, code: make(chan int, 1)}
	go func() {
		code := cli.Main(t.Context(), append([]string{"--kubeconfig", h.File}, args...), in, out, r.errOut)
		_ = out.Close()
		r.code <- code
	}()
	t.Cleanup(func() { _ = input.Close() })
	return r
}

// line is the next line of the output.
func (r *running) line() string {
	r.t.Helper()
	if !r.output.Scan() {
		r.t.Fatalf("no more output: %s", r.errOut)
	}
	return r.output.Text()
}

// CA-43: signals reach kubectl, which decides how it ends.
func TestKubectlGetsSignals(t *testing.T) {
	fakeKubectl(t, `trap 'echo ended; exit 7' HUP; echo ready; while true; do read x || sleep 0.01; done`)
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf())
	r := start(t, h, "--cluster", "cluster1", "kubectl", "logs", "-f", "x")
	if r.line() != "ready" {
		t.Fatal("not ready")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if line := r.line(); line != "ended" {
		t.Errorf("it said %s", line)
	}
	_ = r.input.Close()
	if code := <-r.code; code != 7 {
		t.Errorf("exit code %d: %s", code, r.errOut)
	}
	if left := leftovers(t); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// CA-43: with --sa, requests go to the cluster with the token of the account, in a header next to the credentials for the hub; upgraded
// connections, too. None is sent that is to be of somebody else.
func TestKubectlAsServiceAccount(t *testing.T) {
	fakeKubectl(t, `echo "$KUBECONFIG"; echo "$KUBECACHEDIR"; cat >/dev/null`)
	h := clitest.NewHubWithClusters(t)
	ofAccount := map[string]string{fleet.LabelManagedServiceAccount: "true"}
	putSecret(t, h, "deployer", ofAccount, map[string][]byte{"token": []byte("of-deployer"), "ca.crt": []byte("x")})
	putSecret(t, h, "empty", ofAccount, nil)
	putSecret(t, h, "other", map[string]string{fleet.LabelManagedServiceAccount: "false"}, map[string][]byte{"token": []byte("of-the-hub")})
	h.Connect("cluster1", http.HandlerFunc(answerHeaders))
	r := start(t, h, "proxy", "kubectl", "--cluster", "cluster1", "--sa", "deployer", "--", "get", "pods")
	file, cache := r.line(), r.line()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Clusters["cluster1"].Server)
	if err != nil || server.Hostname() != "127.0.0.1" || len(server.Path) < 20 || filepath.Dir(cache) != filepath.Dir(file) {
		t.Fatalf("server %s, cache %s: %v", server, cache, err)
	}
	if content, _ := os.ReadFile(file); strings.Contains(string(content), "of-deployer") || strings.Contains(string(content), "admin") {
		t.Errorf("secrets in the kubeconfig:\n%s", content)
	}
	want := "GET /api/v1/pods?watch=1 Bearer admin, Bearer of-deployer"
	if got := get(t, server.String()+"/api/v1/pods?watch=1"); got != want {
		t.Errorf("the cluster got %q, want %q", got, want)
	}
	if got := get(t, "http://"+server.Host+"/api/v1/pods"); !strings.Contains(got, "404") {
		t.Errorf("without the path: %s", got)
	}
	for _, header := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Extra-Scopes"} {
		if got := get(t, server.String()+"/api/v1/pods", header); !strings.Contains(got, "--as: with --sa") {
			t.Errorf("with %s, the answer is %q", header, got)
		}
	}
	if got := upgrade(t, server); got != want+" and hello" {
		t.Errorf("over an upgraded connection: %q", got)
	}
	_ = r.input.Close()
	if code := <-r.code; code != 0 {
		t.Errorf("exit code %d: %s", code, r.errOut)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Host); err == nil {
		t.Error("the port is open after the end")
	}
	h.Run(t, "", "proxy", "kubectl", "--cluster", "cluster1", "--sa", "empty", "--", "get", "pods").Fails(t,
		"Secret empty", "has no token", "ManagedServiceAccount")
	h.Run(t, "", "proxy", "kubectl", "--cluster", "cluster1", "--sa", "other", "--", "get", "pods").Fails(t,
		"Secret other of namespace cluster1 is not that of a ManagedServiceAccount")
}

// putSecret puts a Secret into the namespace of cluster1.
func putSecret(t *testing.T, h clitest.Hub, name string, labels map[string]string, data map[string][]byte) {
	t.Helper()
	h.Put(t, "/api/v1/namespaces/cluster1/secrets/"+name, &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name, Labels: labels}, Data: data})
}

// CA-43: a token that the cluster does not accept any more is read again for the next request.
func TestKubectlWithRenewedToken(t *testing.T) {
	fakeKubectl(t, `echo "$KUBECONFIG"; cat >/dev/null`)
	h := clitest.NewHubWithClusters(t)
	renew := func(token string) {
		putSecret(t, h, "deployer", map[string]string{fleet.LabelManagedServiceAccount: "true"}, map[string][]byte{"token": []byte(token)})
	}
	renew("revoked")
	h.Connect("cluster1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(fleet.HeaderClusterAuthorization) == "Bearer revoked" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		answerHeaders(w, r)
	}))
	r := start(t, h, "proxy", "kubectl", "--cluster", "cluster1", "--sa", "deployer", "--", "get", "pods")
	config, err := clientcmd.LoadFromFile(r.line())
	if err != nil {
		t.Fatal(err)
	}
	pods := config.Clusters["cluster1"].Server + "/api/v1/pods"
	if got := get(t, pods); !strings.Contains(got, "Unauthorized") {
		t.Errorf("with the old token: %s", got)
	}
	renew("renewed")
	if got, want := get(t, pods), "GET /api/v1/pods Bearer admin, Bearer renewed"; got != want {
		t.Errorf("the cluster got %q, want %q", got, want)
	}
	_ = r.input.Close()
	if code := <-r.code; code != 0 {
		t.Errorf("exit code %d: %s", code, r.errOut)
	}
}

// answerHeaders answers with the path and the credentials of a request, and with what is sent to it after an upgrade.
func answerHeaders(w http.ResponseWriter, r *http.Request) {
	answer := fmt.Sprintf("%s %s %s, %s", r.Method, r.URL, strings.Join(r.Header.Values("Authorization"), ";"),
		strings.Join(r.Header.Values(fleet.HeaderClusterAuthorization), ";"))
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprint(w, answer)
		return
	}
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	_ = buffered.Flush()
	line, _ := buffered.ReadString('\n')
	fmt.Fprintf(buffered, "%s and %s", answer, line)
	_ = buffered.Flush()
}

// get sends credentials that are to be replaced, and somebody to impersonate in other headers.
func get(t *testing.T, address string, impersonate ...string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer smuggled")
	request.Header.Set(fleet.HeaderClusterAuthorization, "Bearer smuggled")
	for _, header := range impersonate {
		request.Header.Set(header, "limited")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// upgrade requests SPDY, as kubectl does, and exchanges a line.
func upgrade(t *testing.T, server *url.URL) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s/api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", server.Path)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", response, err)
	}
	defer response.Body.Close()
	fmt.Fprint(conn, "hello\n")
	answer, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(answer))
}
