package install_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// CA-15, CA-17
func TestJoinBadInput(t *testing.T) {
	t.Parallel()
	kubeconfig := clitest.NewHub(t).File
	contextless := withoutCurrentContext(t, kubeconfig)
	good := map[string]string{
		"--hub-token": "t", "--hub-apiserver": "https://127.0.0.1:1", "--cluster-name": "c1", "--managed-cluster-kubeconfig": kubeconfig,
	}
	tests := map[string]struct {
		flag, value string
		says        []string
	}{
		"no token":    {"--hub-token", "", []string{"token is missing", "capstan get token"}},
		"token twice": {"--hub-token-file", kubeconfig, []string{"--hub-token, --hub-token-file", "one of them"}},
		"no hub":      {"--hub-apiserver", "", []string{"hub-server is missing", "capstan get token"}},
		"no name":     {"--cluster-name", "", []string{"cluster-name is missing"}},
		"no kubeconfig": {"--managed-cluster-kubeconfig", "",
			[]string{"--managed-cluster-kubeconfig is missing", "process of this machine"}},
		"bad name":                {"--cluster-name", "C1", []string{"--cluster-name", `"C1"`}},
		"long name":               {"--cluster-name", strings.Repeat("c", 64), []string{"63"}},
		"reserved name":           {"--cluster-name", "managed-clusters", []string{"reserved"}},
		"name of the hub's own":   {"--cluster-name", "kube-system", []string{`"kube-system" is reserved`}},
		"bad hash":                {"--ca-cert-hash", "sha256:1", []string{"--ca-cert-hash", `"sha256:1"`, "capstan get token"}},
		"a folder as kubeconfig":  {"--managed-cluster-kubeconfig", filepath.Dir(kubeconfig), []string{filepath.Dir(kubeconfig), "directory"}},
		"no current context":      {"--managed-cluster-kubeconfig", contextless, []string{contextless, `""`, "choose one of hub", "use-context"}},
		"bad URL":                 {"--hub-apiserver", "hub:6443", []string{"--hub-apiserver", "https://"}},
		"missing kubeconfig":      {"--managed-cluster-kubeconfig", "/gone", []string{"/gone"}},
		"a context":               {"--context", "c", []string{"--context", "--managed-cluster-kubeconfig"}},
		"a hub that is not there": {"--hub-apiserver", "https://127.0.0.1:1", []string{"nothing answers at https://127.0.0.1:1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"join", "--local", test.flag + "=" + test.value}
			for flag, value := range good {
				if flag != test.flag {
					args = append(args, flag+"="+value)
				}
			}
			clitest.Run(t.Context(), "", args...).Fails(t, test.says...)
		})
	}
}

// "token by file or stdin instead of argv"
func TestJoinTokenFile(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	join := func(stdin, tokenFile string) clitest.Result {
		return clitest.Run(t.Context(), stdin, "join", "--local", "--dry-run", "--hub-token-file", tokenFile, "--hub-apiserver", h.URL, "--cluster-name", "c1",
			"--ca-file", clitest.WriteCA(t, h),
			"--managed-cluster-kubeconfig", h.File)
	}
	join("", file)
	join("from-stdin", "-")
	var sent []string
	for _, request := range h.Requests("GET") {
		if strings.HasPrefix(request.Path, "/apis/cluster.open-cluster-management.io") {
			sent = append(sent, request.Authorization)
		}
	}
	if !slices.Equal(sent, []string{"Bearer from-file", "Bearer from-stdin"}) {
		t.Errorf("the hub got %q", sent)
	}
	join("", "-").Fails(t, "--hub-token-file", "standard input holds 0 words")
	join("two words", "-").Fails(t, "holds 2 words")
	join("", filepath.Join(t.TempDir(), "gone")).Fails(t, "--hub-token-file", "gone")
}

func withoutCurrentContext(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.CurrentContext = ""
	file := kubeconfig + "-contextless"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A kubeconfig that leads nowhere is found before the hub learns of the cluster.
func TestJoinUnreachableCluster(t *testing.T) {
	t.Parallel()
	h, gone := clitest.NewHub(t), clitest.NewHub(t)
	gone.Close()
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	clitest.Run(t.Context(), "", "join", "--local", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1", "--ca-file", clitest.WriteCA(t, h),
		"--managed-cluster-kubeconfig", gone.File).Fails(t, "--managed-cluster-kubeconfig: "+gone.File, gone.URL,
		"connection refused", "see whether it runs")
	if requested := h.Requests("POST"); len(requested) != 0 {
		t.Errorf("the hub was asked for %+v", requested)
	}
}

// CA-17 KL-09: the URL that a cluster publishes is what its agent reports.
func TestJoinReportsURL(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "capstan-agent"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	h, managed := clitest.NewHub(t), clitest.NewHub(t)
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	join := []string{"join", "--local", "--dry-run", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1", "--ca-file", clitest.WriteCA(t, h),
		"--managed-cluster-kubeconfig", managed.File}
	clitest.Run(t.Context(), "", join...).Succeeds(t, "--spoke-external-server-urls "+managed.URL)
	managed.Put(t, "/api/v1/namespaces/kube-public/configmaps/cluster-info", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
		Data: map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'https://prod1.example.com'}}]"},
	})
	clitest.Run(t.Context(), "", join...).Succeeds(t, "--spoke-external-server-urls https://prod1.example.com")
}

// CA-17: an agent that is to serve another hub does not leave its own without a word.
func TestJoinWarnsOfMove(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "capstan-agent"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	home := t.TempDir()
	t.Setenv(playground.EnvHome, home)
	h, managed := clitest.NewHub(t), clitest.NewHub(t)
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	join := []string{"join", "--local", "--dry-run", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1", "--ca-file", clitest.WriteCA(t, h),
		"--managed-cluster-kubeconfig", managed.File}
	const former = "https://former.example.com"
	for _, before := range []string{"", h.URL, former} {
		if before != "" {
			config := hubapi.Invitation{Server: before, Token: "t"}.Kubeconfig(hubapi.Trust{})
			if err := clientcmd.WriteToFile(*config, filepath.Join(home, "clusters", "c1", "bootstrap-kubeconfig")); err != nil {
				t.Fatal(err)
			}
		}
		got := clitest.Run(t.Context(), "", join...)
		got.Succeeds(t, "would run")
		if strings.Contains(got.ErrOut, "joined the hub at "+former) != (before == former) {
			t.Errorf("joined by %q before: %s", before, got.ErrOut)
		}
	}
}
