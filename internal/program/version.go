// Package program is what each program needs of its process: the signal to end, its version, the namespace of its pod, and how to become
// another program.
//
// It listens to signals from the moment it is initialised, which is long before main: the initialisation of the Kubernetes libraries takes
// longer than some supervisors wait between a start and a change of mind, and a signal that comes in between kills the program, or is lost
// when the program is the first process of a container. For that the package imports nothing but the standard library.
package program

import "runtime/debug"

// version is set when a release is linked.
var version = ""

// Version is the version of this build: that of the release, else that of the module as Go knows it, else the commit.
func Version() string {
	if version != "" {
		return version
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := build.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			return "devel-" + setting.Value[:12]
		}
	}
	return "devel"
}
