package install_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// fakeCharts is a program of the name capstan-charts that records its arguments, first in PATH.
func fakeCharts(t *testing.T, script string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	content := "#!/bin/sh\necho \"$KUBECONFIG: $*\" >> " + log + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, "capstan-charts"), []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return log
}

// CA-39 CA-40 AR-08 O17
func TestHubAddOn(t *testing.T) { //nolint:paralleltest // it changes PATH
	h := clitest.NewHubWithClusters(t)
	install := []string{"install", "hub-addon", "--names", "governance-policy-framework,argocd"}
	for says, args := range map[string][]string{
		"--names is missing: which of argocd, argocd-agent": {"install", "hub-addon"},
		`"argo" is none of argocd`:                          {"install", "hub-addon", "--names", "argo"},
		`"9.9" is none of default, latest, 1.1.0`:           append(install, "--bundle-version", "9.9"),
		"--bundle-version-overrides: open gone":             append(install, "--bundle-version-overrides", "gone"),
		`--namespace: "N"`:                                  append(install, "-n", "N"),
		"no namespace open-cluster-management for governance-policy-framework: --create-namespace": install,
	} {
		h.Run(t, "", args...).Fails(t, says)
	}
	h.PutNamespace(t, "open-cluster-management")
	h.PutNamespace(t, "argocd")
	h.Handle("GET /apis/apps/v1", http.NotFound)
	h.Run(t, "", install...).Fails(t, "runs no pods")
	h.Handle("GET /apis/apps/v1", fakehub.JSON(`{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`))
	t.Setenv("PATH", t.TempDir())
	h.Run(t, "", install...).Fails(t, "capstan-charts is neither in ", "nor in PATH")

	t.Setenv("PATH", "/usr/bin:/bin")
	log := fakeCharts(t, `[ "$1" != template ] || echo "kind: FromChart-$2"`)
	h.Run(t, "", append(install, "--dry-run")...).Succeeds(t,
		"kind: FromChart-governance-policy-framework\nkind: FromChart-argocd-pull-integration\n")
	overrides := filepath.Join(t.TempDir(), "overrides.json")
	if err := os.WriteFile(overrides, []byte(`{"policy_addon":"v0.17.3"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "applied.yaml")
	h.Run(t, "", append(install, "--bundle-version", "v1.2.0", "--bundle-version-overrides", overrides, "--repository",
		"https://mirror.example.com", "--repository-ca-file", "ca.crt", "--create-namespace", "--output-file", file)...).Succeeds(t,
		"Installing built-in governance-policy-framework add-on to the Hub cluster...\nInstalling built-in argocd add-on to the Hub cluster...\n")
	if content, err := os.ReadFile(file); err != nil || strings.Count(string(content), "FromChart") != 2 {
		t.Errorf("written: %s, %v", content, err)
	}
	h.PutAddOn(t, "cluster1", "argocd")
	refused := h.Run(t, "", "uninstall", "hub-addon", "--names", "argocd-agent,argocd")
	refused.Fails(t, "argocd is on cluster cluster1")
	h.Follow(t, refused, "addon disable --names argocd --clusters cluster1").Succeeds(t)
	h.Run(t, "", "uninstall", "hub-addon", "--names", "argocd", "--dry-run").Succeeds(t, "would uninstall argocd from namespace argocd")
	h.Run(t, "", "uninstall", "hub-addon", "--names", "argocd").Succeeds(t, "Uninstalling built-in argocd add-on from the Hub cluster...")
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	const repo, mirror = " --repository https://open-cluster-management.io/helm-charts --namespace ",
		" --repository https://mirror.example.com --namespace "
	recorded := strings.ReplaceAll(string(content), h.File+": ", "")
	limits := regexp.MustCompile(` --timeout \S+`)
	lines := strings.Split(strings.TrimSpace(limits.ReplaceAllString(recorded, "")), "\n")
	if n := len(limits.FindAllString(recorded, -1)); n != len(lines) {
		t.Errorf("the program was told %d times how long it may take, want %d", n, len(lines))
	}
	want := []string{
		"template governance-policy-framework governance-policy-framework" + repo +
			"open-cluster-management --version v0.18.0 --kube-context hub",
		"template argocd-pull-integration argocd-pull-integration" + repo + "argocd --kube-context hub",
		"template governance-policy-framework governance-policy-framework" + mirror +
			"open-cluster-management --repository-ca-file ca.crt --version v0.17.3 --kube-context hub",
		"template argocd-pull-integration argocd-pull-integration" + mirror + "argocd --repository-ca-file ca.crt --kube-context hub",
		"install governance-policy-framework governance-policy-framework" + mirror +
			"open-cluster-management --repository-ca-file ca.crt --version v0.17.3 --create-namespace --kube-context hub",
		"install argocd-pull-integration argocd-pull-integration" + mirror +
			"argocd --repository-ca-file ca.crt --create-namespace --kube-context hub",
		"uninstall argocd-pull-integration --namespace argocd --kube-context hub",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("the program was asked\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	fakeCharts(t, "echo 'chart not found' >&2; exit 1\n")
	h.Run(t, "", install...).Fails(t, "add-on governance-policy-framework: chart not found")
}

// CA-40: a run that was interrupted is run again, though the first of the add-ons is uninstalled already, which it says.
func TestInterruptedUninstallOfHubAddOns(t *testing.T) { //nolint:paralleltest // it changes PATH
	h := clitest.NewHubWithClusters(t)
	dir := t.TempDir()
	releases := []string{"governance-policy-framework", "argocd-pull-integration"}
	for _, release := range releases {
		if err := os.WriteFile(filepath.Join(dir, release), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fakeCharts(t, "cd "+dir+`
[ -e "$2" ] || { echo "release $2 is not installed" >&2; exit 1; }
[ "$2" = governance-policy-framework ] || [ -e interrupted ] || { touch interrupted; echo "release $2 is kept" >&2; exit 1; }
rm "$2"
`)
	uninstall := []string{"uninstall", "hub-addon", "--names", "governance-policy-framework,argocd"}
	h.Run(t, "", uninstall...).Fails(t, "release argocd-pull-integration is kept")
	h.Run(t, "", uninstall...).Fails(t, "release governance-policy-framework is not installed")
	for _, release := range releases {
		if _, err := os.Stat(filepath.Join(dir, release)); !os.IsNotExist(err) {
			t.Errorf("release %s is there: %v", release, err)
		}
	}
}

// The program gets SIGTERM, and the time to write down how far the release is.
func TestHubAddOnIsInterrupted(t *testing.T) { //nolint:paralleltest // it changes PATH
	h := clitest.NewHubWithClusters(t)
	h.PutNamespace(t, "argocd")
	h.Handle("GET /apis/apps/v1", fakehub.JSON(`{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`))
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	log := fakeCharts(t, `[ "$1" = install ] || exit 0
trap 'echo terminated >> "$0.log"; kill $!; exit 1' TERM
sleep 1000 > /dev/null 2>&1 &
echo > `+started+`
wait
`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = os.ReadFile(started) // once it writes there
		cancel()
	}()
	if got := clitest.Run(ctx, "", "--kubeconfig", h.File, "install", "hub-addon", "--names", "argocd"); got.Code != 130 {
		t.Errorf("exit code %d: %s", got.Code, got.ErrOut)
	}
	if content, err := os.ReadFile(filepath.Join(filepath.Dir(log), "capstan-charts.log")); err != nil || string(content) != "terminated\n" {
		t.Errorf("the program was not asked to end: %q, %v", content, err)
	}
}
