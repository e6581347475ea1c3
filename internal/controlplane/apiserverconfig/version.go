package apiserverconfig

import (
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// KubeVersion is the version of Kubernetes linked in, like v1.37.1. Unless the linker sets it, Kubernetes itself does not
// know and reports v0.0.0, so it is taken from the module list of the binary.
func KubeVersion() string {
	if linked := baseversion.Get().GitVersion; !strings.HasPrefix(linked, "v0.0.0") {
		return linked
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	return "v" + baseversion.DefaultKubeBinaryVersion + ".0"
}

// ReportVersion makes an API server say KubeVersion at /version.
func ReportVersion(effective compatibility.EffectiveVersion) compatibility.EffectiveVersion {
	return reported{effective}
}

type reported struct{ compatibility.EffectiveVersion }

// Info implements compatibility.EffectiveVersion.
func (r reported) Info() *version.Info {
	info := *r.EffectiveVersion.Info()
	info.GitVersion = KubeVersion()
	return &info
}
