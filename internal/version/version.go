// Package version knows which Capstan this is.
package version

import "runtime/debug"

// version is set when a release is linked.
var version = ""

// String is the version of this build: that of the release, else that of the module as Go knows it, else the commit.
func String() string {
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
