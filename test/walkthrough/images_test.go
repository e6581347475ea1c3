package walkthrough

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// The commands of docs/images.md build images of a clone, push them to a registry, and install hub and agent from there, without a flag but
// the registry: the command line asks for the images that were built with it.
//
// CA-07
func TestBuildPushAndInstall(t *testing.T) {
	slow(t)
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	own := realcluster.StartRegistry(t)
	repository := own.Host + "/capstan"
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(own.DockerConfig(own.User, own.Password)), 0o600); err != nil {
		t.Fatal(err)
	}
	clone := filepath.Join(home, "capstan")
	run(t, "", "git", "clone", "--quiet", "../..", clone)
	// For this machine alone, and of the packages that are compiled already.
	run(t, "", "make", "-C", clone, "build", "images", "ARCHS="+runtime.GOARCH, "TRIMPATH=", "BUILD_TAGS=")
	run(t, "DOCKER_CONFIG="+home, "make", "-C", clone, "push", "REGISTRY="+repository)

	hub.UseMirror(t, own.Host, own)
	managed.UseMirror(t, own.Host, own)
	built := filepath.Join(clone, "bin", "capstan")
	initialized, err := runCommand(t, built, hub.Kubeconfig, hub.home, "init", "--wait", "--image-registry", repository)
	if err != nil {
		t.Fatal(err)
	}
	join := append(joinCommand(t, initialized, "cluster1"), "--wait", "--image-registry", repository)
	if _, err := runCommand(t, built, managed.Kubeconfig, managed.home, join...); err != nil {
		t.Fatal(err)
	}
	hub.accept(t, "cluster1")
	hub.runsImagesOf(t, repository+"/", fleet.NamespaceOperators, fleet.NamespaceHub)
	managed.runsImagesOf(t, repository+"/", fleet.NamespaceOperators, fleet.NamespaceAgent)
	hub.reaches(t, managed, "cluster1")
}

// run runs a command with a variable, given as NAME=VALUE, in its environment, and without those of the make that runs the test.
func run(t *testing.T, variable, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Env = append(os.Environ(), "MAKEFLAGS=", variable)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
