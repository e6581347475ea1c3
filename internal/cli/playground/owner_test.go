package playground

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// filesIn are the contents of all that is in a folder, by name; those of folders are empty.
func filesIn(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			found[name] = ""
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, name))
		found[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The home may be set to a folder that is somebody else's: nothing in there is touched.
func TestFolderOfOthers(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"clusters/prod/app.yaml":  "kind: ConfigMap",
		"hub/config/app.yaml":     "kind: ConfigMap",
		"hub/ocmconfig.yaml":      "dataDirectory: /data",
		"logs/server.log":         "started",
		"run/server.json":         `{"pid": 1}`,
		"run/list.json":           `[]`,
		"run/server.pid":          "1",
		"kubeconfig":              "",
		"clusters/prod/agent/key": "secret",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := Home{Dir: t.TempDir()}
			if err := WriteSecretFile(filepath.Join(home.Dir, name), []byte(content)); err != nil {
				t.Fatal(err)
			}
			before := filesIn(t, home.Dir)
			for _, purge := range []bool{false, true} {
				if stopped, err := home.Down(t.Context(), purge, &recorder{}); err != nil || stopped != 0 {
					t.Errorf("down: stopped %d, error %v", stopped, err)
				}
			}
			top, _, _ := strings.Cut(name, "/")
			_, err := home.Lock()
			for _, want := range []string{EnvHome, home.Dir, top} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v does not mention %q", err, want)
				}
			}
			if after := filesIn(t, home.Dir); !maps.Equal(after, before) {
				t.Errorf("it has %v, and had %v", after, before)
			}
		})
	}
}

// A home is one from the first command on, and stays one when its state is lost.
func TestExists(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make   func(t *testing.T, home Home)
		exists bool
	}{
		"no folder":    {func(*testing.T, Home) {}, false},
		"empty folder": {func(t *testing.T, home Home) { makeFolder(t, home.Dir) }, false},
		"empty folders of a command that failed": {func(t *testing.T, home Home) {
			makeFolder(t, home.Processes().runDir())
			makeFolder(t, home.Processes().logDir())
		}, false},
		"folders of others besides": {func(t *testing.T, home Home) { makeFolder(t, filepath.Join(home.Dir, "letters", "a")) }, false},
		"a state":                   {func(t *testing.T, home Home) { saveState(t, home, State{}) }, true},
		"a broken state": {func(t *testing.T, home Home) {
			if err := WriteSecretFile(home.stateFile(), []byte("hubb: {}")); err != nil {
				t.Fatal(err)
			}
		}, true},
		"a process, and no state": {func(t *testing.T, home Home) {
			makeFolder(t, home.Processes().logDir())
			start(t, home, shell(t, "hub", "exec sleep 1000"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := Home{Dir: filepath.Join(t.TempDir(), "home[1]")}
			test.make(t, home)
			if exists, err := home.Exists(); err != nil || exists != test.exists {
				t.Errorf("exists %t, error %v, want %t", exists, err, test.exists)
			}
			unlock, err := home.Lock()
			if err != nil {
				t.Fatal(err)
			}
			unlock()
			if exists, err := home.Exists(); err != nil || !exists {
				t.Errorf("exists %t, error %v, after a command", exists, err)
			}
		})
	}
}

func makeFolder(t *testing.T, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
}

func saveState(t *testing.T, home Home, state State) {
	t.Helper()
	if err := home.Save(state); err != nil {
		t.Fatal(err)
	}
}

// Processes of a home whose state is lost can be stopped, and the home removed.
func TestDownWithoutState(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	start(t, home, shell(t, "hub", "exec sleep 1000"))
	if err := os.Remove(home.stateFile()); err != nil {
		t.Fatal(err)
	}
	if stopped, err := home.Down(t.Context(), true, &recorder{}); err != nil || stopped != 1 {
		t.Errorf("stopped %d, error %v, want 1", stopped, err)
	}
	if _, err := os.Stat(home.Dir); !os.IsNotExist(err) {
		t.Errorf("the home is left after a purge: %v", err)
	}
}

// A purge takes our contexts out of the kubeconfig, and what leads to our clusters.
func TestPurgeKeepsOtherContexts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost bool // the state
		add  func(config *clientcmdapi.Config)
		left []string // nil if the file is to go
	}{
		"nothing else":                    {add: func(*clientcmdapi.Config) {}},
		"nothing else, without a state":   {lost: true, add: func(*clientcmdapi.Config) {}},
		"one that leads to our clusters":  {add: addContext("mine", "cluster1", "")},
		"one of another cluster":          {add: addContext("prod", "prod", "https://prod"), left: []string{"prod"}},
		"one of another, without a state": {lost: true, add: addContext("prod", "prod", "https://prod"), left: []string{"prod"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, cluster1 := newHome(t), ClusterState{Name: "cluster1", Port: 2}
			saveState(t, home, State{Hub: &HubState{Port: 1}, Clusters: []ClusterState{cluster1}})
			makeFolder(t, home.sandbox(cluster1).dir)
			for _, context := range []string{"hub", "cluster1"} {
				if err := home.publish(context, component(t, "https://"+context), &recorder{}); err != nil {
					t.Fatal(err)
				}
			}
			config := load(t, home.Kubeconfig())
			test.add(config)
			if err := clientcmd.WriteToFile(*config, home.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
			if test.lost {
				if err := os.Remove(home.stateFile()); err != nil {
					t.Fatal(err)
				}
			}
			if err := home.purge(&recorder{}); err != nil {
				t.Fatal(err)
			}
			if test.left == nil {
				if _, err := os.Stat(home.Dir); !os.IsNotExist(err) {
					t.Errorf("the home is left: %v", err)
				}
				return
			}
			config = load(t, home.Kubeconfig())
			if got := slices.Sorted(maps.Keys(config.Contexts)); !slices.Equal(got, test.left) || config.CurrentContext != "" {
				t.Errorf("contexts %v, current %q, want %v", got, config.CurrentContext, test.left)
			}
			if got := slices.Sorted(maps.Keys(config.Clusters)); !slices.Equal(got, test.left) {
				t.Errorf("clusters %v, want %v", got, test.left)
			}
			unlock, err := home.Lock()
			if err != nil {
				t.Fatalf("after that, commands refuse the home: %v", err)
			}
			unlock()
		})
	}
}

// addContext adds a context, and its cluster if that has a server.
func addContext(name, cluster, server string) func(config *clientcmdapi.Config) {
	return func(config *clientcmdapi.Config) {
		config.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
		if server != "" {
			config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server}
			config.AuthInfos[cluster] = &clientcmdapi.AuthInfo{Token: "t"}
		}
	}
}
