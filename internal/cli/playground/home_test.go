package playground

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/capstan-io/capstan/internal/freeport"
)

func TestLock(t *testing.T) {
	t.Parallel()
	home := Home{Dir: filepath.Join(t.TempDir(), "home")}
	unlock, err := home.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(home.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("home: %v, error %v, want mode 0700", info, err)
	}
	if _, err := home.Lock(); err == nil || !strings.Contains(err.Error(), "another capstan command") {
		t.Errorf("locked twice, error %v", err)
	}
	inherited := duplicate(t, home.lockFile())
	defer inherited.Close()
	unlock()
	again, err := home.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// duplicate is the open file as a process has it that this one is just starting.
func duplicate(t *testing.T, name string) *os.File {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range open {
		if target, err := os.Readlink(link); err == nil && target == name {
			fd, err := strconv.Atoi(filepath.Base(link))
			if err != nil {
				t.Fatal(err)
			}
			if fd, err = syscall.Dup(fd); err != nil {
				t.Fatal(err)
			}
			return os.NewFile(uintptr(fd), name)
		}
	}
	t.Fatalf("%s is not open", name)
	return nil
}

func TestStateIsKept(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if state, err := home.Load(); err != nil || state.Hub != nil {
		t.Fatalf("state of a new home: %+v, error %v", state, err)
	}
	state, err := State{}.plan(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Save(state); err != nil {
		t.Fatal(err)
	}
	kept, err := home.Load()
	if err != nil || kept.Hub.Port != state.Hub.Port || len(kept.Clusters) != 2 || kept.Clusters[1] != state.Clusters[1] {
		t.Errorf("kept %+v of %+v, error %v", kept, state, err)
	}
}

// The port of the hub's own configuration counts: a person may have changed it, or the state may be lost.
func TestHubPort(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if got := home.hub().port(1); got != 1 {
		t.Errorf("port %d without a file, want 1", got)
	}
	if err := home.hub().writeConfig(20001); err != nil {
		t.Fatal(err)
	}
	if got := home.hub().port(1); got != 20001 {
		t.Errorf("port %d, want that of the file", got)
	}
	if err := os.WriteFile(home.hub().configFile(), []byte("apiserver: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := home.hub().port(1); got != 1 {
		t.Errorf("port %d of a broken file, want 1", got)
	}
}

// A hub whose data is elsewhere, as after the home was moved or copied, would be an empty one, or that of another home.
func TestDataOfAnotherHome(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home, link := Home{Dir: filepath.Join(dir, "home")}, filepath.Join(dir, "link")
	if err := os.Symlink(home.Dir, link); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	makeFolder(t, disk)
	for name, test := range map[string]struct {
		config  string
		symlink bool // the data is on another disk
		refused bool
	}{
		"as written":              {config: "dataDirectory: " + home.hub().dataDir()},
		"by a link":               {config: "dataDirectory: " + filepath.Join(link, "hub", "data")},
		"relative":                {config: "dataDirectory: hub/data"},
		"on another disk":         {config: "dataDirectory: " + disk, symlink: true},
		"a file that is broken":   {config: "dataDirectory: ["},
		"in a home that was":      {config: "dataDirectory: /gone/hub/data", refused: true},
		"in another folder":       {config: "dataDirectory: " + disk, refused: true},
		"in another of this home": {config: "dataDirectory: " + filepath.Join(home.hub().dir, "other"), refused: true},
		"by default":              {config: "apiserver: {}", refused: true},
	} {
		if err := os.RemoveAll(home.Dir); err != nil {
			t.Fatal(err)
		}
		if err := WriteSecretFile(home.hub().configFile(), []byte(test.config)); err != nil {
			t.Fatal(err)
		}
		if test.symlink {
			if err := os.Symlink(disk, home.hub().dataDir()); err != nil {
				t.Fatal(err)
			}
		}
		_, err := home.prepare(t.Context(), 1)
		if (err != nil) != test.refused {
			t.Errorf("%s: error %v, want one: %t", name, err, test.refused)
		}
		for _, want := range []string{home.hub().configFile(), "dataDirectory", EnvHome, home.hub().dataDir()} {
			if test.refused && err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v does not mention %q", name, err, want)
			}
		}
	}
}

func TestBrokenState(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if err := os.WriteFile(home.stateFile(), []byte("hubb: {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := home.Load()
	for _, want := range []string{home.stateFile(), "hubb", "--purge"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	three, err := State{Hub: &HubState{Port: 1}, Clusters: []ClusterState{{Name: "cluster1", Port: 2}}}.plan(3)
	if err != nil {
		t.Fatal(err)
	}
	if three.Hub.Port != 1 || three.Clusters[0].Port != 2 {
		t.Errorf("ports changed: %+v", three)
	}
	seen := map[int]bool{1: true, 2: true}
	for i, cluster := range three.Clusters[1:] {
		if want := "cluster" + strconv.Itoa(i+2); cluster.Name != want {
			t.Errorf("name %s, want %s", cluster.Name, want)
		}
		if seen[cluster.Port] || cluster.Port < lowestPort || cluster.Port > highestPort {
			t.Errorf("port %d of %s", cluster.Port, cluster.Name)
		}
		seen[cluster.Port] = true
	}
	if _, err := three.plan(2); err == nil || !strings.Contains(err.Error(), "--clusters: 2") || !strings.Contains(err.Error(), "3 already") {
		t.Errorf("fewer clusters: error %v", err)
	}
	clash := State{Joined: []Member{{Name: "cluster2"}}}
	if _, err := clash.plan(2); err == nil || !strings.Contains(err.Error(), "cluster2") {
		t.Errorf("a name that join has taken: error %v", err)
	}
}

func TestDesiredClusters(t *testing.T) {
	t.Parallel()
	three := State{Hub: &HubState{}, Clusters: make([]ClusterState, 3)}
	for name, test := range map[string]struct {
		state          State
		flag, expected int
	}{
		"the first time":           {State{}, 0, DefaultClusters},
		"the first time, as asked": {State{}, 1, 1},
		"later":                    {three, 0, 3},
		"later, as asked":          {three, 4, 4},
	} {
		if got := test.state.desiredClusters(test.flag); got != test.expected {
			t.Errorf("%s: %d clusters, want %d", name, got, test.expected)
		}
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	free, err := freeport.Between(lowestPort, highestPort).Next()
	if err != nil {
		t.Fatal(err)
	}
	state := State{Hub: &HubState{Port: free}, Clusters: []ClusterState{{Name: "cluster1", Port: port}}}
	err = home.Processes().checkPorts(t.Context(), state)
	for _, want := range []string{strconv.Itoa(port), "cluster1-sandbox", "another process"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

// The home may be a folder with other things in it.
func TestPurgeTakesNothingElse(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	mine := filepath.Join(home.Dir, "letters.txt")
	for _, file := range []string{mine, home.Kubeconfig(), home.stateFile(), home.Agent(Member{Name: "cluster1"}).bootstrapKubeconfig(),
		filepath.Join(home.hub().dataDir(), "x")} {
		if err := WriteSecretFile(file, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := home.purge(&recorder{}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(home.Dir)
	if err != nil || len(left) != 1 || left[0].Name() != "letters.txt" {
		t.Errorf("left %v, error %v", left, err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := home.purge(&recorder{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home.Dir); !os.IsNotExist(err) {
		t.Errorf("an empty home is left: %v", err)
	}
}

func TestWriteSecretFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "secret")
	for _, content := range []string{"one", "two"} {
		if err := WriteSecretFile(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil { // the next write puts that right
			t.Fatal(err)
		}
	}
	if err := WriteSecretFile(file, []byte("three")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || string(got) != "three" || info.Mode().Perm() != 0o600 {
		t.Errorf("file holds %q with mode %v, errors %v, %v", got, info.Mode(), err, statErr)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("files %v, error %v: want the one file", entries, err)
	}
}
