package realcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// requirement is a program that a cluster needs, and the package of Debian that has it.
type requirement struct{ program, aptPackage string }

var requirements = []requirement{
	{"busybox", "busybox-static"},
	{"conntrack", "conntrack"},
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"ip", "iproute2"},
	{"iptables", "iptables"},
	{"nsenter", "util-linux"},
	{"runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
}

// Missing is why no cluster can be started here; nil if one can.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("clusters with real pods need root: for namespaces, mounts and links")
	}
	packages := missingPackages()
	if len(packages) == 0 {
		return nil
	}
	return fmt.Errorf("clusters with real pods need these packages of Debian: %s", strings.Join(packages, " "))
}

func missingPackages() []string {
	var packages []string
	for _, r := range requirements {
		if _, err := exec.LookPath(r.program); err != nil && !slices.Contains(packages, r.aptPackage) {
			packages = append(packages, r.aptPackage)
		}
	}
	return packages
}

// Install installs what is missing with apt-get, and returns what Missing does then.
func Install(output io.Writer) error {
	packages := missingPackages()
	if os.Geteuid() != 0 || len(packages) == 0 {
		return Missing()
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return Missing()
	}
	for _, args := range [][]string{
		{"dpkg", "--configure", "-a"}, // what an install that was killed has left to do, before which apt-get does nothing
		{"apt-get", "update", "-qq"},
		append([]string{"apt-get", "install", "-qq", "--yes", "--no-install-recommends"}, packages...),
	} {
		command := exec.Command(args[0], args[1:]...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		command.Stdout, command.Stderr = output, output
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	return Missing()
}

// StartEnv is the environment variable without which Start skips the test: clusters take root, memory and time.
const StartEnv = "CAPSTAN_TEST_CLUSTERS"

// skipReason is why a test that needs clusters does not run.
func skipReason() string {
	if os.Getenv(StartEnv) == "" {
		return "it starts real clusters: run make test-clusters"
	}
	_ = os.Getenv("CAPSTAN_TEST_TOOLS") // makes the versions of the packages inputs of the test: Makefile
	if err := Missing(); err != nil {
		return err.Error()
	}
	return ""
}
